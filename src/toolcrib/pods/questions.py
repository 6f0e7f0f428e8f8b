"""Calls that wait for approval are sent to the people who may decide, and their answers are taken."""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from toolcrib.errors import ToolcribError
from toolcrib.guard.approvals.records import Approval
from toolcrib.pods.bus import RECEIVED, Bus
from toolcrib.pods.channels.channel import USER, Inbound
from toolcrib.project import Project
from toolcrib.spec.identifier import derived_id
from toolcrib.state import DatabaseWatch
from toolcrib.state.outgoing.outbox import ChannelMessages

_PAGE = 500
_TOO_LONG = "{} needs approval, and is too long for a message: toolcrib approvals show {}"
_log = logging.getLogger("toolcrib.pods")


class Questions:
    """The questions of a project to people in their chats. `page` is the address of its server, if any.

    The database has only the text of a message, because whoever reads it could decide by the rest.
    """

    def __init__(self, project: Project, page: str = "") -> None:
        self._chats, self._page = project.chat_approvals, page.rstrip("/")
        self._approvals = self._chats.service.approvals
        self._database = project.calls.stored.database
        self._watch: DatabaseWatch[bool] = DatabaseWatch(self._look, self._database)
        self._seen: tuple[object, ...] = ()
        # A bridge of another project must not take answers to this one's questions.
        self._name = hashlib.sha256(str(project.place.path).encode()).hexdigest()[:16]

    async def run(self, bus: Bus) -> None:
        """Send questions and take answers until cancelled."""
        async with asyncio.TaskGroup() as group:
            take = bus.consume(f"approvals-{self._name}", f"{RECEIVED}.>", Inbound, self._answered)
            group.create_task(take)
            group.create_task(self._ask())

    async def _ask(self) -> None:
        while True:
            await self._watch.wait("", None)
            await asyncio.to_thread(self._send_all)

    def _look(self, keys: Sequence[str]) -> Mapping[str, bool]:
        return dict.fromkeys(keys, True) if self._approvals.mark() != self._seen else {}

    def _send_all(self) -> None:
        seen, before = self._approvals.mark(), None
        while page := self._approvals.list("pending", _PAGE, before=before):
            for approval in page:
                self._send(approval)
            before = page[-1].id
        self._seen = seen

    def _send(self, approval: Approval) -> None:
        for account in self._chats.recipients(approval):
            id = derived_id(f"approval {approval.id} {account}")
            if self._database.rows("SELECT 1 FROM channel_messages WHERE id = ?", id):
                continue
            text = self._text(approval.id) or _TOO_LONG.format(approval.tool, approval.id)
            self._put(id, account.channel, account.id, text, approval=approval.id)

    def _text(self, approval: str) -> str | None:
        return self._chats.service.question(self._chats.service.show(approval))

    def _put(self, id: str, channel: str, person: str, text: str, **more: str) -> None:
        data = {"channel": channel, "chatId": f"{USER}{person}", "text": text, **more}
        with self._database.write() as tx:
            ChannelMessages.put(tx, id, data)

    def complete(self, data: dict[str, Any]) -> dict[str, Any]:
        """Return the data of a message with the buttons and the link of the question that it asks, if any."""
        given = dict(data)
        approval_id, name = given.pop("approval", None), given["channel"]
        account = self._chats.accounts.get(f"{name}:{given.get('chatId', '').removeprefix(USER)}")
        if approval_id is None or account is None:
            return given
        approval = self._chats.service.show(approval_id).approval
        if approval.status != "pending" or account not in self._chats.recipients(approval):
            return given
        if self._text(approval_id) is not None:
            stamp = self._chats.stamp(approval, account)
            labels = (("Run it once", "+"), ("Deny", "-"))
            given["buttons"] = [{"label": label, "action": f"{sign}{stamp}"} for label, sign in labels]
            if self._page:
                given["link"] = self._page + self._chats.path(approval, account)
        return given

    async def _answered(self, messages: Sequence[tuple[str, Inbound]]) -> None:
        for key, one in messages:
            if one.action:
                await asyncio.to_thread(partial(self.take, key, one))

    def take(self, key: str, message: Inbound) -> None:
        """Take the press of a button, and answer what came of it to a person who may decide."""
        name, sign, stamp = f"{message.channel}:{message.sender}", message.action[:1], message.action[1:]
        try:
            sheet = self._chats.decide(stamp, name, approve=sign == "+")
            text = f"{sheet.approval.status}: {sheet.approval.tool}"
        except ToolcribError as error:
            if error.retryable:
                raise
            _log.warning("an answer of %s does not count: %s", name, error.message)
            text = f"This does not count: {error.message}"
        if name in self._chats.accounts:
            self._put(derived_id(f"answer {key}"), message.channel, message.sender, text)
