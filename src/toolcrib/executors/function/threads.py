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
from contextlib import suppress
from queue import SimpleQueue
from typing import Any

from toolcrib.errors import ToolFailed, UnavailableError

_Job = Callable[[], None]
MAX_THREADS = 256
"""Threads at once, those that hang included. Further calls wait for a thread until their timeout."""


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
            inbox.get()()
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
    context = contextvars.copy_context()

    def settle(set_result: Callable[[Any], None], value: Any) -> None:
        if not future.cancelled():
            set_result(value)

    def job() -> None:
        if future.cancelled():
            return
        try:
            result = future.set_result, context.run(function)
        except StopIteration:  # a future refuses it
            result = future.set_exception, RuntimeError("the tool raised StopIteration")
        except Exception as error:
            result = future.set_exception, error
        except BaseException as error:  # SystemExit must end neither this thread nor the event loop.
            text = f"{type(error).__name__}: {error}".removesuffix(": ")
            result = future.set_exception, ToolFailed(text, details={"exception": type(error).__name__})
        with suppress(RuntimeError):  # The loop is closed.
            loop.call_soon_threadsafe(settle, *result)
        # An exception refers to this frame, and the frame to what the call left in it.
        del result

    _pool.submit(job)
    return future
