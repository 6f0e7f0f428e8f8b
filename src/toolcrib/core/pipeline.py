"""The one path from a Call to a Result; nothing else runs a tool.

resolve → authorise → validate input → approve → middleware → attempt loop → executor → normalise →
validate output → record
"""

from __future__ import annotations

import asyncio
import random
import time
import types
from collections.abc import Callable, Generator, Mapping
from contextlib import suppress
from time import perf_counter
from typing import Any, NamedTuple, Protocol

from toolcrib.core.context import Context, current, heard_on_loop
from toolcrib.errors import (
    ApprovalRequired,
    Cancelled,
    HttpFailed,
    InvalidInput,
    InvalidOutput,
    RetryableError,
    TimedOut,
    ToolCancel,
    ToolCancelled,
    ToolcribError,
    ToolDiscard,
    ToolFailed,
    ToolNotFound,
    ToolSnooze,
    UsageError,
    Violation,
)
from toolcrib.middleware import Handler, Middleware
from toolcrib.schema import ArgumentCheck, to_json
from toolcrib.spec import Call, CallContext, Caller, Clock, Executor, Outcome, Result, Retry, Tool
from toolcrib.spec.naming import nearest

__all__ = ["Bound", "Gate", "Pipeline", "SystemClock", "needs_approval"]

_PLAIN = frozenset({bool, type(None)})
_SMALLEST, _LARGEST = -(2**63), 2**64 - 1
CLEAN_UP_S = 2.0
"""Seconds that a tool which was cancelled at its limit has to clean up before it is cut off."""
_MOST_TOLD = 10_000
"""Characters told of what an exception says."""
_DONE: Any = object()
"""What `next` gives when an attempt ended without ever waiting for anything."""
_Progress = Callable[[float, float | None, str], None]


class Bound(Protocol):
    """A tool made ready to be called."""

    name: str
    check_output: Callable[[Any], list[Any]] | None
    """Gives the violations of an output; None when the tool has no output schema."""
    timeout_ms: int
    timeout_source: str
    retry: Retry
    retries_timeouts: bool
    approval_reason: str | None
    """Why a person must agree to each call; None when nobody must."""
    lenient: bool
    """Whether arguments that do not fit are read once more, a number in a text as that number."""

    @property
    def tool(self) -> Tool:
        """What the tool is."""

    @property
    def executor(self) -> Executor:
        """Runs attempts."""

    @property
    def arguments(self) -> ArgumentCheck:
        """Parses and checks arguments and fills in defaults, or raises `InvalidInput`."""


class Gate(Protocol):
    """What a project adds around each call. A bare toolset has none."""

    def visible(self, tool: Tool, caller: str, identity: Caller | None) -> bool:
        """Whether this caller may know of the tool."""

    def authorise(self, bound: Bound, ctx: Context) -> None:
        """Refuse, with a ToolcribError, a call that this caller may not make whatever the arguments."""

    def admit(self, bound: Bound, ctx: Context) -> Mapping[str, str] | None:
        """Refuse the call, now that its arguments are known, or give the secrets the tool may see.

        None where there is something to wait for first: then `enter` is next.
        """

    async def enter(self, bound: Bound, ctx: Context) -> Result | None:
        """Wait for a person, for the call's turn, for the first call with its key.

        It sets `ctx.secrets`, and `ctx.arguments` where a person has edited them. It gives the result of a
        call that is not to run, or not yet.
        """

    def record(self, bound: Bound | None, ctx: Context, result: Result) -> None:
        """Write down a call that ran or was refused, and let go of what it held; raises when it cannot."""

    def redact(self, value: Any) -> Any:
        """The value with every secret masked."""


