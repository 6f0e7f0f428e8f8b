"""The one path from a Call to a Result; nothing else runs a tool.

resolve → authorise → validate input → approve → middleware → attempt loop → executor → normalise →
validate output → record
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from time import perf_counter
from typing import Any

from toolcrib.core.attempt import check_snooze, decide_on
from toolcrib.core.bound import Bound, plan_of
from toolcrib.core.context import FOR_GOOD, Context, current
from toolcrib.core.controls import Controls, Proceed, plain_controls
from toolcrib.core.deadline import begin
from toolcrib.core.decision import Fail, RetryAfter, failure_of
from toolcrib.core.events import EventBus
from toolcrib.core.failures import shorten, to_error
from toolcrib.core.results import check_output, content_blocks, mask_result, normalise, warn_of_created
from toolcrib.errors import Cancelled, DeniedError, ToolcribError, ToolNotFound
from toolcrib.middleware import Handler, Middleware
from toolcrib.spec import Call, CallContext, Clock, Content, Outcome, Result, Retry
from toolcrib.spec.calls.content import blocks_of, content_of, media_type_of
from toolcrib.spec.naming import nearest

_MAY_HOLD_CONTENT = frozenset((Content, list, tuple))
_VALUE_ONLY = Outcome()
"""The outcome of a tool that gives nothing beside its value."""


class SystemClock:
    """The machine's own time."""

    def now(self) -> float:
        """Return monotonic seconds."""
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        """Wait."""
        await asyncio.sleep(seconds)


