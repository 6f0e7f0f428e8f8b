"""A rate limit for each tool of one process."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable

from toolcrib.errors import RateLimited
from toolcrib.middleware.handler import Handler, Middleware
from toolcrib.spec import Call, CallContext, Outcome

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
    starts: dict[str, deque[float]] = {}
    running: dict[str, int] = {}

    def admit(tool: str) -> None:
        now, before = clock(), starts.setdefault(tool, deque())
        # The window is by the start of each call, so a burst cannot pass at its edge.
        while before and before[0] <= now - max(_WINDOW_S, min_interval_ms / 1000):
            before.popleft()
        if concurrent is not None and running.get(tool, 0) >= concurrent:
            raise RateLimited.of(tool, f"has reached its limit of calls at a time: {concurrent}", 1.0)
        recent = [at for at in before if at > now - _WINDOW_S]
        if per_minute is not None and len(recent) >= per_minute:
            raise RateLimited.of(
                tool, f"may be called {per_minute} times a minute", recent[0] + _WINDOW_S - now
            )
        if before and (wait := before[-1] + min_interval_ms / 1000 - now) > 0:
            raise RateLimited.of(tool, f"may be called once in {min_interval_ms} ms", wait)
        before.append(now)

    def rate_limit(following: Handler) -> Handler:
        async def handle(call: Call, ctx: CallContext) -> Outcome:
            admit(call.tool)
            running[call.tool] = running.get(call.tool, 0) + 1
            try:
                return await following(call, ctx)
            finally:
                running[call.tool] -= 1

        return handle

    return rate_limit
