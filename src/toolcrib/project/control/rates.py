"""Rates: how often a tool is called, and how many of its calls run at a time."""

from __future__ import annotations

from collections.abc import Awaitable

from toolcrib.core.context import Context
from toolcrib.core.controls import Proceed
from toolcrib.project.control.store import DecisionStore
from toolcrib.spec import Limits, Result


class RateStep:
    """Refuses a call that comes too soon. `limits` are the project's own, for all its tools."""

    def __init__(self, store: DecisionStore, limits: Limits) -> None:
        self._store = store
        self._limits = limits

    def __call__(self, proceed: Proceed) -> Proceed:
        """Put this step before the rest of the path."""
        every_tool = _is_rated(self._limits)

        def step(ctx: Context) -> Awaitable[Result]:
            limits = ctx.bound.tool.limits
            is_limited = every_tool or _is_rated(limits)
            return self._limited(ctx, limits, proceed) if is_limited else proceed(ctx)

        return step

    async def _limited(self, ctx: Context, own: Limits, proceed: Proceed) -> Result:
        lease = self._store.rates.acquire(
            ctx.tool,
            per_minute=_smaller(own.calls_per_minute, self._limits.calls_per_minute),
            min_interval_ms=own.min_interval_ms,
            concurrency=_smaller(own.concurrent_calls, self._limits.concurrent_calls),
        )
        with lease:
            return await proceed(ctx)


def _is_rated(own: Limits) -> bool:
    return (own.calls_per_minute, own.min_interval_ms, own.concurrent_calls) != (None, None, None)


def _smaller(*limits: int | None) -> int | None:
    return min((limit for limit in limits if limit is not None), default=None)
