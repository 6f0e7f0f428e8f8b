"""A call that waits is asked about in a chat, and the answer counts from the person who was asked alone."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import pytest
import uvicorn

from tests.browser import PHONE, chromium
from tests.chat_services import Heard, Service, served
from tests.crib import Crib
from tests.integration.pods.test_delivery import delivering, running, until
from tests.nats_server import NatsProcess
from toolcrib import Project
from toolcrib.guard.audit.line import AuditEntry, parse
from toolcrib.pods.bridge import Bridge
from toolcrib.pods.questions import Questions
from toolcrib.serve.rest import rest_app

SETTINGS = """
approvals:
  channels: [cli, telegram]
  people: {ada: ["telegram:7"]}
"""
PAGE = "https://crib.example"


@pytest.fixture
def asking(crib: Crib) -> Crib:
    """A project with a tool that asks first."""
    crib.write(".toolcrib/config.yml", SETTINGS)
    crib.shell("pay", approval={"required": True, "reason": "Pays."})
    crib.trust()
    return crib


def lines(crib: Crib, event: str) -> list[AuditEntry]:
    log = (crib.home / "audit" / "tools.log").read_text()
    return [entry for entry in map(parse, log.splitlines()) if entry.event == event]


class Chat:
    """Telegram, with people who press buttons."""

    def __init__(self, service: Service) -> None:
        self.service, self._usual, self.updates = service, service.answer, list[dict[str, Any]]()
        service.answer = self._answer

    def _answer(self, heard: Heard) -> tuple[int, Any]:
        if "getUpdates" not in heard.path:
            return self._usual(heard)
        new = [one for one in self.updates if one["update_id"] >= heard.body["offset"]]
        return 200, {"ok": True, "result": new}

    def press(self, person: int, action: str) -> None:
        message = {"chat": {"id": person}}
        query = {"id": "q", "from": {"id": person}, "data": action, "message": message}
        self.updates.append({"update_id": len(self.updates) + 1, "callback_query": query})

    async def said(self, number: int) -> dict[str, Any]:
        """Return the message of this number, from 1, once it is there."""
        await until(lambda: len(self.service.said("sendMessage")) >= number, f"message {number}")
        found: dict[str, Any] = self.service.said("sendMessage")[number - 1]
        return found


def actions(message: dict[str, Any]) -> list[str]:
    (row,) = message["reply_markup"]["inline_keyboard"]
    return [one["callback_data"] for one in row]


@asynccontextmanager
async def chatting(crib: Crib, nats: NatsProcess) -> AsyncIterator[tuple[Project, Chat]]:
    """Run a bridge that asks, and the process of telegram."""
    async with served("telegram") as service, crib.open() as project:
        chat, questions = Chat(service), Questions(project, PAGE)
        bridge = Bridge(project.calls.stored.database, {**os.environ, "NATS_URL": nats.url})
        bridge.complete = questions.complete
        async with delivering(nats, service), running(bridge.run(questions.run)):
            yield project, chat


async def test_a_button_decides_once_and_for_the_person_who_was_asked_alone(
    asking: Crib, nats: NatsProcess
) -> None:
    async with chatting(asking, nats) as (project, chat):
        waiting = await project.call("pay", {"c": "echo paid"}, wait="pending")
        approval = (waiting.details or {})["approval"]
        question = await chat.said(1)
        assert question["chat_id"] == "7"
        assert 'arguments: {"c": "echo paid"}' in question["text"]
        run, deny = actions(question)
        assert len(run) <= 64
        # The database has nothing by which somebody could decide.
        rows = project.calls.stored.database.rows("SELECT data FROM channel_messages")
        assert run[1:] not in str(rows)

        chat.press(8, run)  # Telegram lets 8 write here, but 8 was not asked.
        chat.press(7, run[:-1] + ("A" if run[-1] != "A" else "B"))
        assert "does not count: this answer is not to a question" in (await chat.said(2))["text"]
        assert project.approval_service.approvals.find(approval).status == "pending"
        chat.press(7, run)
        assert (await chat.said(3))["text"] == "approved: pay"
        chat.press(7, deny)
        assert f"approval {approval} was decided by ada" in (await chat.said(4))["text"]
        assert (await project.call("pay", {"c": "echo paid"})).unwrap() == "paid\n"
        (approved,) = lines(asking, "TOOL_APPROVED")
        assert (approved.fields["approver"], approved.fields["channel"]) == ("ada", "telegram:7")
        refused = [entry.fields["channel"] for entry in lines(asking, "APPROVAL_REFUSED")]
        assert refused == ["telegram:8", "telegram:7", "telegram:7"]


async def test_a_question_that_is_sent_again_is_not_asked_anew(asking: Crib, nats: NatsProcess) -> None:
    async with chatting(asking, nats) as (project, chat):
        await project.call("pay", {"c": "echo first"}, wait="pending")
        question = await chat.said(1)
        messages = project.messages
        (asked,) = messages.page()
        await until(lambda: messages.find(asked.id).state == "delivered", "its delivery")
        messages.settle([(asked.id, "dead", "blocked by the user", b"{}")])
        new = messages.retry(asked.id)
        again = await chat.said(2)
        assert (again["text"], actions(again)) == (question["text"], actions(question))
        # What waits is looked through again for the next one.
        await project.call("pay", {"c": "echo second"}, wait="pending")
        assert "echo second" in (await chat.said(3))["text"]
        ends = {one.id: one.state for one in messages.page() if b"echo first" in one.data}
        assert ends.keys() == {asked.id, new}
        assert ends[asked.id] == "retried"


async def test_an_answer_that_is_too_late_or_about_another_tool_does_not_count(
    asking: Crib, nats: NatsProcess
) -> None:
    async with chatting(asking, nats) as (project, chat):
        await project.call("pay", {"c": "echo late"}, wait="pending")
        late = actions(await chat.said(1))[0]
        with project.calls.stored.database.write() as tx:
            tx.run("UPDATE approvals SET expires_at = 1")
        chat.press(7, late)
        assert "no longer waits: expired" in (await chat.said(2))["text"]
        await project.call("pay", {"c": "echo changed"}, wait="pending")
        changed = actions(await chat.said(3))[0]
        # Whoever can write the database could change what would run.
        with project.calls.stored.database.write() as tx:
            tx.run("UPDATE approvals SET arguments = ? WHERE status = 'pending'", b'{"c":"echo stolen"}')
        chat.press(7, changed)
        assert "is not to a question" in (await chat.said(4))["text"]
        assert not lines(asking, "TOOL_APPROVED")


def denied_on_a_phone(address: str) -> str:
    """Open a link, deny the call, and return what the browser shows then."""
    width, height = PHONE
    with chromium() as browser, browser.new_page(viewport={"width": width, "height": height}) as page:
        page.goto(address)
        page.get_by_label("Reason").fill("Too dear")
        page.get_by_role("button", name="Deny").click()
        return page.inner_text("body")


async def test_a_link_asks_on_a_page_and_decides_once(asking: Crib) -> None:
    async with asking.open() as project, rest_app(project) as (app, _):
        server = uvicorn.Server(uvicorn.Config(app, port=0, log_config=None, lifespan="off"))
        serving = asyncio.create_task(server.serve())
        await until(lambda: server.started, "the server")
        port = server.servers[0].sockets[0].getsockname()[1]
        waiting = await project.call("pay", {"c": "echo '<b>'"}, wait="pending")
        approval = project.approval_service.approvals.find((waiting.details or {})["approval"])
        chats = project.chat_approvals
        (account,) = chats.recipients(approval)
        path = chats.path(approval, account)
        try:
            async with aiohttp.ClientSession(f"http://127.0.0.1:{port}") as http:

                async def ask(path: str, **answer: str) -> str:
                    method = "POST" if answer else "GET"
                    async with http.request(method, path, data=answer or None) as page:
                        return await page.text()

                assert "&lt;b&gt;" in await ask(path)
                for wrong in (path.replace("/7", "/8"), path.replace("/asked/", "/asked/0")):
                    assert "does not count" in await ask(wrong, answer="approve")
                assert project.approval_service.approvals.find(approval.id).status == "pending"
                assert "Denied" in await asyncio.to_thread(
                    denied_on_a_phone, f"http://127.0.0.1:{port}{path}"
                )
                assert "does not count" in await ask(path, answer="approve")
                assert "no longer waits" in await ask(path)
        finally:
            server.should_exit = True
            await serving
        found = project.approval_service.approvals.find(approval.id)
        assert (found.status, found.decided_by, found.note) == ("denied", "ada", "Too dear")
        # An answer to no question at all, which anybody can send, leaves no line.
        refused = [entry.fields["channel"] for entry in lines(asking, "APPROVAL_REFUSED")]
        assert refused == ["telegram:8", "telegram:7"]
