"""A stream of events over HTTP, and its readers."""

from __future__ import annotations

import asyncio
from typing import Any

from toolcrib.serve.auth import Client
from toolcrib.serve.mcp.http.exchange import Exchange, Incoming
from toolcrib.serve.mcp.http.streams import EventStream


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
