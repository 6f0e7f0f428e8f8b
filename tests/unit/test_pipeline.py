"""The one call path: attempts and delays, time limits, cancellation, outputs, errors, the gate."""

from __future__ import annotations

import asyncio
import dataclasses
import math
import time
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from toolcrib import (
    Call,
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
    AuditUnavailable,
    DeniedError,
    HttpFailed,
    ToolcribError,
    ToolFailed,
    UnavailableError,
)
from toolcrib.pipeline import Bound
from toolcrib.spec import Outcome
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


async def test_a_failing_tool_is_tried_twice_at_once() -> None:
    clock, tool = FakeClock(), Failing(OSError("no"), OSError("still no"), OSError("never seen"))
    result = await run(tool, clock=clock)

    assert (tool.tried, result.attempts, clock.slept) == (2, 2, [])
    assert error_of(result).code == "tool_failed"
    assert text_view(result) == "Tool call failed: OSError: still no"


async def test_the_second_try_may_succeed() -> None:
    result = await run(Failing(OSError("no")))

    assert (result.value, result.attempts, result.error) == ("done", 2, None)


async def test_the_toolsets_rule_and_a_tools_own() -> None:
    tools = Toolset(retry=Retry(max_attempts=3))
    three, one = Failing(*[OSError()] * 9), Failing(*[OSError()] * 9)
    tools.register("three", three)
    tools.register("one", one, retry=Retry(max_attempts=1))

    assert ((await tools.call("three")).attempts, three.tried) == (3, 3)
    assert ((await tools.call("one")).attempts, one.tried) == (1, 1)


@pytest.mark.parametrize("jitter", [0.1, 1.0])
async def test_with_jitter_the_wait_is_the_fourth_power_of_the_attempt(jitter: float) -> None:
    clock = FakeClock()
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


async def test_a_fixed_backoff() -> None:
    clock = FakeClock()
    await run(
        Failing(*[OSError()] * 9), clock=clock, retry=Retry(max_attempts=3, jitter=0.5, backoff_ms=1500)
    )

    assert clock.slept == [1.5, 1.5]


@pytest.mark.parametrize("retry", [Retry(max_attempts=5), Retry(max_attempts=1), None])
@pytest.mark.parametrize(
    ("signal", "code", "text"),
    [
        (ToolCancel("authentication failed"), "tool_cancelled", "Cancelled: authentication failed"),
        (ToolDiscard("no user id"), "invalid_input", "Invalid input: no user id"),
        (DeniedError("not yours"), "denied", "Tool call failed: not yours"),
        (UnavailableError("gone"), "unavailable", "Tool call failed: gone"),
    ],
)
async def test_what_is_final_is_not_tried_again(
    retry: Retry | None, signal: Exception, code: str, text: str
) -> None:
    tool = Failing(signal, signal)
    result = await run(tool, retry=retry)

    assert (tool.tried, result.attempts) == (1, 1)
    assert error_of(result).code == code
    assert text_view(result) == text


async def test_a_snooze_waits_and_uses_up_no_attempt() -> None:
    clock = FakeClock()
    tool = Failing(*[ToolSnooze(30, "rate limit")] * 20, OSError("no"), ToolSnooze(5))
    result = await run(tool, clock=clock)

    assert (result.value, result.attempts, result.snoozes) == ("done", 2, 21)
    assert clock.slept == [30] * 20 + [5]


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


async def test_an_endless_snooze_can_be_cancelled() -> None:
    tools = Toolset()

    @tools.tool
    async def never() -> None:
        raise ToolSnooze(0)

    call = asyncio.create_task(tools.call("never"))
    await asyncio.sleep(0.01)
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call


@pytest.mark.parametrize("max_attempts", [1, 2])
async def test_a_retryable_error_is_tried_again_even_where_others_are_not(max_attempts: int) -> None:
    tool = Failing(*[RetryableError("busy")] * 9)
    result = await run(tool, retry=Retry(max_attempts=max_attempts))

    assert tool.tried == 2
    assert error_of(result).retryable
    assert text_view(result) == "Tool call failed: busy"