class SystemClock:
    """The machine's own time."""

    def now(self) -> float:
        """Monotonic seconds."""
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
        gate: Gate | None = None,
        clock: Clock | None = None,
        call_attempts: int = 2,
        missing: Callable[[str], ToolcribError | None] | None = None,
    ) -> None:
        self._bound = bound
        self._gate = gate
        self._clock = clock or SystemClock()
        self._call_attempts = call_attempts
        self._missing = missing
        self.middleware: tuple[Middleware, ...] = ()
        """What wraps every call, the outermost first."""
        self._handler: Handler | None = None
        """The outermost middleware; None where there is none."""

    def use(self, middleware: Middleware) -> None:
        """Put a middleware inside those already there."""
        self.middleware = (*self.middleware, middleware)
        handler: Handler = self._innermost
        for wrap in reversed(self.middleware):
            handler = wrap(handler)
        self._handler = handler

    def over(self, bound: Mapping[str, Bound]) -> Pipeline:
        """The same path, gate and middleware over another table of tools."""
        other = Pipeline(
            bound,
            gate=self._gate,
            clock=self._clock,
            call_attempts=self._call_attempts,
            missing=self._missing,
        )
        for middleware in self.middleware:
            other.use(middleware)
        return other

    async def invoke(self, call: Call) -> Result:
        """Run one call. Tool failures and refusals come back in the result; cancellation passes through."""
        started = perf_counter()
        ctx: Context = call if isinstance(call, Context) else Context.of(call)
        value: Any = None
        warnings: tuple[str, ...] = ()
        details: dict[str, Any] | None = None
        failure: ToolcribError | None = None
        try:
            bound = self._bound.get(ctx.tool)
            if bound is None:
                raise self.unknown(ctx.tool, ctx)
            ctx.bound = bound
            if self._must_wait(bound, ctx):
                assert self._gate is not None
                early = await self._gate.enter(bound, ctx)
                if early is not None:
                    return self._recorded(self._gate, ctx, early)
            ctx.started = started
            token = current.set(ctx)
            try:
                if self._handler is not None:
                    value = await self._handler(ctx, ctx)
                else:
                    begun = self._begin(ctx, ctx)
                    if begun is not None:
                        await self._attempts(ctx, ctx, begun)
                    value = ctx.outcome
            finally:
                current.reset(token)
            kind = value.__class__
            if kind is Outcome:
                value, warnings, details = value.value, value.warnings, value.details
                kind = value.__class__
            if not (
                (kind is str and value.isascii())
                or (kind is int and _SMALLEST <= value <= _LARGEST)
                or kind in _PLAIN
            ):
                value = _as_json(value)
            if bound.check_output is not None:
                warnings += _check_output(bound, value, self._gate)
        except Exception as error:
            value, failure = None, self._failure(error)
        except asyncio.CancelledError:
            if self._gate is not None:
                self._recorded(self._gate, ctx, _cancelled(ctx, started))
            raise
        result = Result.__new__(Result)  # what `__init__` does, at half its cost
        result.status = "ok" if failure is None else "error"
        result.value = value
        result.error = failure
        result.warnings = warnings
        result.details = details
        result.duration_ms = (perf_counter() - started) * 1000
        result.attempts = ctx.attempt
        result.snoozes = ctx.snoozes
        result.call_id = ctx.call_id
        return result if self._gate is None else self._recorded(self._gate, ctx, result)

    def _must_wait(self, bound: Bound, ctx: Context) -> bool:
        """Authorise, validate, approve; whether there is something to wait for before the tool runs."""
        gate = self._gate
        if gate is not None:
            gate.authorise(bound, ctx)
        check = bound.arguments.check  # Not a method: it is replaced by a faster one.
        ctx.arguments = check(ctx.arguments)
        if ctx.on_progress is not None:
            ctx.on_progress = heard_on_loop(
                ctx.on_progress if gate is None else _masked_progress(ctx.on_progress, gate)
            )
        if gate is None:
            if bound.approval_reason is not None and ctx.approved_by is None:
                raise needs_approval(bound, bound.approval_reason)
            if ctx.idempotency_key is not None:
                raise UsageError("a toolset keeps no results of calls; a project does")
            return False
        secrets = gate.admit(bound, ctx)
        if secrets is None:
            return True
        ctx.secrets = secrets
        return False

    def _failure(self, error: Exception) -> ToolcribError:
        """What an exception is told as; with a gate it is masked before it is cut."""
        failure = _from_exception(error)
        if self._gate is None:
            _shorten(failure)
        return failure

    def _recorded(self, gate: Gate, ctx: Context, result: Result) -> Result:
        """The result with secrets masked, once it is recorded; the reason why not if it cannot be."""
        _redact(result, gate.redact)
        if result.error is not None:
            _shorten(result.error)
        try:
            gate.record(ctx.bound, ctx, result)
        except ToolcribError as error:
            return Result("error", None, error, duration_ms=result.duration_ms, call_id=result.call_id)
        return result

    def unknown(self, name: str, ctx: Context | None = None) -> ToolcribError:
        """Why there is no such tool: its manifest is wrong, or the name is. Hidden names are not told."""
        error = self._missing(name) if self._missing is not None else None
        if error is not None:
            return error
        close = nearest(name, self._bound)
        if close and ctx is not None and self._gate is not None:
            close = close if self._gate.visible(self._bound[close].tool, ctx.caller, ctx.identity) else None
        return ToolNotFound(
            f"there is no tool named {name!r}",
            hint=f"Did you mean {close}?" if close else "List the tools to see what there is.",
            details={"nearest": close} if close else {},
        )

    async def _innermost(self, call: Call, ctx: CallContext) -> Outcome:
        """The attempts as a middleware sees them: their time starts now, and they give an `Outcome`."""
        assert isinstance(ctx, Context)
        ctx.started = perf_counter()
        begun = self._begin(call, ctx)
        if begun is not None:
            await self._attempts(call, ctx, begun)
        return ctx.outcome if isinstance(ctx.outcome, Outcome) else Outcome(ctx.outcome)

    def _begin(self, call: Call, ctx: Context) -> _Begun | None:
        """Begin an attempt; None if that was all. Its outcome is in the context then."""
        steps = _attempt(call, ctx).__await__()
        try:
            waits_for = next(steps, _DONE)
        except GeneratorExit as error:  # The tool's own: nobody drops a call that has not waited yet.
            return _Begun(delay=self._decide(ctx, _failed(error)))
        except BaseException as error:
            return _Begun(delay=self._decide(ctx, error))
        return None if waits_for is _DONE else _Begun(steps, waits_for)

    async def _attempts(self, call: Call, ctx: Context, begun: _Begun | None) -> None:
        """The attempt loop, from the first attempt on that did not end well at once.

        The timer of an attempt is armed here, so only when the tool first suspends.
        """
        while begun is not None:
            steps, waits_for, delay = begun
            if steps is not None:
                try:
                    await _within(steps, waits_for, ctx)
                    return
                except BaseException as error:
                    delay = self._decide(ctx, error)
            if delay is not None:
                await self._clock.sleep(delay)
            ctx.started = perf_counter()
            begun = self._begin(call, ctx)

    def _decide(self, ctx: Context, raised: BaseException) -> float | None:
        """Seconds until the next attempt (None: at once), or the error that ends the call."""
        error = raised if isinstance(raised, Exception) else _own_failure(raised)
        if isinstance(error, ToolSnooze):
            ctx.snoozes += 1
            return error.delay
        bound: Bound = ctx.bound
        allowed = bound.retry.max_attempts
        if isinstance(error, RetryableError):
            allowed = max(allowed, self._call_attempts)
        elif isinstance(error, HttpFailed):
            allowed = allowed if error.retryable else 1
        elif isinstance(error, TimedOut):
            allowed = allowed if bound.retries_timeouts else 1
        elif isinstance(error, (ToolCancel, ToolDiscard)) or (
            isinstance(error, ToolcribError) and not isinstance(error, ToolFailed)
        ):
            allowed = 1
        if ctx.attempt >= allowed:
            final = _from_exception(error)
            raise final from error if final is not error else None
        delay = _backoff(bound.retry, ctx.attempt)
        if isinstance(error, HttpFailed):
            delay = max(delay, float(error.details.get("retry_after_s") or 0.0))
        ctx.attempt += 1
        return delay or None


