"""Rate limits of the tools of one process."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from toolcrib.errors import RateLimited
from toolcrib.middleware.handler import Handler, Middleware
from toolcrib.spec import Call, CallContext, Limits, Outcome

_WINDOW_S = 60.0


def rate_limit_middleware(
    per_minute: int | None = None,
    *,
    min_interval_ms: int = 0,
    concurrent: int | None = None,
    clock: Callable[[], float] = time.monotonic,
) -> Middleware:
    """Refuse calls of a tool that come too often, each tool by itself: `RateLimited` says how long to wait.

    In any 60 seconds at most `per_minute` calls start, each at least `min_interval_ms` after the one before,
    and at most `concurrent` run at a time. `limits` in a manifest or in a project's settings do the same for
    all processes.
    """
    rates = Rates(clock)
    limits = Limits(calls_per_minute=per_minute, min_interval_ms=min_interval_ms, concurrent_calls=concurrent)

    def rate_limit(following: Handler) -> Handler:
        async def handle(call: Call, ctx: CallContext) -> Outcome:
            with rates.counted(call.tool, limits):
                return await following(call, ctx)

        return handle

    return rate_limit


class Rates:
    """The calls of each tool in this process."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._starts: dict[str, deque[float]] = {}
        self._running: dict[str, int] = {}

    @contextmanager
    def counted(self, tool: str, limits: Limits) -> Iterator[None]:
        """Count a call while it runs. Raises `RateLimited` if it comes too soon."""
        self._admit(tool, limits.calls_per_minute, limits.min_interval_ms or 0, limits.concurrent_calls)
        self._running[tool] = self._running.get(tool, 0) + 1
        try:
            yield
        finally:
            self._running[tool] -= 1

    def _admit(self, tool: str, per_minute: int | None, min_interval_ms: int, concurrent: int | None) -> None:
        now, before = self._clock(), self._starts.setdefault(tool, deque())
        # The window is by the start of each call, so a burst cannot pass at its edge.
        while before and before[0] <= now - max(_WINDOW_S, min_interval_ms / 1000):
            before.popleft()
        if concurrent is not None and self._running.get(tool, 0) >= concurrent:
            raise RateLimited.of(tool, f"has reached its limit of calls at a time: {concurrent}", 1.0)
        recent = [at for at in before if at > now - _WINDOW_S]
        if per_minute is not None and len(recent) >= per_minute:
            raise RateLimited.of(
                tool, f"may be called {per_minute} times a minute", recent[0] + _WINDOW_S - now
            )
        if before and (wait := before[-1] + min_interval_ms / 1000 - now) > 0:
            raise RateLimited.of(tool, f"may be called once in {min_interval_ms} ms", wait)
        before.append(now)
