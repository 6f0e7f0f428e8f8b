"""Middleware wraps every call, in the order in which it was added."""

from __future__ import annotations

import asyncio
import logging
import sys
import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from tests.patience import GROWING_MS
from toolcrib import Context, Retry, Toolset, ToolSnooze
from toolcrib.errors import DeniedError
from toolcrib.middleware import Handler, Middleware, logging_middleware, timeout_middleware
from toolcrib.spec import Call, CallContext, Outcome
from toolcrib.testing import FakeClock


def noting(name: str, log: list[str]) -> Middleware:
    def wrap(following: Handler) -> Handler:
        async def handle(call: Call, ctx: CallContext) -> Outcome:
            log.append(f"{name} {call.arguments!r}")
            outcome = await following(call, ctx)
            log.append(f"{name} gets {outcome.value}")
            return outcome

        return handle

    return wrap


def doubling(following: Handler) -> Handler:
    async def handle(call: Call, ctx: CallContext) -> Outcome:
        outcome = await following(call, ctx)
        outcome.value *= 2
        return outcome

    return handle


def adding_one(following: Handler) -> Handler:
    async def handle(call: Call, ctx: CallContext) -> Outcome:
        assert isinstance(call.arguments, Mapping)
        return await following(replace(call, arguments={"n": call.arguments["n"] + 1}), ctx)

    return handle


def toolset(**options: Any) -> Toolset:
    tools = Toolset(**options)

    @tools.tool
    async def echo(n: int = 1) -> int:
        return n

    return tools


async def test_the_first_added_is_outermost() -> None:
    tools, log = toolset(), []  # type: tuple[Toolset, list[str]]
    outer, inner = noting("outer", log), noting("inner", log)
    tools.use(outer)
    tools.use(inner)
    tools.use(doubling)

    assert tools.middleware == (outer, inner, doubling)
    assert await tools.execute("echo", {"n": 2}) == 4
    assert log == ["outer {'n': 2}", "inner {'n': 2}", "inner gets 4", "outer gets 4"]


async def test_it_sees_checked_arguments_and_no_refused_calls() -> None:
    tools, log = toolset(), []  # type: tuple[Toolset, list[str]]
    tools.use(noting("m", log))

    await tools.call("echo", {})
    await tools.call("echo", {"n": "one"})
    await tools.call("none", {})

    assert log == ["m {'n': 1}", "m gets 1"]


async def test_it_may_change_the_arguments() -> None:
    tools = toolset()
    tools.use(adding_one)
    tools.use(adding_one)

    assert [await tools.execute("echo", {"n": 2}), await tools.execute("echo")] == [4, 3]


async def test_its_annotations_may_name_what_is_only_imported_for_type_checkers() -> None:
    future = "" if sys.version_info >= (3, 14) else "from __future__ import annotations\n"
    source = future + "async def over(call: Unknown, ctx: Unknown, proceed: Unknown):\n    return 'over'"
    names: dict[str, Any] = {}
    exec(compile(source, "middleware.py", "exec", dont_inherit=True), names)
    tools = toolset()
    tools.use(names["over"])
    assert await tools.execute("echo") == "over"


async def test_it_may_refuse_or_answer_itself() -> None:
    def guard(following: Handler) -> Handler:
        async def handle(call: Call, ctx: CallContext) -> Outcome:
            assert not isinstance(call.arguments, bytes | str)
            if call.arguments["n"] > 9:
                raise DeniedError("too large")
            if call.arguments["n"] == 0:
                return Outcome(-1, warnings=("made up",))
            return await following(call, ctx)

        return handle

    tools = toolset()
    tools.use(guard)

    refused = await tools.call("echo", {"n": 10})
    assert refused.error is not None
    assert (refused.error.code, refused.attempts) == ("denied", 1)
    assert (await tools.call("echo", {"n": 0})).warnings == ("made up",)
    assert await tools.execute("echo", {"n": 5}) == 5


async def test_retries_happen_inside() -> None:
    tools, log, tried = Toolset(), [], []  # type: tuple[Toolset, list[str], list[int]]
    tools.use(noting("m", log))

    @tools.tool("flaky", idempotent=True)
    async def flaky() -> str:
        tried.append(1)
        if len(tried) == 1:
            raise OSError("first")
        return "done"

    assert (await tools.call("flaky")).attempts == 2
    assert log == ["m {}", "m gets done"]


async def test_time_in_middleware_is_not_the_tools() -> None:
    tools = Toolset()

    def slow(following: Handler) -> Handler:
        async def handle(call: Call, ctx: CallContext) -> Outcome:
            await asyncio.sleep(0.05)
            return await following(call, ctx)

        return handle

    tools.use(slow)

    @tools.tool("quick", timeout_ms=60_000)
    async def quick(ctx: Context) -> float:
        """Return the seconds that it has left beyond what it would have with the middleware's."""
        left = ctx.remaining
        return left - (60 - (time.perf_counter() - began))

    began = time.perf_counter()
    assert await tools.execute("quick") >= 0.05


async def test_the_log_has_start_end_and_failure_but_no_arguments(caplog: pytest.LogCaptureFixture) -> None:
    tools = toolset()
    tools.use(logging_middleware())

    @tools.tool("fail", retry=Retry(max_attempts=1))
    async def fail() -> None:
        raise ValueError("secret")

    with caplog.at_level(logging.INFO, "toolcrib.calls"):
        await tools.call("echo", {"n": 12345})
        await tools.call("fail")

    messages = [record.getMessage() for record in caplog.records]
    assert messages[0] == "call echo started by local"
    assert messages[1].startswith("call echo done after ")
    assert messages[3].startswith("call fail failed after ")
    assert not any("12345" in message or "secret" in message for message in messages)


async def test_the_timeout_covers_retries_and_snoozes() -> None:
    for limit_ms in GROWING_MS:
        tools = toolset()
        tools.use(timeout_middleware(limit_ms / 1000))

        @tools.tool
        async def snoozing() -> None:
            raise ToolSnooze(0.01)

        result = await tools.call("snoozing")
        if result.snoozes:
            break
    else:
        raise AssertionError("no limit is long enough")
    assert result.error is not None
    assert result.error.code == "timed_out"
    assert result.error.details == {"limitMs": limit_ms, "limit": "middleware"}
    tools = toolset()
    tools.use(timeout_middleware(60))
    assert await tools.execute("echo") == 1


async def test_a_tools_own_timeout_error_is_not_the_middlewares() -> None:
    tools = Toolset(clock=FakeClock())
    tools.use(timeout_middleware(60))

    @tools.tool
    async def fail() -> None:
        raise TimeoutError("the database")

    result = await tools.call("fail")
    assert result.error is not None
    assert result.error.message == "TimeoutError: the database"


async def test_a_view_has_the_middleware_of_its_toolset() -> None:
    tools, log = toolset(), []  # type: tuple[Toolset, list[str]]
    tools.use(noting("m", log))
    view = tools.filter("echo")
    view.use(doubling)

    assert await view.execute("echo") == 2
    assert await tools.execute("echo") == 1
    assert len(log) == 4