class _Begun(NamedTuple):
    """An attempt that waits for something, or failed and is to be made again."""

    steps: Generator[Any, Any, None] | None = None
    waits_for: Any = None
    delay: float | None = None


async def _attempt(call: Call, ctx: Context) -> None:
    """One attempt, its outcome left in the context: a coroutine that returns nothing can be driven by `next`,
    which is much cheaper than catching the `StopIteration` that carries a value."""
    ctx.outcome = await ctx.bound.executor.run(call, ctx)


def needs_approval(bound: Bound, reason: str, **details: Any) -> ApprovalRequired:
    """The refusal of a call that a person must agree to."""
    return ApprovalRequired(
        f"{bound.name} needs a person's approval: {reason}",
        hint=f"A person can run it from a terminal: toolcrib run {bound.name} … --approve",
        details={"reason": reason, **details},
    )


def _backoff(retry: Retry, attempt: int) -> float:
    """Seconds after attempt number `attempt` (1, 2, …)."""
    if retry.backoff_ms is not None:
        return retry.backoff_ms / 1000
    if retry.jitter <= 0:
        return 0.0
    return attempt**4 * random.uniform(1 - retry.jitter, 1 + retry.jitter)  # noqa: S311 - not for secrecy


@types.coroutine
def _resume(
    steps: Generator[Any, Any, None], waits_for: Any, limit: asyncio.Timeout
) -> Generator[Any, Any, None]:
    """Go on with an attempt that has been started by hand; cut off one that goes on long after its time."""
    end: _End | None = None
    try:
        while True:
            try:
                sent = yield waits_for
            except GeneratorExit:  # The call itself is dropped, and nothing of it may go on.
                steps.close()
                raise
            except BaseException as error:
                if end is not None and end.reached():
                    _cut_off(steps)
                    raise
                waits_for = _own(steps.throw, error)
                if end is None and limit.expired():
                    end = _End()
            else:
                waits_for = _own(steps.send, sent)
    except StopIteration:
        return
    finally:
        if end is not None:
            end.disarm()


