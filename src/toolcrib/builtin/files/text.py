"""The text in a part of a file. No character is parted, at its beginning or end, nor a secret at its end."""

from __future__ import annotations

import codecs
import re
from typing import NamedTuple

from toolcrib.guard import Redactor, StreamMasker
from toolcrib.spec.calls.content import UNKNOWN, media_type_of

AROUND = 3
"""Bytes before a part in which a character may begin that ends in it."""
_CONTROL = re.compile(rb"[\x00-\x08\x0e-\x1a\x1c-\x1f\x7f]")
_BOMS = {codecs.BOM_UTF16_LE: "utf-16-le", codecs.BOM_UTF16_BE: "utf-16-be"}


class TextPart(NamedTuple):
    """A part of a text."""

    text: str
    begin: int
    """Its first byte in the whole."""
    end: int
    """The byte after its last one."""
    warnings: tuple[str, ...]


def text_part(
    data: bytes, offset: int, *, head: bytes, before: bytes, more: bool, redactor: Redactor | None = None
) -> TextPart:
    """Return the text of the bytes from `offset` on: UTF-16 if `head`, the first bytes, say so, else UTF-8.

    `before` are the bytes before them. With `more` after them, what could be half a secret at the end is left
    out, as half a character is.
    """
    encoding = next((name for bom, name in _BOMS.items() if head.startswith(bom)), "utf-8")
    half = _half_before(before, data, offset, encoding)
    data, begin = half + data, offset - len(half)
    escape = "surrogateescape" if encoding == "utf-8" else "replace"
    decoder = codecs.getincrementaldecoder(encoding)(escape)
    text, kept_back, warnings = decoder.decode(data, not more), 0, _warnings(data, begin, encoding)
    if more:
        masker = StreamMasker(redactor or Redactor(()))
        text = masker.feed(text)
        kept_back = len(decoder.getstate()[0]) + len(masker.pending.encode(encoding, escape))
    text = text.encode(errors="surrogateescape").decode(errors="replace")
    return TextPart(text.removeprefix("\ufeff"), begin, begin + len(data) - kept_back, warnings)


def is_odd_text(head: bytes, data: bytes, media_type: str) -> bool:
    """Return True for text in another encoding, unless its type or the first bytes of a format say more."""
    if media_type or media_type_of(data) != UNKNOWN:
        return False
    return head.startswith(tuple(_BOMS)) or not _CONTROL.search(data)


def _warnings(data: bytes, begin: int, encoding: str) -> tuple[str, ...]:
    if encoding != "utf-8":
        return (f"the file is {encoding[:6].upper()}, not UTF-8; offset and limit count its bytes",)
    try:
        codecs.getincrementaldecoder("utf-8")().decode(data)
    except UnicodeDecodeError as error:
        return (f"the file is not UTF-8 (byte {begin + error.start}); such bytes are replaced by \ufffd",)
    return ()


def _half_before(before: bytes, data: bytes, offset: int, encoding: str) -> bytes:
    """Return the end of `before` if a character begins there that ends in `data`."""
    if encoding != "utf-8":
        half = before[len(before) - offset % 2 :]
        unit = (half + data)[:2]
        is_second = len(unit) == 2 and 0xDC <= unit[encoding == "utf-16-le"] <= 0xDF
        return before[-2 - len(half) :] if is_second else half
    for length in range(1, min(AROUND, len(before)) + 1):
        first = before[-length]
        if first & 0xC0 != 0x80:  # It does not continue a character (RFC 3629).
            width = 4 if first >= 0xF0 else 3 if first >= 0xE0 else 2 if first >= 0xC0 else 1
            return before[-length:] if width > length else b""
    return b""
