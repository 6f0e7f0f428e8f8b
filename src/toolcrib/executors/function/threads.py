"""Daemon threads for synchronous tools: started on demand, kept for reuse, never waited for at exit.

A thread cannot be killed, so a tool that hangs keeps its thread. The next call uses an idle thread or a new
one, and the interpreter exits without joining the one that hangs. A `ThreadPoolExecutor` would join it.
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

MAX_THREADS = 256
"""Threads at once, those that hang included. Further calls wait for a thread until their timeout."""


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
        """Run the function unless its call was cancelled, and pass the result to the event loop."""
        if self._future.cancelled():
            return
        value, error = None, None
        try:
            value = self._context.run(self._function)
        except Exception as raised:
            error = raised
        except BaseException as raised:  # SystemExit must end neither this thread nor the event loop.
            text = f"{type(raised).__name__}: {raised}".removesuffix(": ")
            error = ToolFailed(text, details={"exception": type(raised).__name__})
        if isinstance(error, StopIteration):  # a future refuses it
            error = RuntimeError("the tool raised StopIteration")
        try:
            self._loop.call_soon_threadsafe(self._settle, value, error)
        except RuntimeError:  # The loop is closed.
            pass
        finally:
            # An exception refers to its frames, and they to what a call left there: an idle thread must not
            # keep it.
            del value, error

    def _settle(self, value: Any, error: Exception | None) -> None:
        if self._future.cancelled():
            return
        if error is None:
            self._future.set_result(value)
        else:
            self._future.set_exception(error)


class _ThreadPool:
    """The threads of this process, and the jobs that wait for one."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._idle: list[SimpleQueue[_Job]] = []
        self._waiting: deque[_Job] = deque()
        self._alive = 0

    def submit(self, job: _Job) -> None:
        """Pass the job to an idle or new thread, or queue it."""
        with self._lock:
            if self._idle:
                self._idle.pop().put(job)
            elif self._alive >= MAX_THREADS or not self._start(job):
                self._waiting.append(job)

    def _start(self, job: _Job) -> bool:
        """Start a thread. Return False if the system refuses one while others are busy."""
        # A queue for each thread: the last that became idle is used first, so its stack is still in the
        # cache.
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


_pool = _ThreadPool()


def _reset() -> None:
    global _pool
    _pool = _ThreadPool()


os.register_at_fork(after_in_child=_reset)  # a forked child has none of its parent's threads


def run_in_thread(function: Callable[[], Any]) -> asyncio.Future[Any]:
    """Run `function` in a thread with the caller's context variables.

    If the future is cancelled, the function still runs to its end, and its result is dropped.
    """
    loop = asyncio.get_running_loop()
    future: asyncio.Future[Any] = loop.create_future()
    _pool.submit(_Job(function, loop, future))
    return future