class _End:
    """The moment at which a tool that was told to stop has had its time to clean up."""

    def __init__(self) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._task = task
        self._passed = False
        self._timer = asyncio.get_running_loop().call_later(CLEAN_UP_S, self._pass)

    def _pass(self) -> None:
        self._passed = True
        self._task.cancel()

    def reached(self) -> bool:
        """Whether the cancellation that just came is this one's; it counts no longer then."""
        if self._passed:
            self._task.uncancel()
        return self._passed

    def disarm(self) -> None:
        """Have nothing happen any more."""
        self._timer.cancel()


def _own(advance: Callable[[Any], Any], value: Any) -> Any:
    """One step of a tool; what it raises as if it were dropped is a failure of its own."""
    try:
        return advance(value)
    except GeneratorExit as error:
        raise _failed(error) from error


def _cut_off(steps: Generator[Any, Any, None]) -> None:
    """End a tool that waits on and on, whatever it makes of that."""
    with suppress(Exception, asyncio.CancelledError):  # RuntimeError: it waits on; nobody wakes it again.
        steps.close()


async def _within(steps: Generator[Any, Any, None], waits_for: Any, ctx: Context) -> None:
    """Let a started attempt come to its end within its limit."""
    limit = asyncio.timeout(ctx.remaining + getattr(ctx.bound.executor, "grace_s", 0.0))
    try:
        async with limit:
            await _resume(steps, waits_for, limit)
    except Exception:
        if not limit.expired():
            raise
    if limit.expired():  # whatever the tool made of being cancelled
        raise ctx.timed_out()


