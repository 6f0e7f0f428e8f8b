"""Wait until another process has written something, without a thread and without a poll for each waiter."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Generic, TypeVar

from toolcrib.errors import StateUnavailable
from toolcrib.state.database import Database, ask

if TYPE_CHECKING:
    import asyncio

_V = TypeVar("_V")

_INTERVAL_S = 0.2
"""Seconds until a write of another process is noticed."""
_RECHECK_S = 1.0
"""Seconds between checks when nothing was written: a request may expire, its process may die."""


class DatabaseWatch(Generic[_V]):
    """Coroutines of any event loop that wait, each for the result of one key.

    `check` takes the keys waited for and returns the results that exist. In each event loop one task asks
    the databases for writes by other processes, as long as anybody waits there.
    """

    def __init__(self, check: Callable[[Sequence[str]], Mapping[str, _V]], *databases: Database) -> None:
        self._check = check
        self._databases = databases
        self._remote = next((one for one in databases if one.waits), None)
        self._loops: dict[asyncio.AbstractEventLoop, _LoopWaiters[_V]] = {}
        self._lock = threading.Lock()

    def notify(self) -> None:
        """Check again at once, because this process has written something. Callable from any thread."""
        with self._lock:
            loops = list(self._loops.values())
        for waiters in loops:
            try:
                waiters.loop.call_soon_threadsafe(waiters.written.set)
            except RuntimeError:  # That loop is closed: nobody waits in it.
                continue

    async def wait(self, key: str, timeout_s: float | None) -> _V | None:
        """Return the key's result, or None when the time is up. `StateUnavailable` if it cannot be read."""
        import asyncio

        # Before anything is set up: most results are there already.
        found = (await self._asked([key])).get(key)
        if found is not None or (timeout_s is not None and timeout_s <= 0):
            return found
        loop = asyncio.get_running_loop()
        future: asyncio.Future[_V] = loop.create_future()
        waiters = self._add(loop, key, future)
        try:
            # Again: the answer took its time, in which the result may have been written.
            if self._remote and (found := (await self._asked([key])).get(key)) is not None:
                return found
            async with asyncio.timeout(timeout_s):
                return await future
        except TimeoutError:
            return None
        finally:
            self._remove(waiters, key, future)

    async def _asked(self, keys: Sequence[str]) -> Mapping[str, _V]:
        return await ask(self._remote or self._databases[0], lambda: self._check(keys))

    def _versions(self) -> tuple[int, ...]:
        return tuple(database.version for database in self._databases)

    def _add(self, loop: asyncio.AbstractEventLoop, key: str, future: asyncio.Future[_V]) -> _LoopWaiters[_V]:
        with self._lock:
            waiters = self._loops.setdefault(loop, _LoopWaiters(loop))
        waiters.futures.setdefault(key, set()).add(future)
        if waiters.task is None:
            waiters.written.set()  # A write before the task's first check must not be missed.
            waiters.task = loop.create_task(self._serve(waiters))
        return waiters

    def _remove(self, waiters: _LoopWaiters[_V], key: str, future: asyncio.Future[_V]) -> None:
        waiters.futures[key].discard(future)
        if not waiters.futures[key]:
            del waiters.futures[key]
        if not waiters.futures:
            with self._lock:
                self._loops.pop(waiters.loop, None)
            if waiters.task is not None:
                waiters.task.cancel()
                waiters.task = None

    async def _serve(self, waiters: _LoopWaiters[_V]) -> None:
        import asyncio

        seen: tuple[int, ...] = ()
        checked = float("-inf")
        while True:
            try:
                versions = await ask(self._remote or self._databases[0], self._versions)
                now = time.monotonic()
                if waiters.written.is_set() or versions != seen or now - checked >= _RECHECK_S:
                    waiters.written.clear()
                    seen, checked = versions, now
                    for key, value in (await self._asked(list(waiters.futures))).items():
                        for future in waiters.unfinished(key):
                            future.set_result(value)
            except Exception as error:  # Else every waiter would wait for ever.
                if not (isinstance(error, StateUnavailable) and error.retryable):
                    for future in waiters.unfinished(*waiters.futures):
                        future.set_exception(error)
            try:
                async with asyncio.timeout(_INTERVAL_S):
                    await waiters.written.wait()
            except TimeoutError:
                continue


class _LoopWaiters(Generic[_V]):
    """The waiters of one event loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        import asyncio

        self.loop = loop
        self.written = asyncio.Event()
        self.futures: dict[str, set[asyncio.Future[_V]]] = {}
        self.task: asyncio.Task[None] | None = None

    def unfinished(self, *keys: str) -> list[asyncio.Future[_V]]:
        """Return those who still wait for one of these keys."""
        return [future for key in keys for future in self.futures.get(key, ()) if not future.done()]
