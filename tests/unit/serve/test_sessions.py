"""Sessions over HTTP: their number is limited, whoever has most pays."""

from __future__ import annotations

import asyncio

import pytest

from tests.unit.serve.doubles import MemoryCatalog
from toolcrib.serve.auth import Client
from toolcrib.serve.mcp import Connection
from toolcrib.serve.mcp.http.sessions import McpSession, McpSessions
from toolcrib.serve.mcp.wire import JsonRpcError

MOST = 2_000


async def test_a_client_whose_sessions_are_all_in_use_keeps_no_other_out() -> None:
    sessions, catalog = McpSessions(), MemoryCatalog()

    def begin(name: str) -> McpSession:
        session = McpSession(Client(name, None), lambda own: Connection(catalog, own.send))
        sessions.add(session)
        return session

    greedy = [begin("token:greedy") for _ in range(MOST)]
    for one in greedy:
        await anext(one.own.events())
    with pytest.raises(JsonRpcError, match="too many sessions"):
        begin("token:greedy")
    other = begin("token:other")
    assert sessions.find(other.id, other.client) is other
    assert sessions.find(greedy[0].id, greedy[0].client) is None
    assert len(sessions) == MOST
    await asyncio.wait_for(sessions.close(), 30)
