"""Points in time as text."""

from __future__ import annotations

import time
from typing import overload

_LAST = 253_402_300_799.0
"""The end of the year 9999."""


@overload
def written(seconds: float) -> str: ...
@overload
def written(seconds: float | None) -> str | None: ...
def written(seconds: float | None) -> str | None:
    """Write seconds since the epoch in UTC, in the form of RFC 3339: `2025-01-09T15:00:10Z`."""
    if seconds is None:
        return None
    # RFC 3339 has years of four digits, and `gmtime` raises for times that are too far away.
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(min(max(seconds, 0.0), _LAST)))
