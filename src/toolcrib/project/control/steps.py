"""The steps that a project adds to the path of every call, put together in their order.

The two that only a key or a limit needs, idempotency and rates, are here. Those that refuse a call are in
`checks`, approval is in `approvals.step`, and those that mask and keep what is in a call are in `records`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Any

import orjson

from toolcrib.core.context import Context
from toolcrib.core.controls import Controls, Proceed
from toolcrib.core.decision import RetryAfter, SnoozeFor
from toolcrib.core.results import Mask, mask_result
from toolcrib.errors import Cancelled
from toolcrib.guard import canonical
from toolcrib.project.control.approvals.step import ApprovalStep
from toolcrib.project.control.checks import Acceptance, AccessControl, ApprovedCode, Pins
from toolcrib.project.control.first_use import FirstUse
from toolcrib.project.control.records import CallAudit, KeptOutputs, SecretsStep, was_refused
from toolcrib.project.control.store import DecisionStore
from toolcrib.project.integrity.fingerprints import Fingerprints
from toolcrib.project.setup import Setup
from toolcrib.spec import Call, Limits, Result, Tool
from toolcrib.state import ask, take


class ProjectSteps:
    """The steps of one project. `controls` is what its call path takes.

    `parts` returns the tools that a tool calls, `find` the tool of a name.
    """

    def __init__(
        self,
        setup: Setup,
        store: DecisionStore,
        acceptance: Acceptance,
        parts: Callable[[Tool], Sequence[Tool]],
        find: Callable[[str], Tool],
    ) -> None:
        self.store = store
        config, log, root = setup.config, setup.audit, setup.place.root
        fingerprints = Fingerprints(root, parts)
        self.fingerprint = fingerprint = fingerprints.of
        self.pins = pins = Pins(root, fingerprint, config.started)
        code = ApprovedCode(fingerprint, setup.snapshots, pins)
        limits = Limits(calls_per_minute=config.calls_per_minute, concurrent_calls=config.concurrency)
        self.access = AccessControl(config.policy, store.tokens)
        self.secrets = SecretsStep(setup.secrets)
        mask = self.secrets.mask
        self.first_use = first_use = FirstUse(setup, fingerprints, find, acceptance, pins, mask)
        self.plan: Callable[[Call], dict[str, Any]] = lambda _: {}
        """Returns the plan of a dry run."""
        audit = CallAudit(log, self.secrets)
        self.outputs = KeptOutputs(setup.vault)
        self.approval = ApprovalStep(self.access, first_use, store, code, log)
        self.controls = Controls(
            visible=self.access.visible,
            authorise=(self.access.authorise, acceptance.require),
            require=(audit.ensure, code.require_pinned),
            # The first one is outermost. A repeated key gets its result without a question; a call that is
            # not approved gets no secrets and counts for no rate; `code` looks again after all that waits.
            approve=(
                IdempotencyStep(store, self.access, mask),
                self.approval,
                self.secrets,
                RateStep(store, limits),
                code,
            ),
            plan=lambda ctx: self.plan(ctx),  # noqa: PLW0108 - set below
            start=audit.start,
            mask=mask,
            keep=self.outputs.keep,
            record=audit.record,
        )


class IdempotencyStep:
    """Keeps the masked result of the first call with a key. A call that did not run leaves the key free."""

    def __init__(self, store: DecisionStore, access: AccessControl, mask: Mask) -> None:
        self._store, self._access, self._mask = store, access, mask

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
            await self._end(ctx, key, None)
            raise
        except asyncio.CancelledError:
            # A call that has begun may have acted already, so its key stays used. A durable one is handed on
            # with it.
            await self._end(ctx, key, ctx.failed(Cancelled()) if ctx.started and not ctx.single else None)
            raise
        await self._end(ctx, key, result)
        return result

    async def _earlier(self, ctx: Context, key: str) -> Result | None:
        """Return the result of the first call with this key; None if this call is the first."""
        assert isinstance(ctx.arguments, Mapping)
        tool = ctx.bound.tool
        recorded = await self._store.recorded.wait(
            key,
            tool=tool.name,
            caller=ctx.caller,
            arguments=canonical(dict(ctx.arguments)),
            repeatable=bool(tool.annotations.idempotent or tool.annotations.read_only),
            # A caller waits for the first call at most as long as a call of its own may take.
            timeout_s=ctx.limit_ms / 1000,
            # The next attempt of a durable call takes over the key of an attempt whose process died.
            call=ctx.call_id if ctx.single else None,
        )
        return None if recorded is None else Result.from_dict(orjson.loads(recorded))

    async def _end(self, ctx: Context, key: str, result: Result | None) -> None:
        """Keep the result of a call that ran; give the key back otherwise."""
        # It has not ended: the next attempt comes with the same key.
        again = isinstance(ctx.follows, RetryAfter | SnoozeFor)
        if result is None or again or result.status == "pending" or was_refused(ctx, result):
            end: Callable[[], object] = partial(self._store.recorded.abandon, key, ctx.caller)
        else:
            # Masked before it is stored: the path masks results only later, and the database keeps this one.
            mask_result(result, self._mask)
            whole = orjson.dumps(result.as_dict())
            end = partial(self._store.recorded.finish, key, ctx.caller, whole)
        await ask(self._store.state, end)


class RateStep:
    """Refuses a call that comes too soon. `limits` are the project's own, for all its tools."""

    def __init__(self, store: DecisionStore, limits: Limits) -> None:
        self._store, self._limits = store, limits

    def __call__(self, proceed: Proceed) -> Proceed:
        """Put this step before the rest of the path."""
        every_tool = _is_rated(self._limits)

        def step(ctx: Context) -> Awaitable[Result]:
            limits = ctx.bound.tool.limits
            is_limited = every_tool or _is_rated(limits)
            return self._limited(ctx, limits, proceed) if is_limited else proceed(ctx)

        return step

    async def _limited(self, ctx: Context, own: Limits, proceed: Proceed) -> Result:
        acquire = partial(
            self._store.rates.acquire,
            ctx.tool,
            per_minute=_smaller(own.calls_per_minute, self._limits.calls_per_minute),
            min_interval_ms=own.min_interval_ms,
            concurrency=_smaller(own.concurrent_calls, self._limits.concurrent_calls),
        )
        lease = await take(self._store.state, acquire, lambda lease: lease.release())
        try:
            return await proceed(ctx)
        finally:
            await ask(self._store.state, lease.release)


def _is_rated(own: Limits) -> bool:
    return (own.calls_per_minute, own.min_interval_ms, own.concurrent_calls) != (None, None, None)


def _smaller(*limits: int | None) -> int | None:
    return min((limit for limit in limits if limit is not None), default=None)
