"""Registered functions on the loop and in threads: nothing a tool does stops the others."""

from __future__ import annotations

import asyncio
import contextvars
import functools
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from toolcrib import Toolset, get_variable
from toolcrib.executors.function import threads
from toolcrib.executors.function.threads import run_in_thread

OUTER: contextvars.ContextVar[str] = contextvars.ContextVar("outer", default="unset")


@pytest.fixture
def gate() -> Iterator[threading.Event]:
    """Holds blocking tools until the test is over."""
    event = threading.Event()
    yield event
    event.set()


async def test_where_each_runs() -> None:
    tools, home = Toolset(), threading.get_ident()

    def where() -> bool:
        return threading.get_ident() == home

    async def where_async() -> bool:
        return where()

    tools.register("default", where)
    tools.register("thread", where, isolation="thread")
    tools.register("inline", where, isolation="inline")
    tools.register("default_async", where_async)
    tools.register("async", where_async, isolation="async")

    found = {name: await tools.execute(name) for name in tools.names}
    assert found == {
        "default": False,
        "thread": False,
        "inline": True,
        "default_async": True,
        "async": True,
    }


class Adder:
    def __init__(self, base: int) -> None:
        self.base = base

    def __call__(self, n: int) -> int:
        return self.base + n

    async def later(self, n: int) -> int:
        return self.base + n


class AsyncAdder(Adder):
    async def __call__(self, n: int) -> int:  # type: ignore[override]
        return self.base + n


def wrapped(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        return function(*args, **kwargs)

    return wrapper


@pytest.mark.parametrize(
    "target",
    [
        Adder(1),
        AsyncAdder(1),
        Adder(1).__call__,
        Adder(1).later,
        functools.partial(Adder(1)),
        wrapped(Adder(1).later),
    ],
    ids=["object", "async object", "method", "async method", "partial", "wrapper of async"],
)
async def test_all_kinds_of_callables(target: Any) -> None:
    tools = Toolset()
    tools.register("add", target)

    assert await tools.execute("add", {"n": 2}) == 3


async def test_a_blocking_tool_never_blocks_the_loop() -> None:
    tools = Toolset()

    @tools.tool
    def block() -> bool:
        return go.wait(100)

    go, call = threading.Event(), asyncio.create_task(tools.execute("block"))
    await asyncio.sleep(0.05)
    go.set()
    assert await call


async def test_context_variables_reach_the_thread() -> None:
    tools = Toolset()

    @tools.tool
    def look() -> list[Any]:
        found = [OUTER.get(), get_variable("n", int)]
        OUTER.set("changed in the thread")
        return found

    token = OUTER.set("set outside")
    assert await tools.execute("look", variables={"n": 7}) == ["set outside", 7]
    assert OUTER.get() == "set outside"
    OUTER.reset(token)


async def test_threads_are_used_again() -> None:
    used = {await run_in_thread(threading.current_thread) for _ in range(200)}

    assert len(used) <= 100  # One that has just answered may not be free yet.


async def test_many_at_once_wait_for_a_thread() -> None:
    tools = Toolset()
    lock, at_once, most = threading.Lock(), 0, 0

    @tools.tool
    def work(n: int) -> int:
        nonlocal at_once, most
        with lock:
            at_once += 1
            most = max(most, at_once)
        time.sleep(0.01)
        with lock:
            at_once -= 1
        return n

    results = await asyncio.gather(*(tools.call("work", {"n": n}) for n in range(1_000)))

    assert [result.value for result in results] == list(range(1_000))
    assert most <= threads.MAX_THREADS


async def test_a_hanging_tool_times_out_and_blocks_nobody(gate: threading.Event) -> None:
    tools = Toolset()

    @tools.tool("hang", timeout_ms=30)
    def hang() -> None:
        gate.wait(100)

    @tools.tool
    def quick() -> int:
        return 1

    results = await asyncio.gather(*(tools.call("hang") for _ in range(20)), tools.call("quick"))

    assert [result.error.code for result in results[:-1] if result.error] == ["timed_out"] * 20
    assert results[-1].value == 1


async def test_when_all_threads_hang_calls_wait_until_their_time_is_up(
    gate: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(threads, "MAX_THREADS", 0)
    monkeypatch.setattr(threads, "_pool", threads._ThreadPool())
    tools = Toolset()
    ran: list[str] = []
    tools.register("late", lambda: ran.append("late"), timeout_ms=30)
    tools.register("work", lambda: ran.append("work"))

    result = await tools.call("late")
    assert result.error is not None
    assert result.error.code == "timed_out"

    monkeypatch.setattr(threads, "MAX_THREADS", 1)
    assert (await tools.call("work")).ok
    await run_in_thread(lambda: None)
    assert ran == ["work"]


async def test_no_more_threads_is_an_error_not_a_hang(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threads, "_pool", threads._ThreadPool())
    monkeypatch.setattr(threading.Thread, "start", refuse)
    tools = Toolset()
    tools.register("work", lambda: 1)

    result = await tools.call("work")
    assert result.error is not None
    assert result.error.code == "unavailable"


async def test_a_cancelled_call_leaves_its_thread_unheard(gate: threading.Event) -> None:
    tools = Toolset()

    @tools.tool
    def hang() -> None:
        gate.wait(100)
        raise SystemExit(7)

    call = asyncio.create_task(tools.call("hang"))
    await asyncio.sleep(0.01)
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    gate.set()
    assert await run_in_thread(lambda: 1) == 1


HANGING = """
import asyncio, time
from toolcrib import Toolset

tools = Toolset(timeout_ms=50)

@tools.tool
def hang() -> None:
    time.sleep(6000)

print(asyncio.run(tools.call("hang")).error.code)
"""


def test_a_hanging_tool_does_not_hold_up_the_interpreters_end() -> None:
    done = subprocess.run([sys.executable, "-c", HANGING], check=True, capture_output=True, text=True)

    assert done.stdout.strip() == "timed_out"


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_child_has_threads_of_its_own() -> None:
    async def ask() -> int:
        found: int = await asyncio.wait_for(run_in_thread(lambda: 42), 100)
        return found

    assert asyncio.run(ask()) == 42
    child = os.fork()
    if child == 0:
        os._exit(asyncio.run(ask()))
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 42
