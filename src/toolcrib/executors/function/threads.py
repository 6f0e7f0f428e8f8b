"""Daemon threads for synchronous tools: started on demand, kept for reuse, never waited for at exit.

A thread cannot be killed, so a tool that hangs keeps its thread. Here that thread is lost to nobody else:
the next call takes an idle one or a new one, and the interpreter ends without joining it (which is what a
`ThreadPoolExecutor` would do).
"""

from __future__ import annotations

import asyncio
import contextvars
import os
import threading
from collections import deque
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any

from toolcrib.errors import ToolFailed, UnavailableError

__all__ = ["MAX_THREADS", "run_in_thread"]

MAX_THREADS = 256
"""Threads alive at once, hung ones included; calls beyond wait for one, at most until their time is up."""


class _Job:
    """One function to run for a waiting call."""

    __slots__ = ("_context", "_function", "_future", "_loop")

    def __init__(
        self, function: Callable[[], Any], loop: asyncio.AbstractEventLoop, future: asyncio.Future[Any]
    ) -> None:
        self._function = function
        self._loop = loop
        self._future = future
        self._context = contextvars.copy_context()

    def run(self) -> None:
        """Run it, unless nobody waits for it any more, and tell the loop."""
        if self._future.cancelled():
            return
        value, error = None, None
        try:
            value = self._context.run(self._function)
        except Exception as raised:
            error = raised
        except BaseException as raised:  # this thread goes on, and so does the loop
            told = f"{type(raised).__name__}: {raised}".removesuffix(": ")
            error = ToolFailed(told, details={"exception": type(raised).__name__})
        if isinstance(error, StopIteration):  # a future cannot hold one
            error = RuntimeError("the tool raised StopIteration")
        try:
            self._loop.call_soon_threadsafe(self._settle, value, error)
        except RuntimeError:  # the loop is closed: nobody waits any more
            pass
        finally:
            del value, error

    def _settle(self, value: Any, error: Exception | None) -> None:
        if self._future.cancelled():
            return
        if error is None:
            self._future.set_result(value)
        else:
            self._future.set_exception(error)


class _Crew:
    """The threads of this process, and the jobs that wait for one."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._idle: list[SimpleQueue[_Job]] = []
        self._waiting: deque[_Job] = deque()
        self._alive = 0

    def submit(self, job: _Job) -> None:
        """Give the job to an idle thread, to a new one, or let it wait."""
        with self._lock:
            if self._idle:
                self._idle.pop().put(job)
            elif self._alive >= MAX_THREADS or not self._start(job):
                self._waiting.append(job)

    def _start(self, job: _Job) -> bool:
        """Start a thread; False where the system gives no more but others are at work."""
        inbox: SimpleQueue[_Job] = SimpleQueue()
        inbox.put(job)
        try:
            threading.Thread(target=self._work, args=(inbox,), name="toolcrib-tool", daemon=True).start()
        except RuntimeError as error:
            if self._alive == 0:
                raise UnavailableError(f"no thread can be started: {error}", retryable=True) from None
            return False
        self._alive += 1
        return True

    def _work(self, inbox: SimpleQueue[_Job]) -> None:
        while True:
            inbox.get().run()
            with self._lock:
                if self._waiting:
                    inbox.put(self._waiting.popleft())
                else:
                    self._idle.append(inbox)


_crew = _Crew()


def _forget() -> None:
    global _crew
    _crew = _Crew()


os.register_at_fork(after_in_child=_forget)  # a forked child has none of its parent's threads


def run_in_thread(function: Callable[[], Any]) -> asyncio.Future[Any]:
    """Run `function` in a thread with the caller's context variables. A cancelled one finishes unheard."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[Any] = loop.create_future()
    _crew.submit(_Job(function, loop, future))
    return future
