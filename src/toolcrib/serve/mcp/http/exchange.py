"""One HTTP request to the MCP endpoint, and its response."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import suppress

from starlette.types import Receive, Send

from toolcrib.errors import ToolcribError, UsageError
from toolcrib.serve.auth import Client
from toolcrib.serve.http import SECURITY_HEADERS, receive_body
from toolcrib.serve.mcp.http.streams import EventStream
from toolcrib.serve.mcp.wire import busy

MAX_BODY = 16 << 20
"""Bytes of the longest message."""
_MOST_BYTES = 128 << 20
EVENT_STREAM = "text/event-stream"
_SILENT_S = 5.0
"""Seconds after which an answer becomes a stream, so that the connection does not look dead."""
_CHECK_S = 1.0
"""Seconds between two checks of the token of an open stream."""
# A browser gets these answers by a script of an allowed origin only. The two others are for what it shows.
_NAMES = ("cache-control", "x-content-type-options")
_OWN = [(name.encode(), SECURITY_HEADERS[name].encode()) for name in _NAMES]
_JSON_HEAD = [*_OWN, (b"content-type", b"application/json")]
_SSE_HEAD = [
    *((name, value) for name, value in _OWN if name != b"cache-control"),
    (b"cache-control", b"no-cache, no-transform"),
    (b"content-type", b"text/event-stream"),
    # Without it nginx keeps events back until its buffer is full.
    (b"x-accel-buffering", b"no"),
]


class Incoming:
    """Limits the bytes of all messages that have come in part: slow clients could hold them for long."""

    _bytes = 0

    def count(self, size: int) -> None:
        """Count bytes that came, or, as a negative number, those that are not held any longer."""
        self._bytes += size
        if size > 0 and self._bytes > _MOST_BYTES:
            raise busy("too many long messages come at once", "Send it again later.")


class Exchange:
    """One HTTP request, and its response."""

    def __init__(
        self,
        headers: Mapping[bytes, bytes],
        client: Client,
        receive: Receive,
        send: Send,
        incoming: Incoming,
        wanted: str = "",
    ) -> None:
        self.wanted = wanted
        """The host or API, of `?for=`, whose rules the lists keep."""
        self.headers, self.client, self._incoming = headers, client, incoming
        self._receive, self._send = receive, send

    def text(self, name: bytes) -> str:
        """Return a header; "" without it."""
        return self.headers.get(name, b"").decode("latin-1").strip()

    def accepts(self, media_type: str) -> bool:
        """Return True if the client takes this media type."""
        given = self.headers.get(b"accept")
        # RFC 9110, 12.5.1: a request without Accept takes any type.
        if given is None:
            return True
        kinds = {one.partition(";")[0].strip().lower() for one in given.decode("latin-1").split(",")}
        return bool(kinds & {"*/*", media_type, f"{media_type.partition('/')[0]}/*"})

    async def body(self, seconds: float) -> bytes:
        """Receive the whole body, as `receive_body` does. Raises JsonRpcError if too much comes at once."""
        length = self.text(b"content-length")
        return await receive_body(self._receive, length, MAX_BODY, seconds, self._incoming.count)

    async def settle(self, stream: EventStream, gone: Callable[[], None] | None = None) -> bool:
        """Wait until there is something to send, or for some seconds. Return True for a plain answer.

        `gone` is called if the client leaves.
        """
        if not stream.is_plain:
            # In one turn of the event loop a call that never waits ends, and its answer is plain JSON.
            await asyncio.sleep(0)
        if stream.is_plain:
            return True
        watch = None if gone is None else asyncio.ensure_future(self._call_when_left(gone))
        try:
            await stream.settle(_SILENT_S)
        finally:
            if watch is not None:
                watch.cancel()
        return stream.is_plain

    async def _left(self) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass

    async def _call_when_left(self, gone: Callable[[], None]) -> None:
        await self._left()
        gone()

    async def answer(self, data: bytes | None, status: int, *more: tuple[bytes, bytes]) -> None:
        """Answer with JSON; a message that gets no answer is accepted."""
        if data is None:
            await self.empty(202)
        else:
            head = [*_JSON_HEAD, (b"content-length", b"%d" % len(data)), *more]
            await self._send({"type": "http.response.start", "status": status, "headers": head})
            await self._send({"type": "http.response.body", "body": data})

    async def empty(self, status: int) -> None:
        """Answer without a body."""
        head = [*_OWN, (b"content-length", b"0")] if status != 204 else list(_OWN)
        await self._send({"type": "http.response.start", "status": status, "headers": head})
        await self._send({"type": "http.response.body", "body": b""})

    async def stream(
        self, events: AsyncGenerator[bytes], require_valid: Callable[[], Awaitable[object]]
    ) -> None:
        """Answer with events until the stream ends, the client leaves, or its token is no longer valid.

        `require_valid` raises ToolcribError for a token that was revoked or has expired.
        """
        if not self.accepts(EVENT_STREAM):
            await events.aclose()
            raise UsageError("the answer is a stream, and the header Accept does not allow text/event-stream")
        await self._send({"type": "http.response.start", "status": 200, "headers": _SSE_HEAD})
        sending = asyncio.ensure_future(self._send_all(events))
        ending = (asyncio.ensure_future(self._left()), asyncio.ensure_future(_until_invalid(require_valid)))
        try:
            await asyncio.wait({sending, *ending}, return_when=asyncio.FIRST_COMPLETED)
            if sending.done():
                sending.result()
        finally:
            for task in (sending, *ending):
                task.cancel()
            await asyncio.gather(sending, *ending, return_exceptions=True)
            await events.aclose()
        # ASGI expects the end of every response, also of one that was cut short.
        if not sending.done() or sending.cancelled():
            await self._send({"type": "http.response.body", "body": b""})

    async def _send_all(self, events: AsyncGenerator[bytes]) -> None:
        async for event in events:
            await self._send({"type": "http.response.body", "body": event, "more_body": True})
        await self._send({"type": "http.response.body", "body": b""})


async def _until_invalid(require_valid: Callable[[], Awaitable[object]]) -> None:
    """Wait until a token is no longer valid."""
    with suppress(ToolcribError):
        while True:
            await asyncio.sleep(_CHECK_S)
            await require_valid()
