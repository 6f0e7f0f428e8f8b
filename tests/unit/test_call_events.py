"""The feed of events of running calls."""

from __future__ import annotations

import asyncio
import threading

import pytest

from toolcrib import Context, Toolset
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


async def test_the_listener_of_a_call_hears_its_progress_as_well(tools: Toolset) -> None:
    heard: list[float] = []
    events = tools.subscribe()
    call = Call("work", {"steps": 2}, on_progress=lambda done, _, __: heard.append(done))
    await tools.invoke(call)
    await tools.invoke(call)
    events.close()
    assert heard == [0, 1, 0, 1]
    assert len([event async for event in events]) == 8


async def test_nothing_is_published_without_subscribers_or_about_unknown_tools(tools: Toolset) -> None:
    plain = tools.invoke
    events = tools.subscribe()
    await tools.call("no_such_tool")
    events.close()
    await tools.call("work", {"steps": 1})
    assert [event async for event in events] == []
    assert tools.invoke == plain


async def test_a_token_hears_of_its_own_tools_alone(tools: Toolset) -> None:
    events = tools.subscribe(identity=Caller("t", frozenset({"invoke"}), tools=("fa*",)))
    await tools.call("work", {"steps": 1})
    await tools.call("fail")
    events.close()
    assert {event.tool async for event in events} == {"fail"}


async def test_a_slow_subscriber_loses_the_oldest_events_and_knows_how_many(tools: Toolset) -> None:
    events = tools.subscribe(size=3)
    await tools.call("work", {"steps": 10})
    events.close()
    assert kinds([event async for event in events]) == ["progress", "progress", "ended"]
    assert events.lost == 9


async def test_calls_of_another_event_loop_are_heard_too(tools: Toolset) -> None:
    events = tools.subscribe()
    thread = threading.Thread(target=lambda: tools.call_sync("work", {"steps": 1}))
    thread.start()
    async with asyncio.timeout(10):
        assert [(await anext(events)).kind for _ in range(3)] == ["started", "progress", "ended"]
    thread.join()
    events.close()
