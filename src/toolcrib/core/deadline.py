"""Run a coroutine with a time limit, at almost no cost where it never waits.

`asyncio.timeout` arms a timer on entry. Most tools never wait for anything, and the timer would be the most
expensive part of their call. So the coroutine is started first, and the timer is armed only when it first
waits. That is why this module drives the coroutine by hand; nothing else in the package does.

When the time is up, the coroutine is cancelled, as by `asyncio.timeout`. It then has `CLEAN_UP_S` seconds to
clean up. A coroutine that keeps waiting after that is closed, so that it cannot hold up its caller forever.
"""

from __future__ import annotations

import asyncio
import types
from collections.abc import Callable, Coroutine, Generator
from contextlib import suppress
from typing import Any, TypeVar

from toolcrib.core.failures import failed

T = TypeVar("T")

CLEAN_UP_S = 2.0
"""Seconds that a cancelled coroutine has to clean up before it is closed."""


class DeadlineExceeded(Exception):
    """The coroutine has used up its time."""


async def run_with_deadline(
    work: Coroutine[Any, Any, T], seconds: Callable[[], float], idle_left: Callable[[], float] | None = None
) -> T:
    """Return the result of `work`; raise `DeadlineExceeded` when its time is up.

    `seconds` is called when the work first waits and returns the time that is left then. `idle_left` returns
    for how long the work may still be silent, and is called again when that time is over. A GeneratorExit
    that the work raises itself becomes a `ToolFailed`: for the caller it would mean that the call is dropped.
    """
    at_once, result = begin(work, seconds, idle_left)
    return result if at_once else await result  # type: ignore[no-any-return] # what the work returned


def begin(
    work: Coroutine[Any, Any, T], seconds: Callable[[], float], idle_left: Callable[[], float] | None
) -> tuple[bool, Any]:
    """Do the same, but return True and the result if the work never waits, else False and what to await."""
    try:
        awaited = work.send(None)
    except StopIteration as end:
        return True, end.value
    except GeneratorExit as error:
        raise failed(error) from error
    return False, _continue(work, awaited, seconds(), idle_left)


async def _continue(
    work: Coroutine[Any, Any, T], awaited: Any, seconds: float, idle_left: Callable[[], float] | None
) -> T:
    """Finish work that waits for something, within this many seconds."""
    limit = asyncio.timeout(seconds)
    idle = None
    try:
        async with limit:
            idle = None if idle_left is None else _Idle(limit, idle_left)
            result = await _resume(work, awaited, limit)
    except Exception as error:
        # The work can turn its cancellation into any other error; its time was up all the same.
        if limit.expired():
            raise DeadlineExceeded from error
        raise
    finally:
        if idle is not None:
            idle.timer.cancel()
    if limit.expired():  # The work has caught its cancellation and returned a value all the same.
        raise DeadlineExceeded
    return result


@types.coroutine
def _resume(work: Coroutine[Any, Any, T], awaited: Any, limit: asyncio.Timeout) -> Generator[Any, Any, T]:
    """Drive the work to its end, and close it if it is still there after its time to clean up."""
    clean_up: _CleanUp | None = None
    try:
        while True:
            try:
                sent = yield awaited
            except GeneratorExit:  # The call itself is dropped, and takes the work with it.
                work.close()
                raise
            except BaseException as error:
                # The second cancellation, which `_CleanUp` sent: the work was asked to stop and still waits.
                if clean_up is not None and clean_up.is_over():
                    _close(work)
                    raise
                awaited = _advance(work.throw, error)
                # Not after a caller's own cancellation: then the work has all the time that it needs.
                if clean_up is None and limit.expired():
                    clean_up = _CleanUp()
            else:
                awaited = _advance(work.send, sent)
    except StopIteration as end:
        return end.value  # type: ignore[no-any-return] # what the work returned
    finally:
        if clean_up is not None:
            clean_up.stop()


class _Idle:
    """Ends a time limit early once the work has been silent for too long."""

    def __init__(self, limit: asyncio.Timeout, left: Callable[[], float]) -> None:
        self._limit, self._left = limit, left
        self.timer = asyncio.get_running_loop().call_later(left(), self._look)

    def _look(self) -> None:
        # A report only notes its time and does not move this timer, so look when the last report was.
        left, loop = self._left(), asyncio.get_running_loop()
        if left > 0:
            self.timer = loop.call_later(left, self._look)
        elif not self._limit.expired():
            # Only a limit that still runs can be moved; asyncio raises RuntimeError for one that is over.
            self._limit.reschedule(loop.time())


class _CleanUp:
    """The time that cancelled work has to clean up. When it is over, the task is cancelled again."""

    def __init__(self) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._task = task
        self._over = False
        self._timer = asyncio.get_running_loop().call_later(CLEAN_UP_S, self._end)

    def _end(self) -> None:
        self._over = True
        self._task.cancel()

    def is_over(self) -> bool:
        """Return True if the cancellation that just arrived is this one, and take it back."""
        if self._over:
            # `asyncio.timeout` compares the number of cancellations. With this one left, it would take the
            # end of its time for a cancellation from outside and raise no TimeoutError.
            self._task.uncancel()
        return self._over

    def stop(self) -> None:
        """Stop the timer."""
        self._timer.cancel()


def _advance(step: Callable[[Any], Any], value: Any) -> Any:
    """Take one step of the work and return what it waits for next."""
    try:
        return step(value)
    except GeneratorExit as error:
        raise failed(error) from error


def _close(work: Coroutine[Any, Any, Any]) -> None:
    """Close work that does not stop, whatever it does about that."""
    with suppress(Exception, asyncio.CancelledError):  # RuntimeError: it waits again, but nobody wakes it.
        work.close()
