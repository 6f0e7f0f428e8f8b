"""Time limits of tests, which other work on the machine must not use up."""

from __future__ import annotations

import os
import time
from collections.abc import Callable

GROWING_MS = (500, 4_000, 30_000)
"""Limits to try one after the other where something must have happened before the limit strikes."""
_MOST = 8.0
"""How many times a limit grows: what never comes must not keep a whole run of the tests waiting."""


def patient(seconds: float) -> float:
    """Return a limit in seconds: longer, if the machine has more to do now than it has processors."""
    return seconds * min(max(1.0, 2 * os.getloadavg()[0] / (os.cpu_count() or 1)), _MOST)


def wait_for(
    condition: Callable[[], object], what: str, seconds: float = 30.0, pause_s: float = 0.01
) -> None:
    """Wait until a condition is true; the limit is only for what never comes."""
    began = time.monotonic()
    while not condition():
        assert time.monotonic() - began < patient(seconds), f"{what} never came"
        time.sleep(pause_s)
