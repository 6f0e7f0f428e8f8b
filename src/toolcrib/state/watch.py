"""Wait until another process has written something, without a thread and without a look for each waiter."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from typing import TYPE_CHECKING, Generic, TypeVar

from toolcrib.errors import StateUnavailable
from toolcrib.state.database import Database, ask

if TYPE_CHECKING:
    import asyncio

_V = TypeVar("_V")

_RECHECK_S = 1.0
"""Seconds between checks when no notice comes: a request may expire, its process may die."""


class DatabaseWatch(Generic[_V]):
    """Coroutines of any event loop that wait, each for the result of one key.

    `check` takes the keys waited for and returns the results that exist. In each event loop one task listens
    to the databases for what other processes write, as long as anybody waits there.
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
            waiters.wake()

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

    def _add(self, loop: asyncio.AbstractEventLoop, key: str, future: asyncio.Future[_V]) -> _LoopWaiters[_V]:
        with self._lock:
            waiters = self._loops.setdefault(loop, _LoopWaiters(loop))
        waiters.futures.setdefault(key, set()).add(future)
        if waiters.task is None:
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

        with ExitStack() as listening:
            for database in self._databases:
                listening.enter_context(database.listening(waiters.wake))
            while True:
                waiters.written.clear()  # First: what is written during the check is a reason for the next.
                try:
                    for key, value in (await self._asked(list(waiters.futures))).items():
                        for future in waiters.unfinished(key):
                            future.set_result(value)
                except Exception as error:  # Else every waiter would wait for ever.
                    if not (isinstance(error, StateUnavailable) and error.retryable):
                        for future in waiters.unfinished(*waiters.futures):
                            future.set_exception(error)
                with suppress(TimeoutError):
                    async with asyncio.timeout(_RECHECK_S):
                        await waiters.written.wait()


class _LoopWaiters(Generic[_V]):
    """The waiters of one event loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        import asyncio

        self.loop = loop
        self.written = asyncio.Event()
        self.futures: dict[str, set[asyncio.Future[_V]]] = {}
        self.task: asyncio.Task[None] | None = None

    def wake(self) -> None:
        """Let the task check at once. Callable from any thread."""
        with suppress(RuntimeError):  # That loop is closed: nobody waits in it.
            self.loop.call_soon_threadsafe(self.written.set)

    def unfinished(self, *keys: str) -> list[asyncio.Future[_V]]:
        """Return those who still wait for one of these keys."""
        return [future for key in keys for future in self.futures.get(key, ()) if not future.done()]
