"""The decision on what follows a failed attempt of a tool.

An attempt never sleeps and never runs the tool again itself. The decision says what to do, and whoever runs
the call does it: the pipeline waits in memory; a durable queue can write the decision down and come back.
"""

from __future__ import annotations

import random
from time import perf_counter

from toolcrib.core.context import Context
from toolcrib.core.deadline import DeadlineExceeded
from toolcrib.core.decision import AttemptDecision, Cancel, Discard, Fail, RetryAfter, SnoozeFor
from toolcrib.core.failures import own_exception, to_error
from toolcrib.errors import (
    HttpFailed,
    RetryableError,
    TimedOut,
    ToolCancel,
    ToolcribError,
    ToolDiscard,
    ToolFailed,
    ToolSnooze,
)
from toolcrib.spec import Retry, Tool
from toolcrib.spec.record import record

_MAX_SNOOZES = 100
"""Snoozes of one call that waits in memory."""


@record
class AttemptPolicy:
    """The rules for repeating a failed attempt."""

    retry: Retry
    """The rule for regular errors."""
    retries_timeouts: bool = False
    """True if an attempt that timed out is repeated as well."""
    call_attempts: int = 2
    """Attempts that a tool has at least when it says itself that its error is transient."""
    max_wait_s: float = 86_400.0
    """Seconds that a server may ask to wait before the next attempt; if it asks for more, the call fails."""


def decide_on(raised: BaseException, ctx: Context, safe_retry: Retry) -> AttemptDecision:
    """Decide what follows an attempt of this call that raised.

    A function without a rule of its own that an agent's run calls has the attempts of `safe_retry`.

    Raises what comes from outside of the tool: the cancellation of the call, and interrupts.
    """
    error = ctx.timed_out() if isinstance(raised, DeadlineExceeded) else own_exception(raised)
    bound = ctx.bound
    retry = bound.retry
    # `retries_timeouts` is True if the tool has a retry rule of its own, and that rule comes first.
    if ctx.run_id is not None and not bound.retries_timeouts and _is_of_program(bound.tool):
        retry = safe_retry
    policy = AttemptPolicy(retry, bound.retries_timeouts, safe_retry.max_attempts, ctx.limit_ms / 1000)
    return decide(error, policy, ctx.attempt, random.random())  # noqa: S311 - not for secrecy


def decide(error: Exception, policy: AttemptPolicy, attempt: int, chance: float) -> AttemptDecision:
    """Decide what follows attempt number `attempt` (1, 2, …) that ended with this error.

    `chance` from 0 to 1 places the delay within its jitter.
    """
    if isinstance(error, ToolSnooze):
        return SnoozeFor(error.delay, error.reason)
    if isinstance(error, ToolCancel):
        return Cancel(to_error(error))
    if isinstance(error, ToolDiscard):
        return Discard(to_error(error))
    if attempt >= _allowed(error, policy):
        return Fail(to_error(error))
    delay = _backoff(policy.retry, attempt, chance)
    if isinstance(error, HttpFailed):
        asked = float(error.details.get("retryAfterS") or 0.0)
        # A server chooses its Retry-After freely. It must not hold up a call for longer than the call's own
        # limit.
        if asked > policy.max_wait_s:
            return Fail(error)
        delay = max(delay, asked)
    return RetryAfter(min(delay, ToolSnooze.MAX_DELAY_S), to_error(error))


def _is_of_program(tool: Tool) -> bool:
    from toolcrib.manifest import kind_of

    return kind_of(tool).of_program


def check_snooze(ctx: Context, snooze: SnoozeFor) -> None:
    """Refuse a snooze for which a call in memory cannot wait.

    A call snoozes at most 100 times. The functions of this program are trusted with that; all attempts and
    snoozes of any other tool must fit into the limit of the call. Raises ToolFailed and TimedOut.
    """
    if ctx.snoozes >= _MAX_SNOOZES:
        message = f"{ctx.tool} asked more than {_MAX_SNOOZES} times to be tried later, last: {snooze.reason}"
        raise ToolFailed(message, retryable=True)
    if _is_of_program(ctx.bound.tool):
        return
    # Without this, 100 snoozes of a day each would keep the caller waiting for three months.
    ctx.used_s += perf_counter() - ctx.started + snooze.seconds
    if ctx.used_s >= ctx.limit_ms / 1000:
        raise TimedOut(
            f"{ctx.tool} asked to be tried again in {snooze.seconds:g} s ({snooze.reason}), but its limit is"
            f" {ctx.limit_ms} ms ({ctx.limit_source})",
            details={"limitMs": ctx.limit_ms, "limit": ctx.limit_source},
        )


def _allowed(error: Exception, policy: AttemptPolicy) -> int:
    """Return how many attempts a call has in all that ends with this error."""
    attempts = policy.retry.max_attempts
    if isinstance(error, RetryableError):
        return max(attempts, policy.call_attempts)
    if isinstance(error, HttpFailed):
        return attempts if error.retryable else 1
    if isinstance(error, TimedOut):
        # It may have acted before its time was up, so only the tool's own rule can allow that it runs again.
        return attempts if policy.retries_timeouts else 1
    if isinstance(error, ToolcribError) and not isinstance(error, ToolFailed):
        return 1
    return attempts


def _backoff(retry: Retry, attempt: int, chance: float) -> float:
    """Return the seconds to wait after an attempt."""
    if retry.backoff_ms is not None:
        return retry.backoff_ms / 1000
    if retry.base_ms is not None:
        return min(retry.base_ms / 1000 * 2.0 ** (attempt - 1), ToolSnooze.MAX_DELAY_S) * chance
    if retry.jitter <= 0:
        return 0.0
    return float(attempt**4 * (1 - retry.jitter + 2 * retry.jitter * chance))
