"""Identifiers: UUID version 7 (RFC 9562), whose text sorts by time of creation."""

from __future__ import annotations

import hashlib
import os
import time

_latest = [0, 0]
"""The millisecond of the identifier made last in this process, and its number within that millisecond."""


def new_id(now: float | None = None) -> str:
    """Return a new identifier; `now` is seconds since the epoch, by default the machine's clock.

    Those that a thread makes within one millisecond sort in the order in which it made them.
    """
    # 48 bits of milliseconds, 12 of a counter and 62 of noise, with version and variant between them (RFC
    # 9562, 5.7).
    stamp = max(0, int((time.time() if now is None else now) * 1000)) & (1 << 48) - 1
    noise = int.from_bytes(os.urandom(10))
    # The first number of a millisecond leaves room for 2,048 more.
    count = _latest[1] + 1 & 0xFFF if stamp == _latest[0] else noise >> 62 & 0x7FF
    # Not locked: two threads may take the same number, and their noise makes them different.
    _latest[:] = stamp, count
    number = stamp << 80 | 0x7 << 76 | count << 64 | 0b10 << 62 | noise & (1 << 62) - 1
    text = f"{number:032x}"
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"


def first_id(at: float) -> str:
    """Return a text that sorts before each identifier made at this time or later, and after all others."""
    stamp = f"{max(0, int(at * 1000)) & (1 << 48) - 1:012x}"
    return f"{stamp[:8]}-{stamp[8:]}"


def made_at(made: str) -> float | None:
    """Return the time at which `new_id` made an identifier; None for one of `derived_id`."""
    return None if made.startswith(_DERIVED) else int(made[:8] + made[9:13], 16) / 1000


_DERIVED = "019b7a00-0000-7"


def derived_id(*parts: str) -> str:
    """Return an identifier that is the same for the same texts; its time says nothing."""
    text = hashlib.sha256("\0".join(parts).encode(errors="surrogatepass")).hexdigest()
    return f"{_DERIVED}{text[:3]}-{'89ab'[int(text[3], 16) & 3]}{text[4:7]}-{text[7:19]}"
