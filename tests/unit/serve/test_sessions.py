"""Sessions over HTTP: their number is limited, whoever has most pays."""

from __future__ import annotations

import asyncio

import pytest

from tests.unit.serve.doubles import MemoryCatalog
from toolcrib.serve.auth import Client
from toolcrib.serve.mcp import Connection
from toolcrib.serve.mcp.http.sessions import McpSession, McpSessions
from toolcrib.serve.mcp.http.streams import MOST_HELD
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
    await asyncio.wait_for(sessions.close(), 100)


async def test_streams_that_nobody_reads_take_bounded_memory() -> None:
    """The largest lose their events; a short answer that another client left before can be read on."""
    sessions, catalog, line = McpSessions(), MemoryCatalog(), b"x" * 1_000

    def begin(name: str) -> McpSession:
        session = McpSession(Client(name, None), lambda own: Connection(catalog, own.send), sessions.held)
        sessions.add(session)
        return session

    modest, greedy = begin("token:modest"), begin("token:greedy")
    kept = modest.stream()
    for _ in range(10):
        kept.send(line)
    kept.close()
    for _ in range(80):  # which would be 90 MiB
        stream = greedy.stream()
        while not stream.congested():
            stream.send(line)
        stream.reply(line)
        assert sessions.held.bytes < MOST_HELD + (1 << 20)
    assert greedy.find("1-3") is None
    assert modest.find(f"{kept.name}-3") == (kept, 3)
    await sessions.close()
    assert sessions.held.bytes == 0


async def test_what_was_read_or_ended_is_no_longer_counted() -> None:
    sessions, catalog = McpSessions(), MemoryCatalog()
    session = McpSession(Client("a", None), lambda own: Connection(catalog, own.send), sessions.held)
    sessions.add(session)
    stream = session.stream()
    reader = stream.events(0)
    for _ in range(500):
        stream.send(b"x" * 1_000)
        assert (await anext(reader)).endswith(b"\n\n")
    assert 0 < sessions.held.bytes < 100_000  # what the client may read again
    stream.send(b"last")
    await sessions.remove(session)
    assert b"last" in await anext(reader)
    with pytest.raises(StopAsyncIteration):
        await anext(reader)
    assert sessions.held.bytes == 0