async def test_http_failures_are_tried_again_only_where_that_may_help() -> None:
    clock = FakeClock()
    retry = Retry(max_attempts=2)
    retryable = Failing(*[HttpFailed("503", retryable=True, details={"retry_after_s": 7})] * 9)
    final = Failing(*[HttpFailed("400")] * 9)

    assert (await run(retryable, clock=clock, retry=retry)).attempts == 2
    assert (await run(final, retry=retry)).attempts == 1
    assert clock.slept == [7]


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


@pytest.mark.parametrize("isolation", ["async", "thread", "inline"])
@pytest.mark.parametrize("late", [False, True], ids=["at once", "after waiting"])
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
async def test_whatever_a_tool_raises_is_its_failure(
    raised: BaseException, says: str, isolation: str, late: bool
) -> None:
    async def tool_async() -> None:
        if late:
            await asyncio.sleep(0)
        raise raised

    def tool() -> None:
        raise raised

    result = await run(tool_async if isolation == "async" else tool, isolation=isolation)

    assert error_of(result).code == "tool_failed"
    assert says in error_of(result).message
    assert result.attempts == 2


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


async def test_an_error_of_ours_comes_as_it_is() -> None:
    error = ToolFailed("no", hint="mend", details={"n": 1})
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
async def test_the_smallest_limit_binds_and_is_named(
    toolset_ms: int, tool_ms: int | None, call_ms: int | None, limit: int, source: str
) -> None:
    tools = Toolset(timeout_ms=toolset_ms)
    tools.register("sleeper", sleeper, timeout_ms=tool_ms)
    started = time.perf_counter()
    result = await tools.call("sleeper", timeout_ms=call_ms)

    error = error_of(result)
    assert error.code == "timed_out"
    assert error.details == {"limit_ms": limit, "limit": source}
    assert error.message == f"sleeper took longer than {limit} ms ({source})"
    assert error.retryable
    assert time.perf_counter() - started < 2
    assert result.attempts == 1


async def test_a_timeout_is_tried_again_where_the_tool_says_so() -> None:
    result = await run(sleeper, timeout_ms=10, retry=Retry(max_attempts=3))

    assert result.attempts == 3
    assert error_of(result).code == "timed_out"


async def test_waiting_between_attempts_does_not_count() -> None:
    clock = FakeClock()
    tools = Toolset()
    tried: list[float] = []

    async def tool(ctx: Context) -> str:
        tried.append(ctx.remaining)
        await asyncio.sleep(0.03)
        if len(tried) < 4:
            raise ToolSnooze(0.05) if len(tried) % 2 else OSError
        return "done"

    tools.register("tool", tool, timeout_ms=100, retry=Retry(max_attempts=4, backoff_ms=50))
    result = await tools.call("tool")

    assert result.value == "done"
    assert result.duration_ms > 200
    assert all(0.08 < remaining <= 0.1 for remaining in tried)
    assert clock.slept == []


@pytest.mark.parametrize("then", ["returns", "raises", "raises cancelled"])
async def test_a_tool_that_does_not_take_no_for_an_answer_has_timed_out_all_the_same(then: str) -> None:
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


async def test_no_timer_is_set_for_a_tool_that_never_waits(monkeypatch: pytest.MonkeyPatch) -> None:
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
    tools, at_once, most = Toolset(), 0, 0

    @tools.tool
    async def work(n: int) -> int:
        nonlocal at_once, most
        at_once += 1
        most = max(most, at_once)
        await asyncio.sleep(0.01)
        at_once -= 1
        return n

    results = await asyncio.gather(*(tools.call("work", {"n": n}) for n in range(1_000)))

    assert [result.value for result in results] == list(range(1_000))
    assert most == 1_000


# -- outputs -----------------------------------------------------------------------------------