def _own_failure(error: BaseException) -> ToolFailed:
    """What a tool's own SystemExit or the like stands for; raised on if it came from without."""
    if isinstance(error, asyncio.CancelledError):
        task = asyncio.current_task()
        if task is None or task.cancelling():
            raise error
        return ToolFailed("the tool's own work was cancelled")
    if isinstance(error, (KeyboardInterrupt, GeneratorExit)):
        raise error
    if isinstance(error, SystemExit):
        return ToolFailed(f"the tool called sys.exit({error.code!r})")
    return _failed(error)


def _from_exception(error: Exception) -> ToolcribError:
    if isinstance(error, ToolcribError):
        return error
    if isinstance(error, ToolCancel):
        return ToolCancelled(error.reason)
    if isinstance(error, ToolDiscard):
        return InvalidInput(error.reason, details={"raised_by": "tool"})
    if isinstance(error, (RetryableError, ToolSnooze)):
        return ToolFailed(error.reason, retryable=True)
    return _failed(error)


def _failed(error: BaseException) -> ToolFailed:
    return ToolFailed(_told(error), details={"exception": type(error).__name__})


def _told(error: BaseException) -> str:
    """An exception in one line: its type, unless that says nothing, and its message."""
    name = type(error).__name__
    try:
        message = str(error)
    except (Exception, asyncio.CancelledError, GeneratorExit, SystemExit):  # its own `__str__` fails
        message = ""
    if isinstance(error, BaseExceptionGroup):
        message = f"{message}: {'; '.join(_told(inner) for inner in error.exceptions[:5])}"
    if not message:
        return name
    return message if name in ("Exception", "RuntimeError") else f"{name}: {message}"


def _shorten(error: ToolcribError) -> None:
    """Cut a message that has no end; after it was masked, since a part of a secret is not known as one."""
    if len(error.message) > _MOST_TOLD:
        error.message = f"{error.message[:_MOST_TOLD]}…"
        error.args = (error.message,)


def _masked_progress(listener: _Progress, gate: Gate) -> _Progress:
    """The listener, told no secret."""
    return lambda done, total, message: listener(done, total, gate.redact(message))


def _cancelled(ctx: Context, started: float) -> Result:
    took = (perf_counter() - started) * 1000
    return Result("error", None, Cancelled(), (), None, took, ctx.attempt, ctx.snoozes, ctx.call_id)


def _check_output(bound: Bound, value: Any, gate: Gate | None) -> tuple[str, ...]:
    """Warnings about an output that does not fit its schema; `InvalidOutput` where that is a failure."""
    violations = bound.check_output(value) if bound.check_output is not None else []
    if not violations:
        return ()
    if gate is not None and (shown := gate.redact(value)) is not value:
        # What is told of a value is cut, so it is told of the masked one.
        assert bound.check_output is not None
        violations = bound.check_output(shown) or [Violation("$", "does not fit where it holds a secret")]
    told = "; ".join(f"{v.path} {v.message}" for v in violations[:10])
    if bound.tool.output.on_violation == "fail":
        raise InvalidOutput(f"the output does not fit its schema: {told}", violations=violations)
    return (f"the output does not fit its schema: {told}",)


def _redact(result: Result, redact: Callable[[Any], Any]) -> None:
    """Mask secrets in all that a caller sees. Errors are masked in place: they are this call's own."""
    result.value = redact(result.value)
    if result.details is not None:
        result.details = redact(result.details)
    if result.warnings:
        result.warnings = tuple(redact(list(result.warnings)))
    error = result.error
    if error is None:
        return
    error.message = redact(error.message)
    error.args = (error.message,)
    error.hint = redact(error.hint)
    error.details = redact(error.details)
    error.violations = tuple(
        v._replace(path=redact(v.path), message=redact(v.message)) for v in error.violations
    )


def _as_json(value: Any) -> Any:
    """A tool's value as JSON: dataclasses, models, dates, enums, sets and tuples become plain."""
    try:
        return to_json(value)
    except TypeError as error:
        raise ToolFailed(
            f"the tool returned a {type(value).__name__} that is not JSON: {error}",
            hint="Return text, numbers, lists, dicts, dataclasses or pydantic models.",
        ) from None
