"""The time by which approvals, tokens and recorded results expire. It never goes back.

A clock that is set back would make valid again what has expired, or last longer. So the latest time that was
ever seen is kept in the user's own folder, with the machine's uptime at that moment. Until the machine is
restarted, time passes at least as fast as its uptime, whatever the clock says; after that it continues from
the latest time seen.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from toolcrib.errors import StateUnavailable
from toolcrib.state.private import read_private, write_private
from toolcrib.state.process import boot_id, uptime

_KEEP_EVERY_S = 60.0


class ForwardClock:
    """Returns seconds since the epoch, never less than any process of this user has seen.

    `data` is the user's data folder, as in `Vault.data`. `wall` is the machine's clock, and `running` its
    uptime. If the clock was once set far ahead by mistake, remove the file `latest-time` in that folder.
    """

    def __init__(
        self,
        data: Path,
        *,
        wall: Callable[[], float] = lambda: time.time(),  # noqa: PLW0108 - tests replace `time.time`
        running: Callable[[], float] = uptime,
    ) -> None:
        self._path = data / "latest-time"
        self._wall = wall
        self._running = running
        self._kept = float("-inf")
        self._ahead = float("-inf")
        """The latest time less the uptime at which it was seen."""

    def __call__(self) -> float:
        """Return the time now."""
        running = self._running()
        now = max(self._wall(), self._ahead + running)
        if now - self._kept >= _KEEP_EVERY_S:
            now = self._keep(now, running)
        self._ahead = now - running
        return now

    def _keep(self, now: float, running: float) -> float:
        """Return the time, at least that in the file, and write it there."""
        known = read_private(self._path)
        if isinstance(known, dict) and isinstance(seen := known.get("time"), int | float):
            # The uptime of an earlier boot says nothing about the time since.
            since = known.get("uptime", running) if known.get("boot") == boot_id() else running
            now = max(now, seen + max(0.0, running - since))
        with suppress(StateUnavailable):  # This process still knows it.
            write_private(self._path, {"time": now, "boot": boot_id(), "uptime": running})
            self._kept = now
        return now
