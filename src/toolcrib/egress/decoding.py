"""The bodies of answers, decoded so that one that was cut short is an error.

aiohttp decodes too, and takes what came of a cut gzip body as the whole.
"""

from __future__ import annotations

import zlib
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import aiohttp

ACCEPTED = "gzip, deflate"
_MOST = 256 * 1024
"""Decoded bytes of one piece: a bomb ends at the reader's limit, not in memory."""
_ZLIB, _RAW, _GZIP = 15, -15, 31
_PADDING = b"\0"
"""May follow a member of a gzip body."""


async def decoded(answer: aiohttp.ClientResponse) -> AsyncIterator[bytes]:
    """Yield the body as it comes. Raises ContentEncodingError for one that is cut short or undecodable."""
    coding = answer.headers.get("Content-Encoding", "").strip().lower()
    if coding in ("", "identity"):
        async for chunk in answer.content.iter_any():
            yield chunk
        return
    unpacker = None
    async for chunk in answer.content.iter_any():
        rest = chunk
        if unpacker is not None and unpacker.eof:
            rest = rest.lstrip(_PADDING)
        while rest:
            if unpacker is None or unpacker.eof:  # A gzip body may have several members.
                unpacker = _unpacker(coding, rest)
            try:
                # Bounded: 1 KiB can stand for a megabyte of zeros.
                piece = unpacker.decompress(rest, _MOST)
                while piece:
                    yield piece
                    piece = unpacker.decompress(unpacker.unconsumed_tail, _MOST)
            except zlib.error as error:
                raise _undecodable(coding) from error
            rest = unpacker.unused_data.lstrip(_PADDING)
    if unpacker is not None and not unpacker.eof:
        raise _undecodable(coding)


def _unpacker(coding: str, beginning: bytes) -> zlib._Decompress:
    if coding == "deflate":  # Some servers leave out the header of zlib.
        return zlib.decompressobj(_ZLIB if beginning[0] & 0xF == 8 else _RAW)
    if coding in ("gzip", "x-gzip"):
        return zlib.decompressobj(_GZIP)
    raise _undecodable(coding)


def _undecodable(coding: str) -> Exception:
    from aiohttp.http_exceptions import ContentEncodingError

    return ContentEncodingError(coding)
