"""One HTTP request forwarded and its answer returned: one, whatever else either side sends."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncGenerator
from contextlib import aclosing

from toolcrib.egress.destination import Destination
from toolcrib.egress.proxy.head import (
    BadMessage,
    BodyLength,
    RequestHead,
    ResponseHead,
    plain_answer,
    read_head,
)
from toolcrib.egress.proxy.stream import SocketStream, TooLong, idle_limit

_MAX_INTERIM = 16


class _BadAnswer(Exception):
    """The server's answer cannot be forwarded."""


async def forward(
    client: SocketStream, server: SocketStream, head: RequestHead, destination: Destination, idle_s: float
) -> None:
    """Forward `head` and its body, and the answer back.

    Without an answer that can be forwarded the client gets one of the proxy's own; an answer that breaks off
    in the middle breaks off for the client too.
    """
    one = _Forwarding(client, server, head)
    where = destination.authority
    try:
        async with idle_limit(idle_s, client, server):
            await one.run(destination)
    except TimeoutError:
        await one.fail(504, f"{where} did not answer within {idle_s:g} s")
    except BadMessage as error:
        await one.fail(error.status, error.text)
    except _BadAnswer as error:
        await one.fail(502, f"the answer of {where} is not HTTP that can be forwarded: {error}")
    except (EOFError, OSError):
        await one.fail(502, f"{where} closed the connection without an answer")


class _Forwarding:
    def __init__(self, client: SocketStream, server: SocketStream, head: RequestHead) -> None:
        self._client = client
        self._server = server
        self._head = head
        self._begun = False

    async def run(self, destination: Destination) -> None:
        await self._server.send(self._head.onward(destination))
        # At the same time: a server may answer, or refuse, before it has read the body.
        sender = asyncio.create_task(self._send_body())
        try:
            await self._answer()
        except (EOFError, OSError):
            # The server may have been cut off because of what the client sent: then that is the error.
            if sender.done():
                await sender
            raise
        finally:
            sender.cancel()
            await asyncio.gather(sender, return_exceptions=True)

    async def fail(self, status: int, text: str) -> None:
        """Answer in place of the server, unless its own answer has begun."""
        if not self._begun:
            try:
                await self._client.send(plain_answer(status, text))
            except OSError:
                pass

    async def _send_body(self) -> None:
        chunked = self._head.body == "chunked"
        try:
            async with aclosing(read_body(self._client, self._head.body)) as pieces:
                async for piece in pieces:
                    if not await self._sent(chunk(piece) if chunked else piece):
                        return
            if chunked:
                await self._sent(LAST_CHUNK)
        except (BadMessage, EOFError, OSError):
            # A body that breaks off must not look whole to the server.
            self._server.abort()
            raise

    async def _sent(self, data: bytes) -> bool:
        """Send to the server. Return False if it takes no more: it may have answered already."""
        try:
            await self._server.send(data)
        except OSError:
            return False
        return True

    async def _answer(self) -> None:
        head = await self._final_head()
        chunked = head.body == "chunked" and self._head.accepts_chunks
        # Body bytes that came with the head are sent with it: each send wakes up both sides.
        ready = head.onward(chunked=chunked)
        if not self._server.buffered:
            ready = await self._send(ready)
        try:
            async with aclosing(read_body(self._server, head.body)) as pieces:
                async for piece in pieces:
                    ready = await self._send(ready + (chunk(piece) if chunked else piece))
        except BadMessage as error:
            raise _BadAnswer(error.text) from None
        if ready or chunked:
            await self._send(ready + (LAST_CHUNK if chunked else b""))
        # The client waits for this end; it need not wait until the connection to the server is closed.
        self._client.finish()

    async def _send(self, data: bytes) -> bytes:
        """Send a part of the answer, and return the empty rest."""
        self._begun = True
        await self._client.send(data)
        return b""

    async def _final_head(self) -> ResponseHead:
        """Return the head of the final answer, after forwarding the interim ones (RFC 9110, 15.2)."""
        for _ in range(_MAX_INTERIM):
            try:
                head = ResponseHead.parse(await read_head(self._server), self._head.method)
            except BadMessage as error:
                raise _BadAnswer(error.text) from None
            if head.status >= 200:
                return head
            if head.status == 101:
                # What comes after it would not be checked any more.
                raise _BadAnswer("it changes to another protocol")
            if self._head.accepts_chunks:
                await self._client.send(head.onward(chunked=False))
        raise _BadAnswer("it sends interim answers without end")


LAST_CHUNK = b"0\r\n\r\n"
_CHUNK_LINE = re.compile(rb"([0-9A-Fa-f]{1,15})[\t ]*(;[\t\x20-\x7e\x80-\xff]*)?\r\n")
_MAX_LINE = 4 * 1024
_MAX_TRAILERS = 16 * 1024


def chunk(data: bytes) -> bytes:
    """Return `data`, which is not empty, as one chunk."""
    return b"%x\r\n%b\r\n" % (len(data), data)


async def read_body(stream: SocketStream, length: BodyLength) -> AsyncGenerator[bytes]:
    """Yield the pieces of a body as they arrive, without chunk sizes, extensions and trailers.

    Takes no byte beyond the body. Raises EOFError if it breaks off, BadMessage for malformed chunks.
    """
    if length == "rest":
        while piece := await stream.receive():
            yield piece
        return
    size = await _chunk_size(stream) if length == "chunked" else length
    while size:
        piece = await stream.receive(size)
        if not piece:
            raise EOFError
        yield piece
        size -= len(piece)
        if size == 0 and length == "chunked":
            if await stream.exactly(2) != b"\r\n":
                raise BadMessage("a chunk is longer than its size")
            size = await _chunk_size(stream)
    if length == "chunked":
        await _skip_trailers(stream)


async def _chunk_size(stream: SocketStream) -> int:
    match = _CHUNK_LINE.fullmatch(await _line(stream))
    if match is None:
        raise BadMessage("the size of a chunk is malformed")
    return int(match[1], 16)


async def _skip_trailers(stream: SocketStream) -> None:
    left = _MAX_TRAILERS
    while (line := await _line(stream)) != b"\r\n":
        left -= len(line)
        if left < 0:
            raise BadMessage("the trailers are too long")


async def _line(stream: SocketStream) -> bytes:
    try:
        line = await stream.line(_MAX_LINE)
    except TooLong:
        raise BadMessage("a line between chunks is too long") from None
    if not line.endswith(b"\r\n"):
        raise BadMessage("a line between chunks does not end in CR LF")
    return line
