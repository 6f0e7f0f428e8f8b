"""The middleware that Toolcrib brings, and functions of simpler forms."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any
from unittest.mock import Mock

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

from toolcrib import Context, Toolset
from toolcrib.errors import DefinitionError, DeniedError, HttpFailed, RetryableError
from toolcrib.middleware import (
    as_middleware,
    cache_middleware,
    logging_middleware,
    middleware_name,
    only,
    rate_limit_middleware,
    redaction_middleware,
    retry_middleware,
    tracing_middleware,
)
from toolcrib.middleware.handler import names_for
from toolcrib.spec import Annotations, Call, CallEvent, Content, Outcome

READS = Annotations(read_only=True)


class Bench:
    """Tools that count their calls, and a clock."""

    def __init__(self) -> None:
        self.tools = Toolset()
        self.runs: list[Any] = []
        self.now = 0.0
        self.failing: list[Exception] = []
        self.tools.register("look", self.look, annotations=READS)
        self.tools.register("change", self.change)

    async def look(self, n: int = 0) -> dict[str, Any]:
        self.runs.append(n)
        if self.failing:
            raise self.failing.pop(0)
        return {"n": n, "items": [n]}

    async def change(self, n: int = 0) -> int:
        return (await self.look(n))["n"]  # type: ignore[no-any-return]

    async def code(self, tool: str, **arguments: Any) -> str:
        result = await self.tools.call(tool, arguments)
        return "ok" if result.error is None else result.error.code


async def test_a_rate_limit_counts_each_tool_by_itself() -> None:
    bench = Bench()
    bench.tools.use(rate_limit_middleware(2, min_interval_ms=1_000, clock=lambda: bench.now))
    assert [await bench.code("look"), await bench.code("look"), await bench.code("change")] == [
        "ok",
        "rate_limited",
        "ok",
    ]
    bench.now = 1.0
    assert await bench.code("look") == "ok"
    bench.now = 30.0
    result = await bench.tools.call("look")
    assert result.error is not None
    assert result.error.details == {"retryAfterS": 30.0}
    bench.now = 60.0
    assert await bench.code("look") == "ok"
    assert len(bench.runs) == 4


async def test_a_limit_of_concurrent_calls() -> None:
    tools, began, go = Toolset(), asyncio.Event(), asyncio.Event()
    tools.use(rate_limit_middleware(concurrent=1))

    @tools.tool
    async def wait() -> None:
        began.set()
        await go.wait()

    first = asyncio.ensure_future(tools.call("wait"))
    await began.wait()
    second = await tools.call("wait")
    assert second.error is not None
    assert second.error.code == "rate_limited"
    go.set()
    assert (await first).ok
    assert (await tools.call("wait")).ok


async def test_a_cache_answers_repeated_calls_of_read_only_tools() -> None:
    bench = Bench()
    bench.tools.use(cache_middleware(10, entries=2, clock=lambda: bench.now))
    first = await bench.tools.call("look", {"n": 1})
    first.value["items"].append("changed by the caller")
    again = await bench.tools.call("look", {"n": 1})
    assert again.value == {"n": 1, "items": [1]}
    assert again.details == {"cached": True}
    await bench.tools.call("look", {"n": 1}, variables={"user": "b"})
    await bench.tools.invoke(Call("look", {"n": 1}, "mcp:other"))
    assert bench.runs == [1, 1, 1]
    await bench.code("change", n=1)
    await bench.code("change", n=1)
    assert bench.runs == [1] * 5
    bench.now = 10.0
    await bench.code("look", n=1)
    assert bench.runs == [1] * 6


async def test_a_cache_forgets_failures_and_the_oldest_entries() -> None:
    bench = Bench()
    bench.tools.use(cache_middleware(10, entries=1, clock=lambda: bench.now))
    bench.failing = [HttpFailed("no")]
    assert [await bench.code("look", n=n) for n in (1, 1, 2, 1)] == ["http_failed", "ok", "ok", "ok"]
    assert bench.runs == [1, 1, 2, 1]


async def test_retries_of_what_can_be_repeated() -> None:
    bench, slept = Bench(), list[float]()

    async def sleep(seconds: float) -> None:
        slept.append(seconds)

    bench.tools.use(retry_middleware(3, delay_s=1, sleep=sleep))
    busy = HttpFailed("busy", retryable=True)
    later = HttpFailed("later", retryable=True, details={"retryAfterS": 9})
    bench.failing = [busy, later]
    assert (await bench.code("look"), slept) == ("ok", [1, 9])
    bench.failing = [busy] * 3
    assert await bench.code("look") == "http_failed"
    # A server chooses this freely, and must not hold a call for years.
    bench.failing = [HttpFailed("later", retryable=True, details={"retryAfterS": 1e9})] * 2
    assert (await bench.code("look"), len(bench.failing)) == ("http_failed", 1)
    bench.failing = [HttpFailed("never")] * 2
    assert (await bench.code("look"), len(bench.failing)) == ("http_failed", 1)
    bench.failing = [busy] * 2
    assert (await bench.code("change"), len(bench.failing)) == ("http_failed", 1)


async def test_redaction_of_results_and_errors() -> None:
    tools = Toolset()
    tools.use(redaction_middleware([r"\d{4}"], keys=["PIN"]))

    @tools.tool
    def card(fail: bool = False) -> dict[str, Any]:
        if fail:
            raise HttpFailed("card 1234 is blocked", details={"pin": 7, "at": ["1234"]})
        return {"pin": 7, "numbers": ("1234 and 56", 5678), "1234": None}

    assert (await tools.call("card")).value == {"pin": "***", "numbers": ["*** and 56", 5678], "***": None}
    error = (await tools.call("card", {"fail": True})).error
    assert error is not None
    assert (error.message, error.details) == ("card *** is blocked", {"pin": "***", "at": ["***"]})


async def test_redaction_of_what_a_tool_reports_while_it_runs() -> None:
    tools = Toolset()
    tools.use(redaction_middleware([r"\d{4}"]))

    @tools.tool
    def card(ctx: Context) -> str:
        ctx.progress(1, 2, "read card 1234")
        for part in ("card 12", "34 is\nblo", "cked, not 56", "78"):
            ctx.chunk(part)
        return "done"

    events = [event async for event in tools.stream("card") if isinstance(event, CallEvent)]
    assert [event.message for event in events if event.kind == "progress"] == ["read card ***"]
    assert [event.text for event in events if event.kind == "chunk"] == [
        "card *** is\n",
        "blocked, not ***",
    ]


async def test_redaction_of_log_messages_to_a_client() -> None:
    tools, client = Toolset(), Mock()
    tools.use(redaction_middleware([r"\d{4}"], keys=["pin"]))

    @tools.tool
    def card(ctx: Context) -> None:
        ctx.log("info", {"card": "1234", "pin": 7})

    assert (await tools.invoke(Call("card", {}, client=client))).error is None
    data = {"card": "***", "pin": "***"}
    client.notify.assert_called_once_with("notifications/message", {"level": "info", "data": data})


async def test_redaction_masks_texts_and_leaves_images_whole() -> None:
    tools, data = Toolset(), b"\x89PNG\r\n\x1a\n\0\xd7\x6d\xf8"
    tools.use(redaction_middleware([r"\d{4}"]))
    tools.register("image", lambda: data)
    tools.register("both", lambda: [Content.text("card 1234"), Content.image(data)])
    tools.register(
        "own", lambda: Outcome("1234", blocks=(Content.text("1234").block, Content.image(data).block))
    )
    image = Content.image(data).block
    assert "1234" in image["data"]
    assert (await tools.call("image")).blocks == (image,)
    assert (await tools.call("both")).blocks == (Content.text("card ***").block, image)
    own = await tools.call("own")
    assert (own.value, own.blocks) == ("***", (Content.text("***").block, image))


async def test_a_repeated_call_counts_all_of_its_attempts() -> None:
    bench = Bench()
    bench.tools.use(retry_middleware(3, delay_s=0))
    bench.failing = [RetryableError("busy")] * 9  # It has two attempts of its own, in the first of three.
    failed = await bench.tools.call("look")
    assert (failed.attempts, len(bench.runs)) == (4, 4)
    bench.failing = [RetryableError("busy")] * 2
    assert (await bench.tools.call("look")).attempts == 3


async def test_spans_follow_the_conventions() -> None:
    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    bench = Bench()
    bench.tools.use(tracing_middleware(provider.get_tracer("t"), content=True))
    with provider.get_tracer("program").start_as_current_span("turn") as turn:
        done = await bench.tools.invoke(Call("look", {"n": 1}, session_id="s-1", call_id="c-1"))
    bench.failing = [HttpFailed("no")]
    await bench.tools.invoke(Call("look", {}, "mcp:claude"))
    span, _, failed = exporter.get_finished_spans()
    assert done.call_id == "c-1"
    assert (span.name, span.kind) == ("execute_tool look", SpanKind.INTERNAL)
    assert span.parent is not None
    assert span.parent.span_id == turn.get_span_context().span_id
    assert dict(span.attributes or {}) == {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": "look",
        "gen_ai.tool.call.id": "c-1",
        "gen_ai.tool.type": "function",
        "gen_ai.tool.description": "look",
        "gen_ai.conversation.id": "s-1",
        "gen_ai.tool.call.arguments": '{"n": 1}',
        "gen_ai.tool.call.result": '{"n": 1, "items": [1]}',
    }
    assert (failed.name, failed.kind) == ("tools/call look", SpanKind.SERVER)
    assert failed.status.status_code is StatusCode.ERROR
    attributes = failed.attributes or {}
    assert (attributes["error.type"], attributes["mcp.method.name"]) == ("http_failed", "tools/call")


async def test_plain_functions_see_change_answer_and_refuse() -> None:
    bench = Bench()
    seen: list[Any] = []

    def before(call: Call, ctx: Any) -> Any:
        assert isinstance(call.arguments, Mapping)
        n = call.arguments["n"]
        seen.append((call.tool, n, ctx.attempt))
        if n == 1:
            raise DeniedError("not one")
        return {2: None, 3: {"n": 30}, 4: Outcome({"n": -4}), 5: {"n": "x"}, 6: "odd"}[n]

    async def around(_: Call, __: Any, proceed: Any) -> Any:
        outcome = await proceed()
        return {"wrapped": outcome.value["n"]}

    bench.tools.use(around)
    bench.tools.use(before, tools=["loo?"])
    values = [await bench.tools.call("look", {"n": n}) for n in range(1, 7)]
    codes = [one.value["wrapped"] if one.error is None else one.error.code for one in values]
    assert codes == ["denied", 2, 30, -4, "invalid_input", "invalid_definition"]
    assert bench.runs == [2, 30]
    assert seen[1] == ("look", 2, 1)
    await bench.tools.call("change", {"n": 9})
    assert len(seen) == 6
    with pytest.raises(DefinitionError, match="cannot be a middleware"):
        bench.tools.use(lambda: None)


def test_names_in_their_order() -> None:
    def mine(following: Any) -> Any:
        return following

    async def around(_: Call, __: Any, proceed: Any) -> Any:
        return await proceed()

    made = [logging_middleware(), only(cache_middleware(), "get_*"), mine, as_middleware(around)]
    assert [middleware_name(one) for one in made][:2] == ["logging", "cache (only get_*)"]
    assert names_for(made, "put_x") == ["logging", middleware_name(mine), middleware_name(around)]
