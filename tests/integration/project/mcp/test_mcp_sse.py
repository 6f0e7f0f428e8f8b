"""MCP servers that speak the older transport, HTTP with server-sent events."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any

import pytest
from mcp.server.mcpserver import Context, MCPServer

from tests.crib import Crib, failed
from tests.mcp_servers import Served, trust, write
from tests.patience import patient
from toolcrib.spec import CallEvent

pytestmark = pytest.mark.timeout(120)


def tools() -> MCPServer:
    """The server's tools."""
    server = MCPServer("events")

    @server.tool()
    def add(a: int, b: int) -> int:
        """Add two numbers."""
        return a + b

    @server.tool()
    def say(size: int) -> str:
        """Say much."""
        return "x" * size

    @server.tool()
    async def slow(ctx: Context, seconds: float) -> str:
        """Take time."""
        await ctx.report_progress(1, 2, "half")
        await asyncio.sleep(seconds)
        return "done"

    @server.tool()
    async def grow(ctx: Context) -> str:
        """Offer one more tool."""

        def more() -> str:
            """One more."""
            return "more"

        server.add_tool(more)
        await ctx.notify_tools_changed()
        return "grown"

    return server


class Events(Served):
    """A real server on loopback, on a thread of its own."""

    def __init__(self) -> None:
        self.seen: list[tuple[str, str, dict[str, str]]] = []
        """Method, path and headers of each request."""
        self.flood = False
        """True if an endless event follows."""
        self.flooded = 0
        """Megabytes of it that were sent before the client went away."""
        self.endpoint = ""
        """The address for messages, if not the server's own."""
        self.garble = False
        """True if its answers cannot be read."""
        self._inner: Any = tools().sse_app()
        super().__init__(self._app)
        self.url = f"http://127.0.0.1:{self.port}/sse"

    async def _app(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "http":
            headers = {k.decode(): v.decode() for k, v in scope["headers"]}
            self.seen.append((scope["method"], scope["path"], headers))
            if self.endpoint and scope["path"] == "/sse":
                await self._mislead(receive, send)
                return

        async def sent(message: Any) -> None:
            if self.garble and b'"result"' in message.get("body", b""):
                message = {**message, "body": b'event: message\ndata: {"jsonrpc":"2.0","id":\n\n'}
            await send(message)

        await self._inner(scope, receive, sent)

    async def _mislead(self, receive: Any, send: Any) -> None:
        """A stream of events that says where messages are to go, and no more."""
        kind = [(b"content-type", b"text/event-stream")]
        await send({"type": "http.response.start", "status": 200, "headers": kind})
        event = f"event: endpoint\ndata: {self.endpoint}" + ("" if self.flood else "\n\n")
        await send({"type": "http.response.body", "body": event.encode(), "more_body": True})
        await receive()
        gone = asyncio.ensure_future(receive())
        while self.flood and not gone.done():
            self.flooded += 1
            await send({"type": "http.response.body", "body": b"x" * 1_000_000, "more_body": True})
            await asyncio.sleep(0.01)
        await asyncio.wait([gone], timeout=patient(20))


@pytest.fixture
def events() -> Iterator[Events]:
    server = Events()
    server.start()
    with contextlib.closing(server.socket):
        yield server
        server.stop()


async def test_an_answer_that_cannot_be_read_ends_the_call_at_once(crib: Crib, events: Events) -> None:
    write(crib, {"far": {"type": "sse", "url": events.url}})
    async with crib.open() as project:
        assert project.servers is not None
        await project.servers.ready(100)
        events.garble = True
        result = await project.call("far__add", {"a": 1, "b": 2}, timeout_ms=60_000)
        assert "a message that is not one of MCP" in failed(result, "tool_failed")
        events.garble = False
        assert (await project.call("far__add", {"a": 1, "b": 2})).unwrap() == {"result": 3}


async def test_a_server_of_the_older_transport_is_listed_and_called(crib: Crib, events: Events) -> None:
    crib.secrets = {"TOKEN": "s3cr3t-value"}
    write(crib, {"far": {"type": "sse", "url": events.url, "headers": {"X-Key": "Bearer ${TOKEN}"}}})
    async with crib.open() as project:
        assert project.servers is not None
        await project.servers.ready(100)
        told = project.servers.get("far").as_dict()
        assert (told["state"], told["error"]) == ("ready", None)
        assert (await project.call("far__add", {"a": 1, "b": 2})).unwrap() == {"result": 3}
        heard: list[CallEvent] = []
        result = await project.call("far__slow", {"seconds": 0.1}, on_event=heard.append)
        assert result.unwrap() == {"result": "done"}
        assert [(event.kind, event.done, event.total, event.message) for event in heard[1:-1]] == [
            ("progress", 1.0, 2.0, "half")
        ]
        late = await project.call("far__slow", {"seconds": 30}, timeout_ms=500)
        assert "500 ms" in failed(late, "timed_out")
        both = await asyncio.gather(*(project.call("far__add", {"a": n, "b": n}) for n in range(5)))
        assert [one.unwrap() for one in both] == [{"result": 2 * n} for n in range(5)]
    assert {headers["x-key"] for _, _, headers in events.seen} == {"Bearer s3cr3t-value"}
    assert {(method, path) for method, path, _ in events.seen} == {("GET", "/sse"), ("POST", "/messages/")}


async def test_a_server_in_mcp_json_may_be_of_the_older_transport(crib: Crib, events: Events) -> None:
    servers = {"far": {"type": "sse", "url": events.url}}
    crib.write(".mcp.json", json.dumps({"mcpServers": servers}))
    trust(crib.root)
    async with crib.open() as project:
        assert (await project.call("far__add", {"a": 1, "b": 2})).unwrap() == {"result": 3}


async def test_a_changed_list_of_tools_is_followed(crib: Crib, events: Events) -> None:
    write(crib, {"far": {"type": "sse", "url": events.url}})
    async with crib.open() as project:
        assert project.servers is not None
        await project.servers.ready(100)
        assert (await project.call("far__grow")).ok
        deadline = time.monotonic() + patient(60)
        while "more" not in project.servers.get("far").tools:
            assert time.monotonic() < deadline
            await asyncio.sleep(0.02)


async def test_messages_go_nowhere_but_to_the_servers_own_place(crib: Crib, events: Events) -> None:
    other = Events()
    other.start()
    try:
        crib.secrets = {"TOKEN": "s3cr3t-value"}
        headers = {"X-Key": "${TOKEN}"}
        for place in (f"http://127.0.0.1:{other.port}/messages/", f"//127.0.0.1:{other.port}/messages/"):
            events.endpoint = place
            far = {"type": "sse", "url": events.url, "headers": headers, "start_timeout_s": 3}
            write(crib, {"far": far})
            async with crib.open() as project:
                assert project.servers is not None
                await project.servers.ready(100)
                error = project.servers.get("far").server.error
                assert error is not None
                failed(await project.call("far__add", {"a": 1, "b": 2}), "tool_unavailable")
        assert other.seen == []
    finally:
        other.stop()


async def test_an_event_without_end_is_not_read_to_its_end(crib: Crib, events: Events) -> None:
    events.endpoint, events.flood = "/messages/\n\ndata: ", True
    write(crib, {"far": {"type": "sse", "url": events.url, "start_timeout_s": 20}})
    async with crib.open() as project:
        assert project.servers is not None
        await project.servers.ready(100)
        error = project.servers.get("far").server.error
        assert error is not None
    assert events.flooded < 100


PROGRAM = """
import asyncio, sys
from mcp.server.mcpserver import MCPServer

server = MCPServer("events")

@server.tool()
def add(a: int, b: int) -> int:
    "Add two numbers."
    return a + b

@server.tool()
async def slow(seconds: float) -> str:
    "Take time."
    print("called", flush=True)
    await asyncio.sleep(seconds)
    return "done"

server.run(transport="sse", host="127.0.0.1", port=int(sys.argv[1]))
"""


class Program:
    """The same as a process of its own, so that it can be killed."""

    def __init__(self) -> None:
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port = free.getsockname()[1]

    def start(self) -> None:
        words = [sys.executable, "-c", PROGRAM, str(self.port)]
        self._process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        deadline = time.monotonic() + patient(60)
        while True:
            try:
                socket.create_connection(("127.0.0.1", self.port)).close()
                return
            except OSError:
                assert time.monotonic() < deadline
                time.sleep(0.02)

    async def called(self) -> None:
        """Wait until a tool has been called."""
        assert self._process.stdout is not None
        while b"called" not in (line := await asyncio.to_thread(self._process.stdout.readline)):
            assert line

    def kill(self) -> None:
        self._process.kill()
        self._process.communicate()


@pytest.fixture
def killable() -> Iterator[Program]:
    made = Program()
    yield made
    made.kill()


async def test_a_server_that_is_killed_in_the_middle_of_a_call_is_connected_to_again(
    crib: Crib, killable: Program
) -> None:
    await asyncio.to_thread(killable.start)
    write(crib, {"far": {"type": "sse", "url": f"http://127.0.0.1:{killable.port}/sse"}})
    async with crib.open() as project:
        running = asyncio.ensure_future(project.call("far__slow", {"seconds": 600}, timeout_ms=100_000))
        await killable.called()
        killable.kill()
        assert "ended before it answered" in failed(await running, "tool_failed")
        await asyncio.to_thread(killable.start)
        deadline = time.monotonic() + patient(60)
        while not (result := await project.call("far__add", {"a": 2, "b": 2}, timeout_ms=100_000)).ok:
            assert time.monotonic() < deadline, result.error
            await asyncio.sleep(0.1)
        assert result.unwrap() == {"result": 4}


async def test_a_stream_that_ends_between_two_calls_is_opened_again(crib: Crib, killable: Program) -> None:
    await asyncio.to_thread(killable.start)
    write(crib, {"far": {"type": "sse", "url": f"http://127.0.0.1:{killable.port}/sse"}})
    async with crib.open() as project:
        assert project.servers is not None
        await project.servers.ready(100)
        server = project.servers.get("far").server
        assert (server.state, server.starts) == ("ready", 1)
        killable.kill()
        await asyncio.to_thread(killable.start)
        deadline = time.monotonic() + patient(60)
        while server.starts < 2 or server.state != "ready":
            assert time.monotonic() < deadline, (server.starts, server.state)
            await asyncio.sleep(0.05)
        assert (await project.call("far__add", {"a": 2, "b": 2})).unwrap() == {"result": 4}


async def test_a_message_above_the_clients_limit_ends_the_connection_and_is_told(
    crib: Crib, events: Events
) -> None:
    write(crib, {"far": {"type": "sse", "url": events.url}})
    async with crib.open() as project:
        # It comes twice: as text, and as structured content.
        small = await project.call("far__say", {"size": 400_000})
        assert len(small.unwrap()["result"]) == 400_000
        large = await project.call("far__say", {"size": 2_000_000}, timeout_ms=100_000)
        assert "ended before it answered" in failed(large, "tool_failed")
