"""Tasks over MCP: calls that go on whatever happens to the server that took them."""

from __future__ import annotations

import asyncio
import json
import sqlite3
import subprocess
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.commands import PROGRAM, Forked
from tests.crib import Crib
from toolcrib import Context, McpForms
from toolcrib.project.mcp_catalog import McpCatalog
from toolcrib.runs.history import ENDED
from toolcrib.serve.mcp import Connection, ServerSettings

V = "io.modelcontextprotocol/"
TASKS: dict[str, Any] = {"extensions": {f"{V}tasks": {}}}
ASKS = {"approval": {"required": True, "reason": "it writes"}}


def request(method: str, params: dict[str, Any], capabilities: Any, client: str = "host") -> bytes:
    meta = {f"{V}protocolVersion": "2026-07-28", f"{V}clientCapabilities": capabilities}
    meta[f"{V}clientInfo"] = {"name": client, "version": "1"}
    message = {"jsonrpc": "2.0", "id": 1, "method": method, "params": {**params, "_meta": meta}}
    return json.dumps(message).encode()


class Stdio:
    """A server process of a project, and a client of it."""

    def __init__(self, crib: Crib, capabilities: Any) -> None:
        command = [PROGRAM, "serve", "--stdio", "--root", str(crib.root)]
        self.process = Forked(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.capabilities = capabilities

    def ask(self, method: str, params: dict[str, Any], client: str = "host") -> dict[str, Any]:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(request(method, params, self.capabilities, client) + b"\n")
        self.process.stdin.flush()
        answered = json.loads(self.process.stdout.readline())
        found: dict[str, Any] = answered.get("result") or answered["error"]
        return found

    def until(self, task: str, status: str) -> dict[str, Any]:
        deadline = time.monotonic() + 100
        while (found := self.ask("tasks/get", {"taskId": task}))["status"] != status:
            assert time.monotonic() < deadline, found
            time.sleep(0.05)
        return found

    def end(self) -> None:
        self.process.kill()
        self.process.communicate()


@pytest.mark.usefixtures("kernel")
def test_a_task_outlives_its_server_and_belongs_to_all_processes_of_the_project(tmp_path: Path) -> None:
    crib = Crib(tmp_path / "project")
    crib.write("count", "")
    permissions = {"fs": {"read": ["."], "write": ["count"]}}
    crib.shell("count", permissions=permissions, mcp={"task": True}, **ASKS)
    crib.shell("free")
    crib.write(".toolcrib/config.yml", "approvals: {channels: [cli, elicitation]}\n")
    crib.trust()
    crib.trust_tools("free", "count")
    forms = {**TASKS, "elicitation": {"form": {}}}
    first, second = Stdio(crib, forms), Stdio(crib, forms)
    try:
        made = first.ask("tools/call", {"name": "count", "arguments": {"c": "echo x >> count"}})
        assert made["resultType"] == "task"
        first.until(made["taskId"], "input_required")
        first.end()
        waits = second.ask("tasks/get", {"taskId": made["taskId"]})
        assert list(waits["inputRequests"]) == ["toolcrib/approval"]
        assert second.ask("tasks/get", {"taskId": made["taskId"]}, client="other")["code"] == -32602
        yes = {"toolcrib/approval": {"action": "accept", "content": {"approve": True}}}
        assert second.ask("tasks/update", {"taskId": made["taskId"], "inputResponses": yes}).keys() == {
            "resultType",
            "_meta",
        }
        ended = second.until(made["taskId"], "completed")
        assert ended["result"]["isError"] is False
        assert (crib.root / "count").read_text() == "x\n"

        first = Stdio(crib, TASKS)
        slow = second.ask("tools/call", {"name": "free", "arguments": {"c": "sleep 60"}})
        assert (slow["resultType"], slow["status"]) == ("task", "working")
        first.ask("tasks/cancel", {"taskId": slow["taskId"]})
        second.until(slow["taskId"], "cancelled")
        lost = second.ask("tools/call", {"name": "free", "arguments": {"c": "sleep 60"}})
        second.end()
        failed = first.until(lost["taskId"], "failed")
        assert "unknown" in failed["error"]["message"]
        first.capabilities = {}
        assert first.ask("tools/call", {"name": "count", "arguments": {"c": "true"}})["code"] == -32021
        assert first.ask("tasks/get", {"taskId": slow["taskId"]})["code"] == -32021
    finally:
        first.end()
        second.end()


async def test_a_task_asks_whenever_it_wants_and_goes_on_with_all_answers(tmp_path: Path) -> None:
    crib, became_a_task = Crib(tmp_path / "project"), asyncio.Event()
    async with crib.open() as project:

        @project.toolset.tool(mcp=McpForms())
        async def late(ctx: Context) -> str:
            assert ctx.client is not None
            await became_a_task.wait()
            form = {"method": "elicitation/create", "params": {"message": "Name?", "requestedSchema": {}}}
            name = (await ctx.client.ask({"name": form}))["name"]["content"]
            color = (await ctx.client.ask({"color": form}))["color"]["content"]
            return f"{name} likes {color}"

        sent: asyncio.Queue[bytes] = asyncio.Queue()
        settings = ServerSettings(tasks=lambda: project.calls, task_after_s=0.1)
        connection = Connection(McpCatalog(project), sent.put_nowait, settings)

        async def ask(method: str, params: dict[str, Any]) -> dict[str, Any]:
            connection.receive(request(method, params, {**TASKS, "elicitation": {}}))
            answered = json.loads(await sent.get())
            found: dict[str, Any] = answered.get("result") or answered["error"]
            return found

        async def until(task: str, key: str) -> Any:
            """Wait until the task shows this."""
            async with asyncio.timeout(100):
                while True:
                    found = await ask("tasks/get", {"taskId": task})
                    if key in found:
                        return found[key]
                    await asyncio.sleep(0.05)

        task = (await ask("tools/call", {"name": "late", "arguments": {}}))["taskId"]
        became_a_task.set()
        for key, word in (("name", "Ann"), ("color", "blue")):
            assert list(await until(task, "inputRequests")) == [key]
            answers = {"other": {}, key: {"action": "accept", "content": word}}
            await ask("tasks/update", {"taskId": task, "inputResponses": answers})
        assert (await until(task, "result"))["content"][0]["text"] == "Ann likes blue"
        await connection.drain(0)


async def test_a_task_that_runs_where_the_project_stops_is_given_back(tmp_path: Path) -> None:
    crib = Crib(tmp_path / "project")
    async with crib.open() as project:

        @project.toolset.tool(idempotent=True)
        async def long() -> None:
            """Never end."""
            await asyncio.Event().wait()

        sent: asyncio.Queue[bytes] = asyncio.Queue()
        settings = ServerSettings(tasks=lambda: project.calls, task_after_s=0.1)
        connection = Connection(McpCatalog(project), sent.put_nowait, settings)
        connection.receive(request("tools/call", {"name": "long", "arguments": {}}, TASKS))
        task = json.loads(await sent.get())["result"]["taskId"]
        assert project.calls.find(task).state == "running"
        await project.calls.stop()
        await connection.drain(5)
        assert project.calls.find(task).state == "ready"


@pytest.mark.parametrize("ends", [True, False], ids=["ends", "is cancelled"])
async def test_a_call_that_is_over_while_it_becomes_a_task(tmp_path: Path, ends: bool) -> None:
    crib, end = Crib(tmp_path / "project"), asyncio.Event()
    async with crib.open() as project:

        @project.toolset.tool(idempotent=True)
        async def late() -> str:
            await end.wait()
            return "done"

        sent: asyncio.Queue[bytes] = asyncio.Queue()
        settings = ServerSettings(tasks=lambda: project.calls, task_after_s=0.1)
        connection = Connection(McpCatalog(project), sent.put_nowait, settings)
        assert project.calls.stored.queue() == []  # The database is there now.
        (database,) = crib.root.rglob("state.db")
        with closing(sqlite3.connect(database, isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            connection.receive(request("tools/call", {"name": "late", "arguments": {}}, TASKS))
            await asyncio.sleep(0.5)  # Meanwhile it is being stored, or else becomes a task later.
            if ends:
                end.set()
            else:
                gone = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 1}}
                connection.receive(json.dumps(gone).encode())
            await asyncio.sleep(0.1)
            assert sent.empty()
            other.execute("ROLLBACK")
        async with asyncio.timeout(100):
            while not (calls := project.calls.page(ENDED)):  # noqa: ASYNC110 - the connection has no event for it
                await asyncio.sleep(0.02)
        assert [call.state for call in calls] == ["done" if ends else "cancelled"]
        if ends:
            # Whichever is ready first is the only answer: the task, or the result of the call.
            answer = json.loads(await asyncio.wait_for(sent.get(), 60))["result"]
            assert answer.get("taskId", calls[0].id) == calls[0].id
            assert "taskId" in answer or answer["content"] == [{"type": "text", "text": "done"}]
        await connection.drain(1)
        assert sent.empty()
