"""The call path: attempts and delays, exceptions of tools, time limits, cancellation."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable
from typing import Any

import pytest

from tests.patience import patient
from toolcrib import (
    Context,
    Result,
    Retry,
    RetryableError,
    ToolCancel,
    ToolDiscard,
    Toolset,
    ToolSnooze,
)
from toolcrib.errors import (
    DeniedError,
    HttpFailed,
    ToolcribError,
    ToolFailed,
    UnavailableError,
)
from toolcrib.spec import Annotations
from toolcrib.spec.views import text_view
from toolcrib.testing import FakeClock


class Failing:
    """A tool that raises these one after the other, then gives `done`."""

    def __init__(self, *raises: BaseException) -> None:
        self.raises = list(raises)
        self.tried = 0

    async def __call__(self) -> str:
        self.tried += 1
        if self.raises:
            raise self.raises.pop(0)
        return "done"


async def run(function: Callable[..., Any], *, clock: FakeClock | None = None, **options: Any) -> Result:
    tools = Toolset(clock=clock or FakeClock())
    tools.register("tool", function, **options)
    return await tools.call("tool")


def error_of(result: Result) -> ToolcribError:
    assert result.error is not None, result
    assert result.status == "error"
    assert result.value is None
    return result.error


# -- attempts ----------------------------------------------------------------------------------


async def test_a_plain_function_runs_once() -> None:
    charged: list[int] = []

    def charge() -> None:
        charged.append(1)
        raise OSError("the connection was lost")

    result = await run(charge)

    assert (charged, result.attempts) == ([1], 1)
    assert text_view(result) == "Tool call failed: OSError: the connection was lost"


@pytest.mark.parametrize(
    "options",
    [
        {"idempotent": True},
        {"annotations": Annotations(idempotent=True)},
        {"retry": Retry(max_attempts=2)},
    ],
    ids=str,
)
async def test_a_function_that_may_be_repeated_is_retried_once_at_once(options: dict[str, Any]) -> None:
    clock, tool = FakeClock(), Failing(OSError("no"), OSError("still no"), OSError("never seen"))
    result = await run(tool, clock=clock, **options)

    assert (tool.tried, result.attempts, clock.slept) == (2, 2, [])
    assert error_of(result).code == "tool_failed"
    assert text_view(result) == "Tool call failed: OSError: still no"


async def test_the_second_try_may_succeed() -> None:
    result = await run(Failing(OSError("no")), idempotent=True)

    assert (result.value, result.attempts, result.error) == ("done", 2, None)


async def test_the_toolsets_rule_and_a_tools_own() -> None:
    tools = Toolset(retry=Retry(max_attempts=3))
    three, one = Failing(*[OSError()] * 9), Failing(*[OSError()] * 9)
    tools.register("three", three)
    tools.register("one", one, retry=Retry(max_attempts=1))

    assert ((await tools.call("three")).attempts, three.tried) == (3, 3)
    assert ((await tools.call("one")).attempts, one.tried) == (1, 1)


async def test_with_jitter_the_delay_is_about_the_fourth_power_of_the_attempt() -> None:
    clock, jitter = FakeClock(), 0.1
    await run(Failing(*[OSError()] * 9), clock=clock, retry=Retry(max_attempts=6, jitter=jitter))

    for slept, expected in zip(clock.slept, [1, 16, 81, 256, 625], strict=True):
        assert expected * (1 - jitter) <= slept <= expected * (1 + jitter)


async def test_jitter_differs() -> None:
    slept = set()
    for _ in range(5):
        clock = FakeClock()
        await run(Failing(OSError()), clock=clock, retry=Retry(max_attempts=2, jitter=0.1))
        slept.update(clock.slept)

    assert len(slept) == 5


@pytest.mark.parametrize(
    ("signal", "code", "text"),
    [
        (ToolCancel("authentication failed"), "tool_cancelled", "Cancelled: authentication failed"),
        (ToolDiscard("no user id"), "invalid_input", "Invalid input: no user id"),
        (DeniedError("not yours"), "denied", "Tool call failed: not yours"),
        (UnavailableError("gone"), "unavailable", "Tool call failed: gone"),
    ],
)
async def test_final_errors_are_not_retried(signal: Exception, code: str, text: str) -> None:
    tool = Failing(signal, signal)
    result = await run(tool, retry=Retry(max_attempts=5))

    assert (tool.tried, result.attempts) == (1, 1)
    assert error_of(result).code == code
    assert text_view(result) == text


async def test_a_snooze_waits_and_uses_no_attempt() -> None:
    clock = FakeClock()
    tool = Failing(*[ToolSnooze(30, "rate limit")] * 20, OSError("no"), ToolSnooze(5))
    result = await run(tool, clock=clock, idempotent=True)

    assert (result.value, result.attempts, result.snoozes) == ("done", 2, 21)
    assert clock.slept == [30] * 20 + [5]


async def test_a_call_snoozes_a_hundred_times_and_then_fails_with_the_last_reason() -> None:
    clock, tool = FakeClock(), Failing(*[ToolSnooze(1, "rate limit")] * 999)
    result = await run(tool, clock=clock)

    assert (tool.tried, result.snoozes, sum(clock.slept)) == (101, 100, 100)
    assert (error_of(result).code, error_of(result).retryable) == ("tool_failed", True)
    assert error_of(result).message == "tool asked more than 100 times to be tried later, last: rate limit"


async def test_one_snooze_is_a_day_at_most() -> None:
    clock = FakeClock()
    await run(Failing(ToolSnooze(1e30), ToolSnooze(float("inf")), ToolSnooze(float("nan"))), clock=clock)

    assert clock.slept == [86_400, 86_400, 0]


async def test_a_wait_that_a_server_asks_for_never_passes_the_limit_of_the_call() -> None:
    clock, busy = FakeClock(), HttpFailed("429", retryable=True, details={"retryAfterS": 999_999_999.0})
    tool = Failing(busy, busy)
    result = await run(tool, clock=clock, retry=Retry(max_attempts=3))

    assert (tool.tried, clock.slept, result.error) == (1, [], busy)


@pytest.mark.parametrize("delay", [0, -5])
async def test_a_snooze_without_delay_lets_others_run(delay: float) -> None:
    turns: list[int] = []
    tool = Failing(*[ToolSnooze(delay)] * 10)

    async def other() -> None:
        for turn in range(5):
            turns.append(turn)
            await asyncio.sleep(0)

    result, _ = await asyncio.gather(run(tool), other())

    assert (result.value, result.snoozes, len(turns)) == ("done", 10, 5)


async def test_a_long_snooze_can_be_cancelled() -> None:
    tools = Toolset()

    @tools.tool
    async def never() -> None:
        raise ToolSnooze(3_600)

    call = asyncio.create_task(tools.call("never"))
    await asyncio.sleep(0.01)
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call


@pytest.mark.parametrize("max_attempts", [1, 2])
async def test_a_retryable_error_is_retried_even_if_others_are_not(max_attempts: int) -> None:
    tool = Failing(*[RetryableError("busy")] * 9)
    result = await run(tool, retry=Retry(max_attempts=max_attempts))

    assert tool.tried == 2
    assert error_of(result).retryable
    assert text_view(result) == "Tool call failed: busy"


async def test_an_attempt_knows_its_number() -> None:
    seen: list[int] = []

    async def tool(ctx: Context) -> None:
        seen.append(ctx.attempt)
        raise OSError

    await run(tool, retry=Retry(max_attempts=3))
    assert seen == [1, 2, 3]


# -- what tools raise --------------------------------------------------------------------------


class Odd(BaseException):
    """No Exception at all."""


class Mute(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no words")


@pytest.mark.parametrize(
    ("raised", "says"),
    [
        (ValueError("bad"), "ValueError: bad"),
        (RuntimeError("bad"), "bad"),
        (RuntimeError(), "RuntimeError"),
        (Mute(), "Mute"),
        (SystemExit(3), "3"),
        (StopIteration("x"), "StopIteration"),
        (Odd("odd"), "Odd: odd"),
        (
            ExceptionGroup("two", [ValueError("a"), KeyError("b")]),
            "ExceptionGroup: two (2 sub-exceptions): ValueError: a; KeyError: 'b'",
        ),
        (BaseExceptionGroup("odd", [Odd("a")]), "odd"),
        (asyncio.CancelledError(), ""),
        (TimeoutError("mine"), "TimeoutError: mine"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, BaseException) else "",
)
async def test_every_exception_of_a_tool_is_a_failure_of_the_tool(raised: BaseException, says: str) -> None:
    async def late() -> None:
        await asyncio.sleep(0)
        raise raised

    async def at_once() -> None:
        raise raised

    def plain() -> None:
        raise raised

    for tool, isolation in ((late, "async"), (at_once, "async"), (plain, "thread"), (plain, "inline")):
        result = await run(tool, isolation=isolation, idempotent=True)

        assert error_of(result).code == "tool_failed", (tool, isolation)
        assert says in error_of(result).message, (tool, isolation)
        assert result.attempts == 2, (tool, isolation)


@pytest.mark.parametrize("raised", [KeyboardInterrupt("mine"), GeneratorExit()])
async def test_an_interrupt_raised_in_a_thread_is_only_the_tools(raised: BaseException) -> None:
    def tool() -> None:
        raise raised

    assert type(raised).__name__ in error_of(await run(tool)).message


def test_an_interrupt_on_the_loop_passes_through() -> None:
    async def tool() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        asyncio.run(run(tool))


async def test_a_toolcrib_error_stays_the_same_object() -> None:
    error = ToolFailed("no", hint="fix", details={"n": 1})
    result = await run(Failing(error, error))

    assert result.error is error


# -- time --------------------------------------------------------------------------------------


async def sleeper() -> None:
    await asyncio.sleep(60)


@pytest.mark.parametrize(
    ("toolset_ms", "tool_ms", "call_ms", "limit", "source"),
    [
        (20, None, None, 20, "the toolset's limit"),
        (10_000, 20, None, 20, "the tool's limit"),
        (10_000, 10_000, 20, 20, "the call's own limit"),
        (20, 10_000, 10_000, 20, "the toolset's limit"),
        (10_000, 20, 5_000, 20, "the tool's limit"),
    ],
)
async def test_the_smallest_limit_applies_and_is_named(
    toolset_ms: int, tool_ms: int | None, call_ms: int | None, limit: int, source: str
) -> None:
    tools = Toolset(timeout_ms=toolset_ms)
    tools.register("sleeper", sleeper, timeout_ms=tool_ms)
    result = await tools.call("sleeper", timeout_ms=call_ms)

    error = error_of(result)
    assert error.code == "timed_out"
    assert error.details == {"limitMs": limit, "limit": source}
    assert error.message == f"sleeper took longer than {limit} ms ({source})"
    assert error.retryable
    assert result.attempts == 1


async def test_a_timeout_is_retried_if_the_tool_says_so() -> None:
    result = await run(sleeper, timeout_ms=10, retry=Retry(max_attempts=3))

    assert result.attempts == 3
    assert error_of(result).code == "timed_out"


async def test_waiting_between_attempts_does_not_count() -> None:
    tools, began = Toolset(), time.perf_counter()
    more: list[float] = []
    """Seconds that an attempt has left beyond what it would have if only the waits did not count."""

    async def tool(ctx: Context) -> str:
        left = ctx.remaining
        assert left <= 60
        more.append(left - (60 - (time.perf_counter() - began - 0.1 * len(more))))
        await asyncio.sleep(0)
        if len(more) < 4:
            raise ToolSnooze(0.1) if len(more) % 2 else OSError
        return "done"

    tools.register("tool", tool, timeout_ms=60_000, retry=Retry(max_attempts=4, backoff_ms=100))
    result = await tools.call("tool")

    assert result.value == "done"
    assert result.duration_ms > 290
    assert min(more) >= 0


@pytest.mark.parametrize("then", ["returns", "raises", "raises cancelled"])
async def test_a_tool_that_catches_its_cancellation_has_timed_out_all_the_same(then: str) -> None:
    async def stubborn() -> str:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            if then == "raises":
                raise OSError("closing failed") from None
            if then == "raises cancelled":
                raise asyncio.CancelledError from None
        return "late"

    assert error_of(await run(stubborn, timeout_ms=10)).code == "timed_out"


async def test_no_timer_is_armed_for_a_tool_that_never_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    loop = asyncio.get_running_loop()
    armed: list[Any] = []
    monkeypatch.setattr(loop, "call_at", lambda *given, **_: armed.append(given))
    tools = Toolset()

    @tools.tool
    async def quick() -> int:
        return 1

    assert await tools.execute("quick") == 1
    assert armed == []


# -- cancellation ------------------------------------------------------------------------------


async def test_cancellation_reaches_the_tool_and_passes_through() -> None:
    tools, seen = Toolset(), []  # type: tuple[Toolset, list[str]]

    @tools.tool
    async def slow() -> None:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            seen.append("cancelled")
            raise

    call = asyncio.create_task(tools.call("slow"))
    await asyncio.sleep(0)
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    assert seen == ["cancelled"]


async def test_an_outer_timeout_passes_through() -> None:
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.01):
            await run(sleeper)


async def test_a_thousand_calls_side_by_side() -> None:
    tools, all_of_them = Toolset(), asyncio.Barrier(1_000)

    @tools.tool
    async def work(n: int) -> int:
        await all_of_them.wait()
        return n

    results = await asyncio.gather(*(tools.call("work", {"n": n}) for n in range(1_000)))

    assert [result.value for result in results] == list(range(1_000))


async def waits_on_and_on() -> None:
    while True:
        try:
            await asyncio.sleep(100)
        except asyncio.CancelledError:
            continue


async def waits_whatever_is_said() -> None:
    while True:
        try:
            await asyncio.sleep(100)
        except BaseException:
            continue


async def cleans_up_for_ever() -> None:
    try:
        await asyncio.sleep(100)
    finally:
        await asyncio.sleep(100)


@pytest.mark.parametrize("tool", [waits_on_and_on, waits_whatever_is_said, cleans_up_for_ever])
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
async def test_a_tool_that_keeps_waiting_after_its_time_is_closed(
    tool: Callable[[], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("toolcrib.core.deadline.CLEAN_UP_S", 0.05)
    async with asyncio.timeout(patient(20)):
        result = await run(tool, timeout_ms=10)

    assert error_of(result).code == "timed_out"
    task = asyncio.current_task()
    assert task is not None
    assert task.cancelling() == 0
    await asyncio.sleep(0.1)  # Nothing is left that would cancel this.


async def test_a_tool_may_clean_up_when_its_time_is_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("toolcrib.core.deadline.CLEAN_UP_S", 60)
    cleaned = []

    async def tool() -> None:
        try:
            await asyncio.sleep(100)
        finally:
            await asyncio.sleep(0.05)
            cleaned.append(1)

    assert error_of(await run(tool, timeout_ms=10)).code == "timed_out"
    assert cleaned == [1]


async def test_a_call_that_is_dropped_while_its_tool_waits_takes_it_along() -> None:
    seen: list[str] = []

    async def tool() -> None:
        try:
            await asyncio.sleep(100)
        except BaseException as error:
            seen.append(type(error).__name__)
            raise

    call = run(tool)
    call.send(None)
    call.close()
    assert seen == ["GeneratorExit"]


class Unprintable(Exception):
    def __init__(self, instead: type[BaseException]) -> None:
        super().__init__()
        self.instead = instead

    def __str__(self) -> str:
        raise self.instead


@pytest.mark.parametrize("instead", [ValueError, SystemExit, GeneratorExit, asyncio.CancelledError])
@pytest.mark.parametrize("waits", [False, True])
async def test_an_exception_without_a_message_is_reported_by_its_name(
    instead: type[BaseException], waits: bool
) -> None:
    async def tool() -> None:
        if waits:
            await asyncio.sleep(0)
        raise Unprintable(instead)

    error = error_of(await run(tool))
    assert (error.code, error.message) == ("tool_failed", "Unprintable")


@pytest.mark.parametrize("waits", [False, True])
async def test_a_tool_that_raises_generator_exit_has_failed(waits: bool) -> None:
    async def tool() -> None:
        if waits:
            await asyncio.sleep(0)
        raise GeneratorExit

    error = error_of(await run(tool))
    assert (error.code, error.message) == ("tool_failed", "GeneratorExit")


async def test_an_endless_message_is_cut() -> None:
    async def tool() -> None:
        raise ValueError("e" * 5_000_000)

    assert len(error_of(await run(tool)).message) < 11_000


async def test_the_name_of_a_file_that_is_not_utf_8_is_readable_in_a_message() -> None:
    async def tool() -> None:
        raise FileNotFoundError(os.fsdecode(b"\xff.txt"))

    assert error_of(await run(tool)).message == "FileNotFoundError: \\udcff.txt"


async def test_a_name_without_that_of_its_server_suggests_the_whole_one() -> None:
    tools = Toolset()
    for name in ("hallo", "greeter__hello"):
        tools.register(name, lambda: 1)
    assert (await tools.call("hello")).error.hint == "Did you mean greeter__hello?"  # type: ignore[union-attr]
