"""The bodies of answers, decoded so that one that was cut short is an error.

aiohttp decodes too, and takes what came of a cut gzip body as the whole.
"""

from __future__ import annotations

import codecs
import zlib
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import aiohttp

ACCEPTED = "gzip, deflate"
_MOST = 256 * 1024
"""Decoded bytes of one piece: a bomb ends at the reader's limit, not in memory."""
_PORTION = 4 * 1024
"""Bytes that are decoded at once: what is left after each member of a gzip body is copied."""
_ZLIB, _RAW, _GZIP = 15, -15, 31
_PADDING = b"\0"
"""May follow a member of a gzip body."""
_NOT_OF_THE_WEB = frozenset(
    {"idna", "punycode", "raw-unicode-escape", "undefined", "unicode-escape", "utf-7"}
)
"""Codecs of Python for other things: some take quadratic time, or do not return text."""


async def decoded(answer: aiohttp.ClientResponse) -> AsyncIterator[bytes]:
    """Yield the body as it comes. Raises ContentEncodingError for one that is cut short or undecodable."""
    coding = answer.headers.get("Content-Encoding", "").strip().lower()
    if coding in ("", "identity"):
        async for chunk in answer.content.iter_any():
            yield chunk
        return
    unpacker = None
    async for chunk in _portions(answer):
        rest = chunk
        if unpacker is not None and unpacker.eof:
            rest = rest.lstrip(_PADDING)
        while rest:
            if unpacker is None or unpacker.eof:  # A gzip body may have several members.
                unpacker = _unpacker(coding, rest)
            try:
                # Bounded: 1 KiB can decode to a megabyte of zeros.
                piece = unpacker.decompress(rest, _MOST)
                while piece:
                    yield piece
                    piece = unpacker.decompress(unpacker.unconsumed_tail, _MOST)
            except zlib.error as error:
                raise _undecodable(coding) from error
            rest = unpacker.unused_data.lstrip(_PADDING)
    if unpacker is not None and not unpacker.eof:
        raise _undecodable(coding)


async def _portions(answer: aiohttp.ClientResponse) -> AsyncIterator[bytes]:
    async for chunk in answer.content.iter_any():
        for start in range(0, len(chunk), _PORTION):
            yield chunk[start : start + _PORTION]


def text_in(body: bytes, charset: str, errors: str = "strict") -> str:
    """Return a body as text in the character set that its sender names.

    Raises LookupError for one that is unknown, UnicodeDecodeError for bytes that are not of it.
    """
    try:
        name = codecs.lookup(charset).name
    except ValueError:  # It contains what no name can.
        raise LookupError(charset) from None
    if name in _NOT_OF_THE_WEB:
        raise LookupError(charset)
    return body.decode(charset, errors)


def _unpacker(coding: str, beginning: bytes) -> zlib._Decompress:
    if coding == "deflate":  # Some servers leave out the header of zlib.
        return zlib.decompressobj(_ZLIB if beginning[0] & 0xF == 8 else _RAW)
    if coding in ("gzip", "x-gzip"):
        return zlib.decompressobj(_GZIP)
    raise _undecodable(coding)


def _undecodable(coding: str) -> Exception:
    from aiohttp.http_exceptions import ContentEncodingError

    return ContentEncodingError(coding)
