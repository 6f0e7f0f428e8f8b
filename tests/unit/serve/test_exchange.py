"""A stream of events over HTTP, and its readers."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from toolcrib.serve.auth import Client
from toolcrib.serve.mcp.http.exchange import Exchange, Incoming
from toolcrib.serve.mcp.http.streams import EventStream
from toolcrib.serve.mcp.wire import JsonRpcError


class Reader:
    """A client that reads a stream until it leaves."""

    def __init__(self, stream: EventStream) -> None:
        self.leaves, self.begun = asyncio.Event(), asyncio.Event()
        http = Exchange({}, Client("token:a"), self._receive, self._send, Incoming())
        self.task = asyncio.create_task(http.stream(stream.events(), self._require_valid))

    async def _receive(self) -> Any:
        await self.leaves.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message: Any) -> None:
        if message.get("body"):
            self.begun.set()

    async def _require_valid(self) -> None:
        """Find the token valid."""


async def test_a_stream_is_read_while_its_newest_reader_stays() -> None:
    stream = EventStream("0")
    old = Reader(stream)
    await old.begun.wait()
    new = Reader(stream)
    await new.begun.wait()
    await asyncio.wait({old.task}, timeout=30)
    assert old.task.done()
    assert stream.is_read
    new.leaves.set()
    await asyncio.wait({new.task}, timeout=30)
    assert not stream.is_read


async def test_messages_that_have_come_in_part_keep_out_no_whole_one() -> None:
    incoming, complete = Incoming(), asyncio.Event()

    async def body(first: Any) -> bytes:
        parts = [first]

        async def receive() -> Any:
            if not parts:
                await complete.wait()
                return {"type": "http.request", "body": b""}
            return parts.pop()

        async def send(message: Any) -> None:
            raise AssertionError(message)

        return await Exchange({}, Client("token:a"), receive, send, incoming).body(60)

    part = {"type": "http.request", "body": b"x" * (16 << 20), "more_body": True}
    slow = [asyncio.create_task(body(part)) for _ in range(8)]
    await asyncio.sleep(0)
    assert await body({"type": "http.request", "body": b"{}"}) == b"{}"
    with pytest.raises(JsonRpcError, match="too many long messages"):
        await body({"type": "http.request", "body": b"{", "more_body": True})
    complete.set()
    assert [len(await one) for one in slow] == [16 << 20] * 8
    assert await body({"type": "http.request", "body": b"{", "more_body": True}) == b"{"
