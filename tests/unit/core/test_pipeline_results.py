"""Results of the call path: values as JSON, errors, approval, controls."""

from __future__ import annotations

import asyncio
import dataclasses
import math
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from toolcrib import (
    Context,
    Result,
    Retry,
    Toolset,
)
from toolcrib.core.controls import Controls, Proceed
from toolcrib.errors import (
    AuditUnavailable,
    DeniedError,
    ToolcribError,
    ToolFailed,
)
from toolcrib.spec import Call, Outcome
from toolcrib.testing import FakeClock


async def run(function: Callable[..., Any], **options: Any) -> Result:
    tools = Toolset()
    tools.register("tool", function, **options)
    return await tools.call("tool")


def error_of(result: Result) -> ToolcribError:
    assert result.error is not None, result
    assert result.status == "error"
    assert result.value is None
    return result.error


async def sleeper() -> None:
    await asyncio.sleep(60)


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
    [[object()], object(), 2**64, [-(2**63) - 1], endless(), "\ud800", ["\ud800"], {"a": len}],
    ids=lambda value: type(value).__name__,
)
async def test_a_value_without_a_json_form_is_a_failure(value: Any) -> None:
    tried = []

    async def tool() -> Any:
        tried.append(1)
        return value

    error = error_of(await run(tool))
    assert error.code == "tool_failed"
    assert f"returned a value of type {type(value).__name__} that is not JSON" in error.message
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

    says = 'the output does not match its schema: $.n "one" is not of type "integer"'
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
    assert said.pop("meta") == {"durationMs": round(result.duration_ms, 3), "attempts": 1}
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

    assert (caught.value.code, caught.value.details) == ("approval_required", {"callId": "c-1"})


# -- approval and controls -----------------------------------------------------------------------


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
    """Controls that note everything they see."""

    def __init__(self) -> None:
        self.log: list[Any] = []
        self.bars: ToolcribError | None = None
        self.refuse: ToolcribError | None = None
        self.early: Result | None = None
        self.broken = False

    def controls(self) -> Controls:
        return Controls(
            visible=lambda _tool, caller, _identity: caller != "mcp:stranger",
            authorise=(self.authorise,),
            approve=(self.approve,),
            mask=self.mask,
            record=self.record,
        )

    def authorise(self, ctx: Context) -> None:
        if self.bars is not None:
            raise self.bars

    def approve(self, proceed: Proceed) -> Proceed:
        async def step(ctx: Context) -> Result:
            self.log.append(("approve", ctx.bound.name, ctx.arguments))
            if self.refuse is not None:
                raise self.refuse
            await asyncio.sleep(0)
            ctx.secrets = {"TOKEN": "s3cret"}
            return self.early or await proceed(ctx)

        return step

    def record(self, ctx: Context, result: Result) -> None:
        if self.broken:
            raise AuditUnavailable
        self.log.append(("record", ctx.tool, result.status, result.error.code if result.error else None))

    def mask(self, value: Any) -> Any:
        if isinstance(value, str):
            return value.replace("s3cret", "***")
        if isinstance(value, list):
            return [self.mask(item) for item in value]
        if isinstance(value, dict):
            return {key: self.mask(item) for key, item in value.items()}
        return value


def guarded() -> tuple[Toolset, Recorder]:
    recorder = Recorder()
    tools = Toolset(controls=recorder.controls(), retry=Retry(max_attempts=1))

    @tools.tool
    async def leak(ctx: Context, fail: bool = False) -> Any:
        if fail:
            raise ToolFailed(f"no {ctx.secrets['TOKEN']}", hint="s3cret", details={"a": ["s3cret"]})
        return Outcome([ctx.secrets["TOKEN"]], ("s3cret",), {"b": "s3cret"})

    return tools, recorder


async def test_secrets_are_masked_in_values_warnings_details_and_errors() -> None:
    tools, recorder = guarded()
    good, bad = await tools.call("leak"), await tools.call("leak", {"fail": True})

    assert (good.value, good.warnings, good.details) == (["***"], ("***",), {"b": "***"})
    assert "s3cret" not in str(bad.as_dict())
    assert str(error_of(bad)) == "no ***"
    assert recorder.log == [
        ("approve", "leak", {"fail": False}),
        ("record", "leak", "ok", None),
        ("approve", "leak", {"fail": True}),
        ("record", "leak", "error", "tool_failed"),
    ]


