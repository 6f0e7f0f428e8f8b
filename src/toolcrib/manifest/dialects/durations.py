"""Durations as Go writes them (`1m30s`, `250ms`), in milliseconds."""

from __future__ import annotations

import re
from typing import Any

_PART = re.compile(r"(\d+(?:\.\d+)?)(ms|us|µs|ns|h|m|s)")
_UNITS = {"h": 3_600_000.0, "m": 60_000.0, "s": 1000.0, "ms": 1.0, "us": 1e-3, "µs": 1e-3, "ns": 1e-6}


def milliseconds(value: Any) -> int | None:
    """Return whole milliseconds, rounded up to 1 if positive; None if the value is not a duration."""
    if not isinstance(value, str) or not re.fullmatch(f"(?:{_PART.pattern})+", value):
        return None
    total = sum(float(number) * _UNITS[unit] for number, unit in _PART.findall(value))
    return max(1, round(total)) if total > 0 else 0
