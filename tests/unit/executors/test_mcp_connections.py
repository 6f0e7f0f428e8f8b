"""The bounds of connections to a server for one caller each: how many, how long, and where there is none."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from types import SimpleNamespace
from typing import Any

import pytest
from mcp import MCPError

from toolcrib.errors import ToolUnavailable
from toolcrib.executors.mcp.connections import CallerConnections
from toolcrib.executors.mcp.relay import Relays
from toolcrib.spec import CallSession


class Relay:
    """The client of a call, as far as it matters here."""

    def __init__(self, session: CallSession | None) -> None:
        self.session = session
        self.capabilities: dict[str, Any] = {"sampling": {}}


class Server:
    """A server of sessions that has asked something before; `open` counts its connections."""

    def __init__(
        self, *, local: bool = False, in_session: bool = True, error: Exception | None = None
    ) -> None:
        self.open = self.tried = 0
        self.shared: Any = SimpleNamespace(in_session=in_session, relays=SimpleNamespace(asked=True))

        @asynccontextmanager
        async def connect(_: Any, __: Relays) -> AsyncIterator[Any]:
            self.tried += 1
            if error is not None:
                raise error
            self.open += 1
            try:
                yield SimpleNamespace(link=SimpleNamespace(closed=asyncio.Event()), number=self.tried)
            finally:
                self.open -= 1

        self.callers = CallerConnections(connect, local=local)

    def call(self, session: CallSession | None, caller: str = "ann", protocol: str = "2025-11-25") -> Any:
        ctx: Any = SimpleNamespace(client=SimpleNamespace(protocol=protocol), caller=caller)
        relay: Any = Relay(session)
        return self.callers.connection(self.shared, ctx, relay)


async def settle() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


@pytest.mark.parametrize(("local", "most"), [(True, 8), (False, 256)])
async def test_one_more_caller_takes_the_place_of_the_longest_unused(local: bool, most: int) -> None:
    server, sessions = Server(local=local), [CallSession() for _ in range(most + 1)]
    for session in sessions[:most]:
        async with server.call(session) as up:
            assert up.number
    assert server.open == most
    async with server.call(sessions[0]) as up:
        assert up.number == 1  # kept, and now the last one used
    async with server.call(sessions[most]):
        await settle()
        assert server.open == most
    async with server.call(sessions[0]) as up:
        assert up.number == 1
    async with server.call(sessions[1]) as up:
        assert up.number == most + 2  # it was closed, and is made again
    await server.callers.aclose()
    assert server.open == 0


@pytest.mark.parametrize(("local", "most"), [(True, 8), (False, 256)])
async def test_a_call_beyond_those_that_all_run_is_refused(local: bool, most: int) -> None:
    server = Server(local=local)
    async with AsyncExitStack() as running:
        for _ in range(most):
            await running.enter_async_context(server.call(CallSession()))
        with pytest.raises(ToolUnavailable, match=f"{most} callers use this server already") as refused:
            async with server.call(CallSession()):
                pass
        assert refused.value.retryable
    async with server.call(CallSession()):  # the others have ended
        pass
    await server.callers.aclose()


async def test_a_connection_of_no_session_is_closed_after_ten_minutes_without_a_call(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    loop = asyncio.get_running_loop()
    real, later = loop.time, 0.0
    monkeypatch.setattr(loop, "time", lambda: real() + later)
    server, session = Server(), CallSession()
    async with server.call(session):
        pass
    async with server.call(None):
        pass
    later += 500
    async with server.call(None) as up:
        assert up.number == 2
    later += 500
    await settle()
    assert server.open == 2  # 500 seconds since its last call
    later += 101
    await settle()
    assert server.open == 1
    async with server.call(session) as up:
        assert up.number == 1  # that of a session ends with it
    session.end()
    await settle()
    assert server.open == 0


async def test_a_server_that_refuses_initialize_is_called_over_the_shared_connection() -> None:
    server = Server(in_session=False, error=MCPError(-32601, "Method not found"))
    for _ in range(2):
        async with server.call(CallSession()) as up:
            assert up is server.shared
    assert server.tried == 1
    await server.callers.aclose()


async def test_a_server_of_sessions_that_refuses_one_fails_the_call() -> None:
    server = Server(error=MCPError(-32603, "no more sessions"))
    with pytest.raises(MCPError, match="no more sessions"):
        async with server.call(CallSession()):
            pass
    await server.callers.aclose()
