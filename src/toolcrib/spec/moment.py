"""Moments in texts."""

from __future__ import annotations

import time
from typing import overload

__all__ = ["written"]

_LAST = 253_402_300_799.0
"""The end of the year 9999."""


@overload
def written(seconds: float) -> str: ...
@overload
def written(seconds: float | None) -> str | None: ...
def written(seconds: float | None) -> str | None:
    """Seconds since the epoch in UTC, as RFC 3339 has it: `2025-01-09T15:00:10Z`."""
    if seconds is None:
        return None
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(min(max(seconds, 0.0), _LAST)))
