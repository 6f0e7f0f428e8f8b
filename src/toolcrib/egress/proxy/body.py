"""The bodies of HTTP/1 messages: read piece by piece, chunks written anew (RFC 9112, 6 and 7)."""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator

from toolcrib.egress.proxy.head import BadMessage, BodyLength
from toolcrib.egress.proxy.stream import SocketStream, TooLong

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