class Pipeline:
    """The call path over a table of bound tools."""

    def __init__(
        self,
        bound: Mapping[str, Bound],
        *,
        controls: Controls | None = None,
        clock: Clock | None = None,
        safe_retry: Retry | None = None,
        missing: Callable[[str], ToolcribError | None] | None = None,
    ) -> None:
        self._bound = bound
        self._controls = controls or plain_controls()
        self.bus = EventBus(self._controls.mask)
        self._clock = clock or SystemClock()
        self._safe_retry = safe_retry or Retry(max_attempts=2)
        self._missing = missing
        self.middleware: tuple[Middleware, ...] = ()
        """Wrappers around every call, the outermost first."""
        self._handler: Callable[[Call, CallContext], Awaitable[Any]] = self._attempts
        # Never changed later: a call of another thread must not meet a path without its approval.
        self._approved: Proceed = self._run
        for step in reversed(self._controls.approve):
            self._approved = step(self._approved)

    def use(self, middleware: Middleware) -> None:
        """Put a middleware inside those already there."""
        self.middleware = (*self.middleware, middleware)
        self._wrap()

    def _wrap(self) -> None:
        handler: Handler = self._outcome
        for wrap in reversed(self.middleware):
            handler = wrap(handler)
        self._handler = handler

    def under(
        self, controls: Controls, safe_retry: Retry, missing: Callable[[str], ToolcribError | None]
    ) -> Pipeline:
        """Return a path over the same tools under these controls, without middleware."""
        return Pipeline(
            self._bound, controls=controls, clock=self._clock, safe_retry=safe_retry, missing=missing
        )

    def over(self, bound: Mapping[str, Bound]) -> Pipeline:
        """Return the same path, controls and middleware over another table of tools."""
        clock, retry = self._clock, self._safe_retry
        other = Pipeline(bound, controls=self._controls, clock=clock, safe_retry=retry, missing=self._missing)
        other.bus, other.middleware = self.bus, self.middleware
        other._wrap()
        return other

    async def invoke(self, call: Call) -> Result:
        """Run one call. Tool failures and refusals come back in the result; cancellation passes through."""
        ctx = call if isinstance(call, Context) else Context.of(call)
        ctx.received = perf_counter()
        ctx.bus = self.bus
        if ctx.on_event is not None or self.bus.subscriptions:
            self.bus.begin(ctx)
        try:
            self.admit(ctx)
            result = self._planned(ctx) if ctx.dry_run else await self._approved(ctx)
        except Exception as error:
            result = ctx.failed(to_error(error))
        except asyncio.CancelledError as stopped:
            if FOR_GOOD in stopped.args:
                ctx.stored = False
            # Recorded like any other end: the tool may have acted before it was stopped.
            self._end(ctx, ctx.failed(Cancelled()), cancelled=True)
            raise
        return self._end(ctx, result)

    def admit(self, ctx: Context, bound: Bound | None = None) -> None:
        """Find the tool and check caller and arguments. Raises the reason why the call may not be made.

        `bound` is a tool that another process runs.
        """
        bound = bound or self._bound.get(ctx.tool)
        if bound is None:
            raise self.unknown(ctx.tool, ctx)
        ctx.bound = bound
        # First: errors about arguments would show the schema to a caller who may not use the tool.
        for check in self._controls.authorise:
            check(ctx)
        ctx.arguments = bound.arguments.check(ctx.arguments)
        for check in self._controls.require:
            check(ctx)

    def _planned(self, ctx: Context) -> Result:
        """Return the plan of a call as its result. Nothing is run, counted or recorded."""
        if self._controls.plan is not None:
            plan = self._controls.plan(ctx)
        else:
            tool = ctx.bound.tool
            asks = ctx.bound.approval_reason
            plan = {
                **plan_of(tool, dict(ctx.arguments)),  # type: ignore[arg-type]  # checked: a mapping
                "permissions": tool.permissions.as_json(),
                "approval": asks,
                "policy": "allow" if asks is None else "ask",
            }
        return Result("ok", plan, details={"dryRun": True}, call_id=ctx.call_id)

    async def _run(self, ctx: Context) -> Result:
        """Run an approved call: middleware, attempts, and its outcome as a result."""
        # Writes the start into the audit log; if that fails, the call is refused and nothing runs.
        if self._controls.start is not None:
            self._controls.start(ctx)
        ctx.started = perf_counter()
        if ctx.on_run is not None:
            ctx.on_run()
        token = current.set(ctx)
        try:
            # The context is the call as well. A middleware may pass on another call with it.
            value, outcome = await self._handler(ctx, ctx), _VALUE_ONLY
            if value.__class__ is Outcome:
                outcome, value = value, value.value
            blocks, warnings = outcome.blocks, outcome.warnings
            if value.__class__ is bytes:
                # Masked now: in the Base64 of a content block, no mask recognises a secret.
                value = value if ctx.redactor is None else ctx.redactor.redact(value)
                value = content_of(value, media_type_of(value))
            if value.__class__ in _MAY_HOLD_CONTENT and (found := blocks_of(value)):
                blocks, value = found, {"content": list(found)}
            elif ctx.bound.output.format == "content" and not blocks:
                blocks = content_blocks(value)
                value = {"content": list(blocks)}
            value = normalise(value)
            accepts = ctx.bound.accepts
            if accepts is not None and not accepts(value):
                warnings += check_output(ctx.bound, value, self._controls.mask)
        except Exception as error:
            return ctx.failed(to_error(error))
        finally:
            current.reset(token)
        took = (perf_counter() - ctx.received) * 1000
        return Result(
            "ok", value, None, warnings, outcome.details, took, ctx.attempt, ctx.snoozes, ctx.call_id, blocks,
            ctx.bound.text_limit
        )  # fmt: skip

    async def _outcome(self, call: Call, ctx: CallContext) -> Outcome:
        """Run the attempts and return their outcome, as a middleware gets it."""
        got = await self._attempts(call, ctx)
        return got if got.__class__ is Outcome else Outcome(got)

    async def _attempts(self, call: Call, ctx: CallContext) -> Outcome | Any:
        """Run attempts until one returns its outcome or value, or decides that the call has failed."""
        assert isinstance(ctx, Context)
        if call is not ctx and call.arguments != ctx.arguments:
            call = self._changed(call, ctx)
        if ctx.follows is not None and not ctx.single:  # A middleware repeats what has failed.
            ctx.attempt += 1
        bound = ctx.bound
        idle_left = None if bound.idle_ms is None else ctx.idle_left
        while True:
            ctx.started = ctx.reported = perf_counter()
            try:
                at_once, got = begin(bound.executor.run(call, ctx), ctx.seconds_left, idle_left)
                return got if at_once else await got
            except BaseException as error:
                ended = decide_on(error, ctx, self._safe_retry)
            # A durable call: its dispatcher stores the decision and makes the next attempt.
            if ctx.single:
                ctx.follows = ended
                raise failure_of(ended)
            if isinstance(ended, Fail):
                ctx.follows = ended
                raise ended.error
            if isinstance(ended, RetryAfter):
                ctx.attempt += 1
                # The number of attempts is small, so an instant retry needs no sleep. A snooze always sleeps,
                # even for 0 seconds, so that a tool that snoozes again and again lets other tasks run.
                if ended.seconds == 0:
                    continue
            else:
                check_snooze(ctx, ended)
                ctx.snoozes += 1
            await self._clock.sleep(ended.seconds)

    @staticmethod
    def _changed(call: Call, ctx: Context) -> Call:
        """Return a call whose arguments a middleware has changed, checked again."""
        if ctx.permit is not None or ctx.approved_by is not None:
            raise DeniedError("a middleware changed the arguments that a person approved")
        return replace(call, arguments=ctx.bound.arguments.check(call.arguments))

    def _end(self, ctx: Context, result: Result, *, cancelled: bool = False) -> Result:
        """Record the result and publish the end of the call."""
        result = self._record(ctx, result)
        if ctx.on_event is not None or self.bus.subscriptions:
            self.bus.end(ctx, result, cancelled=cancelled)
        # A thread of the tool can outlive its call; nobody gets what it still reports.
        ctx.bus = None
        return result

    def _record(self, ctx: Context, result: Result) -> Result:
        """Return the result with secrets masked, once it is recorded; else the reason why it cannot be."""
        controls = self._controls
        if ctx.created:
            warn_of_created(result, ctx.created)
        # The error may quote lines of the user's files, which do not go to an agent or over the network.
        if result.error is not None and not ctx.is_own:
            from toolcrib.manifest import hide_lines

            hide_lines(result.error)
        if controls.mask is not None:
            # Masked before it is kept, so that an output on the disk contains no secret either.
            mask_result(result, controls.mask)
            if controls.keep is not None and result.error is None and not ctx.replayed:
                controls.keep(ctx, result)
        elif result.error is not None:
            shorten(result.error)
        if controls.record is None or ctx.dry_run:
            return result
        try:
            controls.record(ctx, result)
        except ToolcribError as error:
            # The tool may have run, but a call without a record is not a success: the caller gets no value.
            result = ctx.failed(error)
        if controls.hide is not None and result.error is not None:
            controls.hide(result.error, ctx.identity)
        return result

    def unknown(self, name: str, ctx: Context | None = None) -> ToolcribError:
        """Return why there is no such tool: its manifest is wrong, or the name is.

        The reason and the nearest name are only for a caller who may see that tool.
        """
        identity = None if ctx is None else ctx.identity
        covered = identity is None or identity.covers(name)
        error = self._missing(name) if self._missing is not None and covered else None
        if error is not None:
            return error
        # A tool of an MCP server is often called by its own name, without the server's.
        close = next((one for one in self._bound if one.endswith(f"__{name}")), None)
        close = close or nearest(name, self._bound)
        if close and ctx is not None:
            visible = self._controls.visible(self._bound[close].tool, ctx.caller, ctx.identity)
            close = close if visible else None
        return ToolNotFound(
            f"there is no tool named {name!r}",
            hint=f"Did you mean {close}?" if close else "List the tools to see what there is.",
            details={"nearest": close} if close else {},
        )
