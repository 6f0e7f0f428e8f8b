"""Calls in a moment in which this process may open nothing more: refused at once, or made; never a hang.

Each test runs in a process of its own: a limit of open files binds all threads of a process.
"""

from __future__ import annotations

import asyncio
import os
import resource
import sys
import threading
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.commands import complete
from tests.crib import Crib
from tests.descriptors import descriptors, under_way
from tests.integration.executors import isolated_tools
from tests.integration.sandbox.ground import PATH, eventually
from toolcrib import Retry, Toolset
from toolcrib.errors import ToolcribError, UnavailableError
from toolcrib.sandbox import Confinement, Warmth, configure, run
from toolcrib.sandbox.host.pool import shared
from toolcrib.sandbox.stream import open_stream

LIMIT_MS = 120_000
"""A call that hangs ends so late, as no call here may."""
JOB = Confinement(argv=("echo", "x"), cwd="/tmp", env={"PATH": PATH}, timeout_ms=LIMIT_MS)


def in_a_process(check: Callable[..., Coroutine[Any, Any, None]], *given: Callable[..., Any] | Path) -> None:
    """Run a check of this module in a new process."""
    words = ", ".join(repr(str(one)) if isinstance(one, Path) else f"it.{one.__name__}" for one in given)
    code = f"import {__name__} as it; it.with_few_files(it.{check.__name__}({words}))"
    done = complete(
        [sys.executable, "-c", code], cwd=Path(__file__).parents[3], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr


def with_few_files(check: Coroutine[Any, Any, None]) -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (512, hard))
    configure(Warmth(spares=0))
    asyncio.run(check)


@contextmanager
def none_left(free: int) -> Iterator[None]:
    """Hold every descriptor that this process may have, but for so many."""
    held: list[int] = []
    try:
        try:
            while True:
                held.append(os.open(os.devnull, os.O_RDONLY))
        except OSError:
            for _ in range(free):
                os.close(held.pop())
        yield
    finally:
        for fd in held:
            os.close(fd)


async def in_need(call: Callable[[], Awaitable[str]], steps: int, free: int) -> None:
    """Make a call during which descriptors run out: it never hangs until its limit, and all is well after."""
    task = asyncio.ensure_future(call())
    for _ in range(steps):
        await asyncio.sleep(0)
    with none_left(free):
        await asyncio.sleep(0.1)
    outcome = await task
    assert outcome in ("done", "unavailable"), outcome
    after = await call()
    assert after == "done", (after, outcome, steps, free)


def message_of(error: ToolcribError) -> str:
    return error.code if error.retryable else f"not to be tried again: {error}"


async def command() -> str:
    try:
        return "done" if (await run(JOB)).stdout == b"x\n" else "odd"
    except UnavailableError as error:
        return message_of(error)


async def stream() -> str:
    try:
        one = await open_stream(JOB)
    except UnavailableError as error:
        return message_of(error)
    try:
        await asyncio.wait([one.ended], timeout=LIMIT_MS / 1000)
        words = one.how()
        return "done" if "exit code 0" in words else "unavailable" if "did not start" in words else words
    except UnavailableError as error:
        return message_of(error)
    finally:
        await one.aclose()


async def function() -> str:
    tools = Toolset(retry=Retry(max_attempts=1), timeout_ms=LIMIT_MS)
    tools.register("where_async", isolated_tools.where_async, isolation="process")
    result = await tools.call("where_async", {"n": 1})
    if result.error is None:
        return "done" if result.value == 2 else "odd"
    return message_of(result.error)


@pytest.mark.parametrize("call", [command, stream, function], ids=lambda call: str(call.__name__))
def test_no_call_waits_for_what_was_never_taken_in(call: Callable[[], Awaitable[str]]) -> None:
    in_a_process(no_call_waits, call)


async def no_call_waits(call: Callable[[], Awaitable[str]]) -> None:
    assert await call() == "done"
    before = descriptors() + 4  # A launcher may keep a spare ready: its socket and pidfd.
    for steps in range(1, 5):
        for free in (0, 1, 2, 4, 6):
            await in_need(call, steps, free)
    assert await asyncio.to_thread(eventually, lambda: descriptors() <= before)
    assert await asyncio.to_thread(eventually, idle)


def idle() -> bool:
    """Whether no sandbox of ours is left."""
    return not any(Path(f"/proc/{pid}/task/{pid}/children").read_text() for pid in shared().pids().values())


@pytest.mark.parametrize("call", [command, function], ids=lambda call: str(call.__name__))
def test_a_launcher_that_finds_no_room_now_is_started_later(call: Callable[[], Awaitable[str]]) -> None:
    in_a_process(launcher_is_started_later, call)


async def launcher_is_started_later(call: Callable[[], Awaitable[str]]) -> None:
    assert await call() == "done"
    for steps in range(1, 5):
        for free in (0, 4, 8):
            shared().close()
            await in_need(call, steps, free)
    # Each close ends the thread of its time, not one that was started after it.
    assert await asyncio.to_thread(eventually, lambda: len(launcher_threads()) == 1)


def launcher_threads() -> list[threading.Thread]:
    return [one for one in threading.enumerate() if one.name == "toolcrib-launchers"]


@pytest.mark.skipif(os.geteuid() == 0, reason="the kernel counts the descriptors under way of other users")
@pytest.mark.parametrize("call", [command, stream, function], ids=lambda call: str(call.__name__))
def test_a_call_waits_while_too_many_descriptors_are_under_way(call: Callable[[], Awaitable[str]]) -> None:
    in_a_process(call_waits, call)


async def call_waits(call: Callable[[], Awaitable[str]]) -> None:
    assert await call() == "done"
    for steps in range(12):
        task = asyncio.ensure_future(call())
        for _ in range(steps):
            await asyncio.sleep(0.0003)
        with under_way(600):
            await asyncio.sleep(0.02)
        assert (outcome := await task) == "done", (outcome, steps)


@pytest.mark.skipif(os.geteuid() == 0, reason="the kernel counts the descriptors under way of other users")
def test_a_call_that_has_waited_for_descriptors_until_its_limit_says_so(tmp_path: Path) -> None:
    in_a_process(call_says_why, tmp_path)


async def call_says_why(folder: str) -> None:
    crib = Crib(Path(folder))
    crib.shell()
    async with crib.open() as project:
        assert (await project.call("sh", {"c": "true"})).ok
        error, tries = None, 0
        with under_way(600):
            while error is None and tries < 5:  # A call for which a process waited may need no more of them.
                error = (await project.call("sh", {"c": "true"}, timeout_ms=500)).error
                tries += 1
    assert error is not None
    assert (error.code, "ETOOMANYREFS" in (error.hint or "")) == ("timed_out", True), error


def test_calls_go_on_after_the_pool_s_thread_ended_by_an_error() -> None:
    in_a_process(calls_go_on)


async def calls_go_on() -> None:
    assert (await run(JOB)).stdout == b"x\n"

    def fail() -> None:
        raise OSError

    (thread,) = launcher_threads()
    shared().tasks.put(fail)
    await asyncio.to_thread(thread.join, LIMIT_MS / 1000)
    assert not thread.is_alive()
    shared()._launchers[""].socket.close()  # So that the next call starts another.
    assert (await run(JOB)).stdout == b"x\n"
