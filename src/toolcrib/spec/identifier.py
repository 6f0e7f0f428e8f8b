"""Identifiers: UUID version 7 (RFC 9562), whose text sorts by time of creation."""

from __future__ import annotations

import os
import time

__all__ = ["new_id"]


def new_id(now: float | None = None) -> str:
    """Return a new identifier; `now` is seconds since the epoch, by default the machine's clock."""
    stamp = max(0, int((time.time() if now is None else now) * 1000)) & (1 << 48) - 1
    noise = int.from_bytes(os.urandom(10))
    number = stamp << 80 | 0x7 << 76 | (noise >> 62 & 0xFFF) << 64 | 0b10 << 62 | noise & (1 << 62) - 1
    text = f"{number:032x}"
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"
