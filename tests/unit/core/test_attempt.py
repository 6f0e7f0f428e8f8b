"""One attempt: its outcome, or the decision on what happens next."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from toolcrib import Context, Retry, RetryableError, ToolCancel, ToolDiscard, Toolset, ToolSnooze
from toolcrib.core.attempt import AttemptPolicy, decide
from toolcrib.core.decision import AttemptDecision, Cancel, Discard, Fail, RetryAfter, SnoozeFor
from toolcrib.errors import DeniedError, HttpFailed, TimedOut, ToolFailed
from toolcrib.spec import Result

ONE, THREE = Retry(), Retry(max_attempts=3)
JITTER = Retry(max_attempts=6, jitter=0.5)
FIXED = Retry(max_attempts=3, jitter=0.5, backoff_ms=1500)
DOUBLED = Retry(max_attempts=100, base_ms=500)
BUSY = HttpFailed("503", retryable=True, details={"retryAfterS": 7})


@pytest.mark.parametrize(
    ("error", "policy", "attempt", "expected"),
    [
        (OSError("no"), AttemptPolicy(ONE), 1, "tool_failed"),
        (OSError("no"), AttemptPolicy(THREE), 1, RetryAfter(0)),
        (OSError("no"), AttemptPolicy(THREE), 2, RetryAfter(0)),
        (OSError("no"), AttemptPolicy(THREE), 3, "tool_failed"),
        (ToolFailed("no"), AttemptPolicy(THREE), 2, RetryAfter(0)),
        (OSError("no"), AttemptPolicy(JITTER), 1, RetryAfter(0.5)),
        (OSError("no"), AttemptPolicy(JITTER), 3, RetryAfter(40.5)),
        (OSError("no"), AttemptPolicy(FIXED), 2, RetryAfter(1.5)),
        (RetryableError("busy"), AttemptPolicy(ONE), 1, RetryAfter(0)),
        (RetryableError("busy"), AttemptPolicy(ONE), 2, "tool_failed"),
        (RetryableError("busy"), AttemptPolicy(ONE, call_attempts=5), 4, RetryAfter(0)),
        (RetryableError("busy"), AttemptPolicy(THREE), 2, RetryAfter(0)),
        (BUSY, AttemptPolicy(THREE), 1, RetryAfter(7)),
        (BUSY, AttemptPolicy(DOUBLED), 1, RetryAfter(7)),
        (BUSY, AttemptPolicy(Retry(2, backoff_ms=9000)), 1, RetryAfter(9)),
        (BUSY, AttemptPolicy(ONE), 1, "http_failed"),
        (HttpFailed("400"), AttemptPolicy(THREE), 1, "http_failed"),
        (TimedOut(), AttemptPolicy(THREE), 1, "timed_out"),
        (TimedOut(), AttemptPolicy(THREE, retries_timeouts=True), 1, RetryAfter(0)),
        (DeniedError("not yours"), AttemptPolicy(THREE), 1, "denied"),
        (ToolSnooze(30), AttemptPolicy(ONE), 1, SnoozeFor(30)),
        (ToolSnooze(30), AttemptPolicy(THREE), 9, SnoozeFor(30)),
    ],
    ids=str,
)
def test_the_decision_follows_from_error_policy_and_attempt(
    error: Exception, policy: AttemptPolicy, attempt: int, expected: AttemptDecision | str
) -> None:
    decision = decide(error, policy, attempt, 0.0)
    if isinstance(expected, str):
        assert isinstance(decision, Fail)
        assert decision.error.code == expected
    else:
        assert decision == expected


def test_the_tools_own_word_ends_the_call() -> None:
    cancelled = decide(ToolCancel("no login"), AttemptPolicy(THREE), 1, 0.0)
    discarded = decide(ToolDiscard("no user id"), AttemptPolicy(THREE), 1, 0.0)

    assert isinstance(cancelled, Cancel)
    assert isinstance(discarded, Discard)
    assert (cancelled.error.code, discarded.error.code) == ("tool_cancelled", "invalid_input")


def test_chance_spreads_the_delay_over_its_jitter() -> None:
    delays = [decide(OSError(), AttemptPolicy(JITTER), 2, chance) for chance in (0.0, 0.5, 1.0)]

    assert delays == [RetryAfter(8), RetryAfter(16), RetryAfter(24)]


async def attempt(
    function: Callable[..., Any], arguments: dict[str, Any] | None = None, **options: Any
) -> tuple[Result, Context]:
    """Make one attempt of a call, and return its result and its context."""
    tools = Toolset()
    tools.register("tool", function, **options)
    ctx = Context("tool", arguments or {})
    ctx.single = True
    return await tools.invoke(ctx), ctx


async def test_an_attempt_runs_once_and_never_sleeps() -> None:
    tried: list[int] = []

    async def snoozing() -> None:
        tried.append(1)
        raise ToolSnooze(1_000)

    _, ctx = await attempt(snoozing, retry=Retry(max_attempts=2))
    assert ctx.follows == SnoozeFor(1_000)
    assert (tried, ctx.attempt, ctx.snoozes) == ([1], 1, 0)


async def test_an_attempt_has_an_outcome_or_times_out() -> None:
    async def tool(seconds: float = 0) -> str:
        await asyncio.sleep(seconds)
        return "done"

    result, ctx = await attempt(tool, timeout_ms=60_000)
    assert (result.value, ctx.follows) == ("done", None)
    _, ctx = await attempt(tool, {"seconds": 60}, timeout_ms=20)
    assert isinstance(ctx.follows, Fail)
    assert ctx.follows.error.code == "timed_out"


async def test_a_report_puts_off_the_idle_limit_but_not_the_absolute_one() -> None:
    async def tool(context: Context, *, reports: bool) -> None:
        while reports:
            for report in (partial(context.progress, 1), partial(context.chunk, "x")):
                context.reported -= 60  # A minute of silence before each report.
                assert context.idle_left() < 0
                report()
                assert context.idle_left() > 0
            await asyncio.sleep(0.001)
        await asyncio.sleep(60)

    for reports, timeout_ms, idle_ms, limit in (
        (False, 60_000, 20, "limits.idle_ms"),
        (True, 50, 50_000, "the tool's limit"),
    ):
        _, ctx = await attempt(tool, {"reports": reports}, timeout_ms=timeout_ms, idle_ms=idle_ms)
        assert isinstance(ctx.follows, Fail)
        assert (ctx.follows.error.code, ctx.follows.error.details["limit"]) == ("timed_out", limit)


async def test_what_is_reported_at_the_end_does_not_change_the_limit_that_is_named() -> None:
    async def tool(context: Context) -> None:
        try:
            await asyncio.sleep(600)
        finally:
            context.progress(1)

    _, ctx = await attempt(tool, timeout_ms=60_000, idle_ms=20)
    assert isinstance(ctx.follows, Fail)
    assert ctx.follows.error.details["limit"] == "limits.idle_ms"


def test_a_base_is_doubled_and_chance_spreads_the_delay_from_nothing_to_all_of_it() -> None:
    delays = [
        decide(OSError(), AttemptPolicy(DOUBLED), attempt, chance)
        for attempt, chance in ((1, 0.0), (1, 1.0), (2, 1.0), (4, 0.5), (99, 1.0))
    ]
    assert delays == [RetryAfter(0), RetryAfter(0.5), RetryAfter(1), RetryAfter(2), RetryAfter(86_400)]
