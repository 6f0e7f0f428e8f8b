"""The bodies of HTTP/1 messages: read piece by piece, chunks written anew (RFC 9112, 6 and 7)."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable

from toolcrib.egress.proxy.head import BadMessage, Body
from toolcrib.egress.proxy.wire import TooLong, Wire

__all__ = ["LAST_CHUNK", "chunk", "pass_body"]

LAST_CHUNK = b"0\r\n\r\n"
_CHUNK_LINE = re.compile(rb"([0-9A-Fa-f]{1,15})[\t ]*(;[\t\x20-\x7e\x80-\xff]*)?\r\n")
_MAX_LINE = 4 * 1024
_MAX_TRAILERS = 16 * 1024


def chunk(data: bytes) -> bytes:
    """`data`, which is not empty, as one chunk."""
    return b"%x\r\n%b\r\n" % (len(data), data)


async def pass_body(wire: Wire, body: Body, give: Callable[[bytes], Awaitable[None]]) -> None:
    """Give away the pieces of the body as they come, without chunk marks, extensions and trailers.

    Reads no byte beyond the body. Raises EOFError when it breaks off and BadMessage for malformed chunks.
    """
    if body == "chunked":
        await _pass_chunks(wire, give)
    elif body == "rest":
        while piece := await wire.receive():
            await give(piece)
    else:
        await _pass_sized(wire, body, give)


async def _pass_sized(wire: Wire, size: int, give: Callable[[bytes], Awaitable[None]]) -> None:
    while size:
        piece = await wire.receive(size)
        if not piece:
            raise EOFError
        size -= len(piece)
        await give(piece)


async def _pass_chunks(wire: Wire, give: Callable[[bytes], Awaitable[None]]) -> None:
    while True:
        match = _CHUNK_LINE.fullmatch(await _line(wire))
        if match is None:
            raise BadMessage("a chunk has no readable size")
        size = int(match[1], 16)
        if size == 0:
            break
        await _pass_sized(wire, size, give)
        if await wire.exactly(2) != b"\r\n":
            raise BadMessage("a chunk is longer than its size")
    left = _MAX_TRAILERS
    while (line := await _line(wire)) != b"\r\n":
        left -= len(line)
        if left < 0:
            raise BadMessage("the trailers are too long")


async def _line(wire: Wire) -> bytes:
    try:
        line = await wire.until(b"\r\n", _MAX_LINE)
    except TooLong:
        raise BadMessage("a line between chunks is too long") from None
    if not line.endswith(b"\r\n") or b"\n" in line[:-2]:
        raise BadMessage("a line between chunks does not end in CR LF")
    return line
