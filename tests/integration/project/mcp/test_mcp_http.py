"""MCP servers elsewhere, over HTTP: through the guarded client, and nowhere but to their own host."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
from collections.abc import Iterator
from typing import Any

import pytest
from mcp.server.mcpserver import Context, MCPServer

from tests.crib import Crib, failed
from tests.mcp_servers import Served, write
from tests.patience import patient
from toolcrib.spec import CallEvent

pytestmark = pytest.mark.timeout(120)


class Remote(Served):
    """A real server on loopback, on a thread of its own."""

    def __init__(self, port: int = 0) -> None:
        self.headers: list[dict[str, str]] = []
        self.redirect = ""
        self.endless = False
        self.status = 0
        self.together = asyncio.Barrier(1)
        """Passed by calls before they are refused."""
        server = MCPServer("remote")

        @server.tool()
        def add(a: int, b: int) -> int:
            """Add two numbers."""
            return a + b

        @server.tool()
        async def say(ctx: Context, size: int) -> str:
            """Say much; with progress, so that the answer is a stream of events."""
            await ctx.report_progress(1, 2, "half")
            return "x" * size

        @server.tool()
        async def slow(ctx: Context, seconds: float) -> str:
            """Take time."""
            await ctx.report_progress(1, 2, "half")
            await asyncio.sleep(seconds)
            return "done"

        inner: Any = server.streamable_http_app()

        async def app(scope: Any, receive: Any, send: Any) -> None:
            if scope["type"] == "http":
                self.headers.append({k.decode(): v.decode() for k, v in scope["headers"]})
                is_call = (b"mcp-method", b"tools/call") in scope["headers"]
                if self.endless and is_call:
                    kind = [(b"content-type", b"application/json")]
                    await send({"type": "http.response.start", "status": 200, "headers": kind})
                    for _ in range(64):
                        part = {"type": "http.response.body", "body": b" " * 1_000_000, "more_body": True}
                        await send(part)
                    return
                if self.status:
                    if is_call:
                        await self.together.wait()
                    await send({"type": "http.response.start", "status": self.status, "headers": []})
                    await send({"type": "http.response.body", "body": b"no gateway"})
                    return
                if self.redirect:
                    await send(
                        {
                            "type": "http.response.start",
                            "status": 307,
                            "headers": [(b"location", self.redirect.encode())],
                        }
                    )
                    await send({"type": "http.response.body", "body": b""})
                    return
            await inner(scope, receive, send)

        super().__init__(app, port)
        self.url = f"http://127.0.0.1:{self.port}/mcp"


@pytest.fixture
def remote() -> Iterator[Remote]:
    server = Remote()
    server.start()
    with contextlib.closing(server.socket):
        yield server
        server.stop()


async def test_a_server_elsewhere_is_listed_and_called(crib: Crib, remote: Remote) -> None:
    crib.secrets = {"TOKEN": "s3cr3t-value"}
    write(crib, {"far": {"url": remote.url, "headers": {"X-Key": "Bearer ${TOKEN}"}}})
    async with crib.open() as project:
        assert project.servers is not None
        await project.servers.ready(100)
        assert (await project.call("far__add", {"a": 1, "b": 2})).unwrap() == {"result": 3}
        heard: list[CallEvent] = []
        result = await project.call("far__slow", {"seconds": 0.1}, on_event=heard.append)
        assert result.unwrap() == {"result": "done"}
        assert [(event.kind, event.done, event.total, event.message) for event in heard[1:-1]] == [
            ("progress", 1.0, 2.0, "half")
        ]
        late = await project.call("far__slow", {"seconds": 30}, timeout_ms=500)
        assert "500 ms" in failed(late, "timed_out")
        assert (await project.call("far__add", {"a": 2, "b": 2})).unwrap() == {"result": 4}
        assert project.servers.get("far").as_dict()["state"] == "ready"
    assert {one["x-key"] for one in remote.headers} == {"Bearer s3cr3t-value"}


async def test_a_large_message_in_a_stream_of_events(crib: Crib, remote: Remote) -> None:
    write(crib, {"far": {"url": remote.url}})
    async with crib.open() as project:
        heard: list[CallEvent] = []
        large = await project.call("far__say", {"size": 3_000_000}, on_event=heard.append)
        assert len(large.unwrap()["result"]) == 3_000_000
        assert [(event.kind, event.done, event.total, event.message) for event in heard[1:-1]] == [
            ("progress", 1.0, 2.0, "half")
        ]
        beyond = await project.call("far__say", {"size": 20_000_000}, timeout_ms=100_000)
        assert beyond.error is not None
        assert beyond.error.code == "tool_failed"


async def test_a_redirect_to_another_origin_takes_nothing_along(crib: Crib, remote: Remote) -> None:
    other = Remote()
    other.start()
    try:
        remote.redirect = other.url
        write(crib, {"far": {"url": remote.url, "headers": {"X-Key": "k3y-value"}, "start_timeout_s": 5}})
        async with crib.open() as project:
            assert project.servers is not None
            await project.servers.ready(100)
            error = project.servers.get("far").server.error
            assert error is not None
            assert other.headers == []
    finally:
        other.stop()


async def test_an_endless_answer_is_not_read_to_its_end(crib: Crib, remote: Remote) -> None:
    write(crib, {"far": {"url": remote.url}})
    async with crib.open() as project:
        assert project.servers is not None
        await project.servers.ready(100)
        remote.endless = True
        error = (await project.call("far__add", {"a": 1, "b": 2})).error
        assert error is not None
        assert error.code == "tool_failed"
        mounted = project.servers.get("far")
        async with asyncio.timeout(patient(30)):
            while mounted.server.error is None:  # noqa: ASYNC110 - the server has no event for it
                await asyncio.sleep(0.01)
        assert "16,777,216 bytes" in mounted.server.error.message


async def test_the_projects_list_of_hosts_holds_for_servers_too(crib: Crib, remote: Remote) -> None:
    settings = {"security": {"allowed_hosts": ["api.example.com"]}}
    write(crib, {"far": {"url": remote.url}}, settings)
    async with crib.open() as project:
        assert project.servers is not None
        await project.servers.ready(100)
        error = project.servers.get("far").server.error
        assert error is not None
        assert "not among the hosts the project allows" in error.message
        assert remote.headers == []


async def test_one_that_is_not_there_is_told_and_found_again(crib: Crib) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    write(crib, {"far": {"url": f"http://127.0.0.1:{port}/mcp"}})
    async with crib.open() as project:
        assert project.servers is not None
        await project.servers.ready(100)
        assert "Connection refused" in failed(await project.call("far__add"), "tool_unavailable")


@pytest.mark.parametrize("fails", ["at the start", "at a call"])
async def test_a_failure_names_the_http_status(crib: Crib, remote: Remote, fails: str) -> None:
    write(crib, {"far": {"url": remote.url}})
    async with crib.open() as project:
        assert project.servers is not None
        if fails == "at a call":
            await project.servers.ready(100)
        remote.status = 502
        error = (await project.call("far__add", {"a": 1, "b": 2})).error
        assert error is not None
        assert "it answered HTTP 502" in error.message


async def test_every_call_that_is_refused_at_once_says_how_to_log_in(crib: Crib, remote: Remote) -> None:
    write(crib, {"far": {"url": remote.url}})
    async with crib.open() as project:
        assert project.servers is not None
        await project.servers.ready(100)
        remote.status, remote.together = 401, asyncio.Barrier(3)
        for result in await asyncio.gather(*(project.call("far__add", {"a": 1, "b": 2}) for _ in range(3))):
            assert "it refuses our requests (HTTP 401)" in failed(result, "tool_unavailable")


async def test_a_server_that_restarts_is_connected_to_again(crib: Crib, remote: Remote) -> None:
    write(crib, {"far": {"url": remote.url}})
    async with crib.open() as project:
        assert project.servers is not None
        await project.servers.ready(100)
        assert (await project.call("far__add", {"a": 1, "b": 2})).unwrap() == {"result": 3}
        await asyncio.to_thread(remote.stop)
        gone = await project.call("far__add", {"a": 1, "b": 2})
        assert gone.error is not None
        assert gone.error.code in ("tool_failed", "tool_unavailable")
        assert project.servers.get("far").tools == {name: f"far__{name}" for name in ("add", "say", "slow")}
        again = Remote(remote.port)
        again.start()
        try:
            await project.servers.ready(100)
            result = await project.call("far__add", {"a": 2, "b": 2}, timeout_ms=100_000)
            assert result.unwrap() == {"result": 4}
        finally:
            await asyncio.to_thread(again.stop)


class Forgetful(Served):
    """A server of 2025-06-18 that forgets its session where `forget` is called, and refuses it like this."""

    def __init__(self, status: int, body: bytes) -> None:
        self.known, self.made, self.ran = "", 0, 0
        self.forgets = False
        """True: no session is known in a call."""
        self.wait_for = 0
        """Calls that wait for each other before their session is looked up."""
        arrived = asyncio.Event()
        tool = {"name": "go", "inputSchema": {"type": "object"}}

        async def app(scope: Any, receive: Any, send: Any) -> None:
            if scope["type"] != "http":
                await receive()
                await send({"type": "lifespan.startup.complete"})
                return
            headers = dict(scope["headers"])
            message = json.loads((await receive())["body"] or b"{}")
            method, more = message.get("method"), []
            result: dict[str, Any] = {}
            if method == "initialize":
                self.made += 1
                self.known = f"session-{self.made}"
                more = [(b"mcp-session-id", self.known.encode())]
                result = {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}}
                result["serverInfo"] = {"name": "forgetful", "version": "1"}
            if method == "tools/call":
                self.wait_for -= 1
                if self.wait_for == 0:
                    arrived.set()
                if self.wait_for > 0:
                    await arrived.wait()
                self.known = "" if self.forgets else self.known
            lost = method != "initialize" and headers.get(b"mcp-session-id", b"").decode() != self.known
            if method == "tools/list":
                result = {"tools": [tool]}
            elif method == "tools/call" and not lost:
                self.ran += 1
                result = {"content": [{"type": "text", "text": f"call {self.ran}"}]}
            code = status if lost else 405 if scope["method"] != "POST" else 200 if "id" in message else 202
            reply = {"jsonrpc": "2.0", "id": message.get("id"), "result": result}
            kind = [(b"content-type", b"application/json"), *more]
            await send({"type": "http.response.start", "status": code, "headers": kind})
            text = body if lost else json.dumps(reply).encode() if code == 200 else b""
            await send({"type": "http.response.body", "body": text})

        super().__init__(app)
        self.url = f"http://127.0.0.1:{self.port}/mcp"

    def forget(self) -> None:
        self.known = ""


@contextlib.contextmanager
def serving(remote: Forgetful) -> Iterator[Forgetful]:
    remote.start()
    try:
        yield remote
    finally:
        remote.stop()


_REFUSED = b'{"jsonrpc":"2.0","id":null,"error":{"code":-32001,"message":"Session not found"}}'
_NO_ID = _REFUSED.replace(b"Session not found", b"Bad Request: No valid session ID provided")


@pytest.mark.parametrize(("status", "body"), [(404, _REFUSED), (404, b""), (400, _NO_ID)])
async def test_a_session_that_the_server_forgot_is_made_again(
    crib: Crib, monkeypatch: pytest.MonkeyPatch, status: int, body: bytes
) -> None:
    with serving(Forgetful(status, body)) as remote:
        write(crib, {"far": {"url": remote.url}})
        async with crib.open() as project:
            assert project.servers is not None
            await project.servers.ready(100)
            for number in range(1, 5):
                assert (await project.call("far__go")).unwrap() == f"call {number}"
                remote.forget()
            assert remote.made == 4
            remote.wait_for = 3
            results = await asyncio.gather(*(project.call("far__go") for _ in range(3)))
            assert sorted(result.unwrap() for result in results) == ["call 5", "call 6", "call 7"]
            remote.forget()
            # As after a long pause: its tools are listed again before the call, in the session that is gone.
            monkeypatch.setattr("toolcrib.executors.mcp.server._OLD_S", 0.0)
            assert (await project.call("far__go")).unwrap() == "call 8"


async def test_a_server_that_forgets_each_session_fails_the_call(crib: Crib) -> None:
    with serving(Forgetful(404, _REFUSED)) as remote:
        write(crib, {"far": {"url": remote.url}})
        async with crib.open() as project:
            assert project.servers is not None
            await project.servers.ready(100)
            remote.forgets = True
            assert "the server ended its session" in failed(await project.call("far__go"), "tool_unavailable")
            assert remote.ran == 0


@pytest.mark.parametrize(
    "answer", [b'{"jsonrpc":"2.0","id":', b'{"jsonrpc":"2.0","id":1,"result":' + b'{"a":' * 5_000]
)
async def test_an_answer_that_cannot_be_read_is_an_error_in_our_words(crib: Crib, answer: bytes) -> None:
    with serving(Forgetful(200, answer)) as remote:
        write(crib, {"far": {"url": remote.url}})
        async with crib.open() as project:
            assert project.servers is not None
            await project.servers.ready(100)
            remote.forgets = True
            message = failed(await project.call("far__go", timeout_ms=60_000), "tool_failed")
            assert message == "far: go: its answer is malformed, or nested too deeply"
