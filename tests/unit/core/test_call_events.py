"""The bus of events of running calls."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable
from contextlib import aclosing

import pytest

from tests.patience import patient
from toolcrib import Context, Result, Toolset
from toolcrib.core.controls import Controls, Proceed
from toolcrib.errors import RetryableError
from toolcrib.guard import Redactor
from toolcrib.spec import Call, Caller, CallEvent


@pytest.fixture
def tools() -> Toolset:
    tools = Toolset()

    @tools.tool
    def work(ctx: Context, steps: int) -> int:
        """Report each step."""
        for step in range(steps):
            ctx.progress(step, steps, "going")
        return steps

    @tools.tool
    def fail() -> None:
        """Fail."""
        raise ValueError("no")

    return tools


def kinds(events: list[CallEvent]) -> list[str]:
    return [event.kind for event in events]


async def test_progress_has_six_decimals_at_most(tools: Toolset) -> None:
    @tools.tool
    def add(ctx: Context) -> None:
        """Report sums."""
        ctx.progress(0.1 + 0.2, 1 / 3 * 3)
        ctx.progress(2 / 3, 12_345_678.123_456_789)
        ctx.progress(10**18, float("inf"))

    events = tools.subscribe()
    await tools.call("add")
    events.close()
    reported = [(event.done, event.total) async for event in events if event.kind == "progress"]
    assert reported == [(0.3, 1.0), (0.666667, 12_345_678.123457), (10**18, float("inf"))]
    assert [type(done) for done, _ in reported] == [float, float, int]


async def test_a_subscriber_gets_the_events_of_a_call_in_order(tools: Toolset) -> None:
    events = tools.subscribe()
    result = await tools.invoke(Call("work", {"steps": 2}, caller="cli"))
    events.close()
    found = [event async for event in events]
    assert kinds(found) == ["started", "progress", "progress", "ended"]
    assert {(event.tool, event.caller, event.call_id) for event in found} == {("work", "cli", result.call_id)}
    assert (found[1].done, found[1].total, found[1].message) == (0, 2, "going")
    assert (found[-1].status, found[-1].code) == ("ok", None)


async def test_a_failed_call_and_one_that_was_cancelled_end_too(tools: Toolset) -> None:
    running = asyncio.Event()

    @tools.tool
    async def wait() -> None:
        """Wait."""
        running.set()
        await asyncio.sleep(60)

    events = tools.subscribe()
    await tools.call("fail")
    task = asyncio.ensure_future(tools.call("wait"))
    await running.wait()
    task.cancel()
    await asyncio.wait([task])
    events.close()
    ended = [event async for event in events if event.kind == "ended"]
    assert [(event.tool, event.status) for event in ended] == [("fail", "error"), ("wait", "cancelled")]
    assert ended[0].code == "tool_failed"


async def test_the_listener_of_a_call_hears_its_events_as_well(tools: Toolset) -> None:
    heard: list[CallEvent] = []
    events = tools.subscribe()
    call = Call("work", {"steps": 2}, on_event=heard.append)
    await tools.invoke(call)
    await tools.invoke(call)
    events.close()
    assert kinds(heard) == ["started", "progress", "progress", "ended"] * 2
    assert [event async for event in events] == heard


async def test_a_listener_that_fails_does_not_make_the_call_fail(
    tools: Toolset, caplog: pytest.LogCaptureFixture
) -> None:
    def listen(event: CallEvent) -> None:
        raise RuntimeError("full")

    assert (await tools.call("work", {"steps": 2}, on_event=listen)).ok
    assert "a listener of work failed" in caplog.text


async def test_subscribers_hear_nothing_of_unknown_tools_and_nothing_once_closed(tools: Toolset) -> None:
    events = tools.subscribe()
    await tools.call("no_such_tool")
    events.close()
    await tools.call("work", {"steps": 1})
    assert [event async for event in events] == []
    assert tools.pipeline.bus.subscriptions == ()


async def test_a_subscriber_who_comes_later_hears_the_rest_of_a_running_call(tools: Toolset) -> None:
    begun, resume = asyncio.Event(), asyncio.Event()

    @tools.tool
    async def wait(ctx: Context) -> None:
        """Wait."""
        begun.set()
        await resume.wait()
        ctx.progress(1)

    task = asyncio.ensure_future(tools.call("wait"))
    await begun.wait()
    events = tools.subscribe()
    resume.set()
    result = await task
    events.close()
    found = [event async for event in events]
    assert kinds(found) == ["progress", "ended"]
    assert {event.call_id for event in found} == {result.call_id}


async def test_a_token_hears_of_its_own_tools_alone(tools: Toolset) -> None:
    events = tools.subscribe(identity=Caller("t", frozenset({"invoke"}), tools=("fa*",)))
    await tools.call("work", {"steps": 1})
    await tools.call("fail")
    events.close()
    assert {event.tool async for event in events} == {"fail"}


async def test_a_slow_subscriber_loses_the_oldest_events_and_is_told_how_many(tools: Toolset) -> None:
    events = tools.subscribe(size=3)
    await tools.call("work", {"steps": 10})
    events.close()
    found = [event async for event in events]
    assert kinds(found) == ["progress", "progress", "ended"]
    assert [event.missed for event in found] == [9, 0, 0]
    assert found[0].as_dict()["missed"] == 9


@pytest.mark.parametrize("isolation", ["inline", "thread"])
async def test_the_text_that_waits_for_a_slow_subscriber_is_limited(tools: Toolset, isolation: str) -> None:
    parts = 64

    def pour(ctx: Context) -> None:
        for _ in range(parts):
            ctx.chunk("x" * 50_000)
            ctx.progress(1, message="x" * 50_000)

    tools.register("pour", pour, isolation=isolation)
    ends = tools.subscribe()
    stream = tools.stream("pour")
    first = await anext(stream)
    async for event in ends:
        if event.kind == "ended":
            break
    rest = [event for event in [first, *[event async for event in stream]] if isinstance(event, CallEvent)]
    ends.close()
    assert sum(len(event.text) + len(event.message) for event in rest) <= 1_048_576
    assert len(rest) + sum(event.missed for event in rest) == 2 * parts + 2
    assert rest[-1].kind == "ended"


async def test_calls_of_another_event_loop_are_heard_too(tools: Toolset) -> None:
    events = tools.subscribe()
    thread = threading.Thread(target=lambda: tools.call_sync("work", {"steps": 1}))
    thread.start()
    async with asyncio.timeout(patient(20)):
        assert [(await anext(events)).kind for _ in range(3)] == ["started", "progress", "ended"]
    thread.join()
    events.close()


# -- chunks and streams ------------------------------------------------------------------------


@pytest.fixture
def poem(tools: Toolset) -> Toolset:
    def lines(ctx: Context) -> str:
        """Say a poem."""
        for line in ("one\n", "two\n"):
            ctx.chunk(line)
        return "one\ntwo\n"

    tools.register("poem", lines, isolation="thread")
    return tools


async def test_a_stream_yields_the_events_of_a_call_and_then_its_result(poem: Toolset) -> None:
    *events, result = [event async for event in poem.stream("poem")]
    assert [(event.kind, event.text) for event in events if isinstance(event, CallEvent)] == [
        ("started", ""),
        ("chunk", "one\n"),
        ("chunk", "two\n"),
        ("ended", ""),
    ]
    assert isinstance(result, Result)
    assert result.value == "one\ntwo\n"
    assert {event.call_id for event in events} == {result.call_id}


async def test_the_result_of_a_failing_call_ends_its_stream_too(tools: Toolset) -> None:
    *_, ended, result = [event async for event in tools.stream("fail")]
    assert isinstance(ended, CallEvent)
    assert isinstance(result, Result)
    assert result.error is not None
    assert (ended.status, ended.code) == ("error", result.error.code)


async def test_chunks_are_heard_by_the_caller_alone(poem: Toolset) -> None:
    events = poem.subscribe()
    await poem.call("poem")
    events.close()
    assert kinds([event async for event in events]) == ["started", "ended"]


async def test_leaving_a_stream_cancels_its_call(tools: Toolset) -> None:
    cancelled = asyncio.Event()

    @tools.tool
    async def wait(ctx: Context) -> None:
        """Wait."""
        ctx.chunk("begun")
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            cancelled.set()
            raise

    events = tools.subscribe()
    async with aclosing(tools.stream("wait")) as stream:
        async for event in stream:
            if isinstance(event, CallEvent) and event.kind == "chunk":
                break
    assert cancelled.is_set()
    events.close()
    assert [event.status async for event in events] == [None, "cancelled"]


async def test_a_chunk_is_text(tools: Toolset) -> None:
    def wrong(ctx: Context) -> None:
        ctx.chunk(b"bytes")  # type: ignore[arg-type]

    tools.register("wrong", wrong)
    assert "a chunk is text, not bytes" in str((await tools.call("wrong")).error)


async def test_a_thread_that_outlives_its_call_is_not_heard_any_more(tools: Toolset) -> None:
    ended, done = threading.Event(), threading.Event()

    def hang(ctx: Context) -> None:
        ended.wait(100)
        ctx.chunk("late")
        ctx.progress(1)
        done.set()

    tools.register("hang", hang, isolation="thread", timeout_ms=20)
    events = tools.subscribe()
    heard: list[CallEvent] = []
    result = await tools.call("hang", on_event=heard.append)
    assert result.error is not None
    ended.set()
    assert await asyncio.to_thread(done.wait, 100)
    await asyncio.sleep(0)
    events.close()
    assert kinds(heard) == kinds([event async for event in events]) == ["started", "ended"]


def with_secret(value: str) -> Toolset:
    """A toolset whose calls know one secret, as those of a project do."""
    redactor = Redactor({"TOKEN": value})

    def know(proceed: Proceed) -> Proceed:
        def step(ctx: Context) -> Awaitable[Result]:
            ctx.redactor = redactor
            return proceed(ctx)

        return step

    return Toolset(controls=Controls(approve=(know,), mask=redactor.redact))


async def test_a_secret_is_masked_also_where_it_is_split_across_chunks() -> None:
    tools = with_secret("s3cret-value")

    @tools.tool
    def leak(ctx: Context) -> None:
        """Leak."""
        for part in ("it is s3c", "ret-va", "lue, you know", " s3cret-val"):
            ctx.chunk(part)

    found = [event async for event in tools.stream("leak") if isinstance(event, CallEvent)]
    text = "".join(event.text for event in found)
    assert text.endswith(", you know s3cret-val")
    assert "s3cret-value" not in text
    assert text.startswith("it is ***")
    assert kinds(found[-2:]) == ["chunk", "ended"]


async def test_chunks_of_another_attempt_are_another_text() -> None:
    tools = with_secret("s3cret-value")

    @tools.tool
    def twice(ctx: Context) -> None:
        """Fail once."""
        ctx.chunk("a s3cret" if ctx.attempt == 1 else "-value b")
        if ctx.attempt == 1:
            raise RetryableError("again")

    found = [event async for event in tools.stream("twice") if isinstance(event, CallEvent)]
    assert [(event.attempt, event.text) for event in found if event.kind == "chunk"] == [
        (1, "a "),
        (2, "-value b"),
    ]


def test_the_json_form_of_an_event_holds_what_is_set() -> None:
    event = CallEvent("progress", "c-1", "work", "cli", done=0, total=2)
    assert event.as_dict() == {
        "kind": "progress",
        "callId": "c-1",
        "tool": "work",
        "caller": "cli",
        "done": 0,
        "total": 2,
    }
