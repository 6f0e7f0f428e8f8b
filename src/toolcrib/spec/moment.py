"""Points in time as text."""

from __future__ import annotations

from datetime import UTC, datetime
from functools import lru_cache
from typing import overload

_LAST = 253_402_300_799.0
"""The end of the year 9999."""


@overload
def written(seconds: float) -> str: ...
@overload
def written(seconds: float | None) -> str | None: ...
def written(seconds: float | None) -> str | None:
    """Write seconds since the epoch in UTC, RFC 3339 with milliseconds: `2025-01-09T15:00:10.000Z`.

    The text sorts as the time does.
    """
    if seconds is None:
        return None
    # RFC 3339 has years of four digits, and `datetime` raises for times that are too far away.
    moment = datetime.fromtimestamp(min(max(seconds, 0.0), _LAST), UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def written_ns(nanoseconds: int) -> str:
    """Write nanoseconds since the epoch as `written` does; quick for many times of the same seconds."""
    seconds, rest = divmod(nanoseconds, 1_000_000_000)
    return f"{_of_second(seconds)}{rest // 1_000_000:03}Z"


@lru_cache(1_024)
def _of_second(seconds: int) -> str:
    return written(float(seconds))[: -len("000Z")]
