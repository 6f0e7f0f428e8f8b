"""A clock for tests: waiting takes no time, and is remembered."""

from __future__ import annotations

import asyncio


class FakeClock:
    """A `Clock` that jumps. Give it to a `Toolset` to see how long it would have waited between attempts."""

    def __init__(self, now: float = 0.0) -> None:
        self._now = now
        self.slept: list[float] = []
        """Every wait asked for, in seconds, in order."""

    def now(self) -> float:
        """Seconds, moved on only by `sleep` and `advance`."""
        return self._now

    async def sleep(self, seconds: float) -> None:
        """Move on by so many seconds. Other tasks get their turn, as they would."""
        self.slept.append(seconds)
        self.advance(seconds)
        await asyncio.sleep(0)

    def advance(self, seconds: float) -> None:
        """Move on by so many seconds."""
        self._now += seconds
