"""Idempotency: calls with the same key run once; the others get the result of the first."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Mapping

import orjson

from toolcrib.core.context import Context
from toolcrib.core.controls import Proceed
from toolcrib.core.decision import RetryAfter, SnoozeFor
from toolcrib.core.results import Mask, mask_result
from toolcrib.errors import Cancelled
from toolcrib.guard import canonical
from toolcrib.project.control.access import AccessControl
from toolcrib.project.control.audit import was_refused
from toolcrib.project.control.store import DecisionStore
from toolcrib.spec import Result


class IdempotencyStep:
    """Keeps the masked result of the first call with a key. A call that did not run leaves the key free."""

    def __init__(self, store: DecisionStore, access: AccessControl, mask: Mask) -> None:
        self._store = store
        self._access = access
        self._mask = mask

    def __call__(self, proceed: Proceed) -> Proceed:
        """Put this step before the rest of the path."""

        def step(ctx: Context) -> Awaitable[Result]:
            key = ctx.idempotency_key
            return proceed(ctx) if key is None else self._once(ctx, key, proceed)

        return step

    async def _once(self, ctx: Context, key: str, proceed: Proceed) -> Result:
        self._access.judge(ctx)  # A call that is denied now does not get an earlier result either.
        earlier = await self._earlier(ctx, key)
        if earlier is not None:
            ctx.replayed = True
            return earlier
        try:
            result = await proceed(ctx)
        except Exception:
            self._end(ctx, key, None)
            raise
        except asyncio.CancelledError:
            self._end(ctx, key, ctx.failed(Cancelled()) if ctx.started and not ctx.single else None)
            raise
        self._end(ctx, key, result)
        return result

    async def _earlier(self, ctx: Context, key: str) -> Result | None:
        """Return the result of the first call with this key; None if this call is the first."""
        assert isinstance(ctx.arguments, Mapping)
        tool = ctx.bound.tool
        recorded = await self._store.recorded.wait(
            key,
            tool=tool.name,
            caller=ctx.caller,
            tool_digest="",
            arguments=canonical(dict(ctx.arguments)),
            repeatable=bool(tool.annotations.idempotent or tool.annotations.read_only),
            timeout_s=ctx.limit_ms / 1000,
            call=ctx.call_id if ctx.single else None,
        )
        return None if recorded is None else Result.from_dict(orjson.loads(recorded))

    def _end(self, ctx: Context, key: str, result: Result | None) -> None:
        """Keep the result of a call that ran; give the key back otherwise."""
        again = isinstance(ctx.follows, RetryAfter | SnoozeFor)
        if result is None or again or result.status == "pending" or was_refused(ctx, result):
            self._store.recorded.abandon(key, ctx.caller)
        else:
            mask_result(result, self._mask)
            self._store.recorded.finish(key, ctx.caller, orjson.dumps(result.as_dict()))