@dataclasses.dataclass
class Page:
    title: str
    tags: set[str]


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (None, None),
        ("text", "text"),
        ("naïve ✓", "naïve ✓"),
        (True, True),
        (2**64 - 1, 2**64 - 1),
        (1.5, 1.5),
        (math.nan, None),
        ([math.inf], [None]),
        ((1, 2), [1, 2]),
        ({"b", "a"}, ["a", "b"]),
        ([Page("a", {"x"})], [{"title": "a", "tags": ["x"]}]),
        ({1: "a"}, {"1": "a"}),
    ],
)
async def test_a_value_becomes_json(value: Any, expected: Any) -> None:
    async def tool() -> Any:
        return value

    assert (await run(tool)).value == expected


def endless() -> list[Any]:
    items: list[Any] = []
    items.append(items)
    return items


@pytest.mark.parametrize(
    "value",
    [b"bytes", object(), 2**64, [-(2**63) - 1], endless(), "\ud800", ["\ud800"], {"a": len}],
    ids=lambda value: type(value).__name__,
)
async def test_a_value_without_a_json_form_is_a_failure(value: Any) -> None:
    tried = []

    async def tool() -> Any:
        tried.append(1)
        return value

    error = error_of(await run(tool))
    assert error.code == "tool_failed"
    assert f"returned a {type(value).__name__} that is not JSON" in error.message
    assert error.hint
    assert len(tried) == 1


async def test_an_outcome_says_more_than_a_value() -> None:
    async def tool() -> Outcome:
        return Outcome({1}, ("careful",), {"status": 200})

    result = await run(tool)
    assert (result.value, result.warnings, result.details) == ([1], ("careful",), {"status": 200})


SCHEMA = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}


async def test_an_output_that_does_not_fit_is_a_warning_or_a_failure() -> None:
    async def tool() -> dict[str, str]:
        return {"n": "one"}

    warned = await run(tool, output_schema=SCHEMA)
    failed = await run(tool, output_schema=SCHEMA, on_violation="fail")

    says = 'the output does not fit its schema: $.n "one" is not of type "integer"'
    assert (warned.ok, warned.value, warned.warnings) == (True, {"n": "one"}, (says,))
    assert (error_of(failed).code, error_of(failed).message) == ("invalid_output", says)
    assert error_of(failed).violations[0].path == "$.n"
    assert failed.attempts == 1


async def test_an_output_that_fits() -> None:
    async def tool() -> dict[str, int]:
        return {"n": 1}

    assert (await run(tool, output_schema=SCHEMA, on_violation="fail")).warnings == ()


# -- results -----------------------------------------------------------------------------------


async def test_the_shape_of_a_result() -> None:
    async def tool() -> int:
        return 1

    result = await run(tool)
    assert result.duration_ms > 0
    said = result.as_dict()
    assert said.pop("meta") == {"duration_ms": round(result.duration_ms, 3), "attempts": 1}
    assert said == {"status": "ok", "value": 1}
    assert result.unwrap() == 1


async def test_the_shape_of_an_error() -> None:
    result = await Toolset().call("none")

    assert result.as_dict()["error"] == {
        "code": "tool_not_found",
        "message": "there is no tool named 'none'",
        "retryable": False,
        "hint": "List the tools to see what there is.",
        "violations": [],
        "details": {},
    }
    with pytest.raises(ToolcribError, match="no tool named"):
        result.unwrap()


def test_a_call_that_waits_has_no_value_yet() -> None:
    with pytest.raises(ToolcribError) as caught:
        Result("pending", call_id="c-1").unwrap()

    assert (caught.value.code, caught.value.details) == ("approval_required", {"call_id": "c-1"})


# -- approval and the gate ---------------------------------------------------------------------


async def test_a_tool_that_needs_approval_runs_only_with_it() -> None:
    tools, ran = Toolset(), []  # type: tuple[Toolset, list[int]]

    async def pay(amount: int) -> str:
        ran.append(amount)
        return "paid"

    tools.register("pay", pay, approval="Costs money")
    refused = error_of(await tools.call("pay", {"amount": 1}))

    assert (refused.code, refused.exit_code, ran) == ("approval_required", 5, [])
    assert refused.details == {"reason": "Costs money"}
    assert (await tools.call("pay", {"amount": 1}, approved_by="ada")).value == "paid"