async def test_secrets_are_masked_before_texts_are_cut() -> None:
    tools, _ = guarded()

    @tools.tool
    async def long(ctx: Context) -> None:
        raise ValueError("x" * 9_997 + ctx.secrets["TOKEN"])

    @tools.tool(output_schema={"type": "array", "items": {"const": "x"}})
    async def unfit(ctx: Context) -> Any:
        return ["y" * 298 + ctx.secrets["TOKEN"]]

    @tools.tool(output_schema={"type": "array", "items": {"pattern": "^.{6}$"}})
    async def fits_when_masked(ctx: Context) -> Any:
        return [ctx.secrets["TOKEN"] + "abc"]

    long_one, unfit_one = await tools.call("long"), await tools.call("unfit")

    assert error_of(long_one).message == "ValueError: " + "x" * 9_988 + "…"
    assert "s3c" not in str(unfit_one.as_dict())
    assert "$[0]" in unfit_one.warnings[0]
    assert "does not match where it contains a secret" in (await tools.call("fits_when_masked")).warnings[0]


async def test_secrets_are_masked_in_progress_messages() -> None:
    tools, _ = guarded()

    @tools.tool
    async def work(ctx: Context) -> None:
        ctx.progress(1, 2, f"with {ctx.secrets['TOKEN']}")

    heard: list[str] = []
    await tools.call("work", on_event=lambda event: heard.append(event.message))

    assert heard == ["", "with ***", ""]


async def test_every_refusal_is_recorded() -> None:
    tools, recorder = guarded()
    await tools.call("none")
    await tools.call("leak", {"fail": 1})
    recorder.refuse = DeniedError("not you")
    result = await tools.call("leak")

    assert error_of(result).code == "denied"
    assert recorder.log == [
        ("record", "none", "error", "tool_not_found"),
        ("record", "leak", "error", "invalid_input"),
        ("approve", "leak", {"fail": False}),
        ("record", "leak", "error", "denied"),
    ]


async def test_a_call_that_is_not_allowed_at_all_is_refused_before_its_arguments_are_looked_at() -> None:
    tools, recorder = guarded()
    recorder.bars = DeniedError("not you")

    assert error_of(await tools.call("leak", {"fail": 1})).code == "denied"
    assert recorder.log == [("record", "leak", "error", "denied")]


async def test_a_name_that_a_caller_may_not_know_is_not_suggested() -> None:
    tools, _ = guarded()
    for caller, told in (("cli", "leak"), ("mcp:stranger", None)):
        error = error_of(await tools.invoke(Call("leek", {}, caller)))
        assert error.details.get("nearest") == told
        assert ("leak" in str(error.hint)) is (told is not None)


async def test_a_step_may_return_an_earlier_result() -> None:
    tools, recorder = guarded()
    recorder.early = Result("ok", "s3cret of last time")

    assert (await tools.call("leak")).value == "*** of last time"
    assert recorder.log[1:] == [("record", "leak", "ok", None)]


async def test_a_cancelled_call_is_recorded() -> None:
    recorder = Recorder()
    tools = Toolset(controls=recorder.controls())
    tools.register("sleeper", sleeper)
    call = asyncio.create_task(tools.call("sleeper"))
    await asyncio.sleep(0)
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call

    assert recorder.log[-1] == ("record", "sleeper", "error", "cancelled")


async def test_a_call_that_cannot_be_recorded_is_no_success() -> None:
    tools, recorder = guarded()
    recorder.broken = True

    assert error_of(await tools.call("leak")).code == "audit_unavailable"


async def test_a_tool_removed_meanwhile_still_ends_its_call() -> None:
    tools = Toolset(clock=FakeClock())
    tried: list[int] = []

    @tools.tool("leaving", idempotent=True)
    async def leaving() -> str:
        tried.append(1)
        if len(tried) == 1:
            tools.remove("leaving")
            raise OSError
        return "done"

    assert (await tools.call("leaving")).value == "done"
    assert error_of(await tools.call("leaving")).code == "tool_not_found"


async def test_a_middleware_that_is_added_does_not_take_the_approval_from_other_calls() -> None:
    tools: list[Toolset] = []
    results: list[Result] = []

    def approve(_proceed: Proceed) -> Proceed:
        async def step(_ctx: Context) -> Result:
            raise DeniedError("nobody has approved this")

        if tools:  # the path is put together again
            with ThreadPoolExecutor(1) as pool:
                results.append(pool.submit(asyncio.run, tools[0].call("tool")).result())
        return step

    tools.append(Toolset(controls=Controls(approve=(approve,))))
    tools[0].register("tool", lambda: "done")
    tools[0].use(lambda handler: handler)
    results.append(await tools[0].call("tool"))
    assert {error_of(result).code for result in results} == {"denied"}