class Recorder:
    """A gate that writes down all it is asked."""

    def __init__(self) -> None:
        self.log: list[Any] = []
        self.refuse: ToolcribError | None = None
        self.broken = False

    def admit(self, bound: Bound, call: Call) -> Mapping[str, str]:
        self.log.append(("admit", bound.name, call.arguments))
        if self.refuse is not None:
            raise self.refuse
        return {"TOKEN": "s3cret"}

    def record(self, bound: Bound | None, call: Call, result: Result) -> None:
        if self.broken:
            raise AuditUnavailable
        code = result.error.code if result.error else None
        self.log.append(("record", bound and bound.name, call.tool, result.status, code))

    def redact(self, value: Any) -> Any:
        if isinstance(value, str):
            return value.replace("s3cret", "***")
        if isinstance(value, list):
            return [self.redact(item) for item in value]
        if isinstance(value, dict):
            return {key: self.redact(item) for key, item in value.items()}
        return value


def guarded() -> tuple[Toolset, Recorder]:
    gate = Recorder()
    tools = Toolset(gate=gate, retry=Retry(max_attempts=1))

    @tools.tool
    async def leak(ctx: Context, fail: bool = False) -> Any:
        if fail:
            raise ToolFailed(f"no {ctx.secrets['TOKEN']}", hint="s3cret", details={"a": ["s3cret"]})
        return Outcome([ctx.secrets["TOKEN"]], ("s3cret",), {"b": "s3cret"})

    return tools, gate


async def test_the_gate_gives_secrets_and_masks_them_everywhere() -> None:
    tools, gate = guarded()
    good, bad = await tools.call("leak"), await tools.call("leak", {"fail": True})

    assert (good.value, good.warnings, good.details) == (["***"], ("***",), {"b": "***"})
    assert "s3cret" not in str(bad.as_dict())
    assert str(error_of(bad)) == "no ***"
    assert gate.log == [
        ("admit", "leak", {"fail": False}),
        ("record", "leak", "leak", "ok", None),
        ("admit", "leak", {"fail": True}),
        ("record", "leak", "leak", "error", "tool_failed"),
    ]


async def test_the_gate_sees_every_refusal() -> None:
    tools, gate = guarded()
    await tools.call("none")
    await tools.call("leak", {"fail": 1})
    gate.refuse = DeniedError("not you")
    result = await tools.call("leak")

    assert error_of(result).code == "denied"
    assert gate.log == [
        ("record", None, "none", "error", "tool_not_found"),
        ("record", "leak", "leak", "error", "invalid_input"),
        ("admit", "leak", {"fail": False}),
        ("record", "leak", "leak", "error", "denied"),
    ]


async def test_the_gate_hears_of_a_cancelled_call() -> None:
    gate = Recorder()
    tools = Toolset(gate=gate)
    tools.register("sleeper", sleeper)
    call = asyncio.create_task(tools.call("sleeper"))
    await asyncio.sleep(0)
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call

    assert gate.log[-1] == ("record", "sleeper", "sleeper", "error", "cancelled")


async def test_a_call_that_cannot_be_recorded_is_no_success() -> None:
    tools, gate = guarded()
    gate.broken = True

    assert error_of(await tools.call("leak")).code == "audit_unavailable"


async def test_a_tool_removed_meanwhile_still_ends_its_call() -> None:
    tools = Toolset(clock=FakeClock())
    tried: list[int] = []

    @tools.tool
    async def leaving() -> str:
        tried.append(1)
        if len(tried) == 1:
            tools.remove("leaving")
            raise OSError
        return "done"

    assert (await tools.call("leaving")).value == "done"
    assert error_of(await tools.call("leaving")).code == "tool_not_found"
