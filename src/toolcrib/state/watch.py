"""Wait for what another process may write into a database: no thread, and no poll for each who waits."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Generic, TypeVar

from toolcrib.errors import StateUnavailable
from toolcrib.state.database import Database

__all__ = ["Watch"]

_V = TypeVar("_V")

_INTERVAL_S = 0.2
"""How long it takes until what another process has written is seen."""
_LOOK_S = 1.0
"""How often is looked although nothing was written: what waits may lapse, its owner may die."""


class Watch(Generic[_V]):
    """Any number of coroutines that wait, each for what one key comes to.

    `look` is given the keys waited for and gives those that have come to something. One task in each event
    loop asks the databases whether another process has written, as long as anybody waits there.
    """

    def __init__(self, look: Callable[[Sequence[str]], Mapping[str, _V]], *databases: Database) -> None:
        self._look = look
        self._databases = databases
        self._rooms: dict[asyncio.AbstractEventLoop, _Room[_V]] = {}
        self._lock = threading.Lock()

    def tell(self) -> None:
        """Something was written in this process: look again at once. From any thread."""
        with self._lock:
            rooms = list(self._rooms.values())
        for room in rooms:
            try:
                room.loop.call_soon_threadsafe(room.written.set)
            except RuntimeError:  # That loop is closed: nobody waits there any more.
                continue

    async def wait(self, key: str, timeout_s: float | None) -> _V | None:
        """What the key comes to, or None when the time is up. `StateUnavailable` where it cannot be read."""
        found = self._look([key]).get(key)
        if found is not None or (timeout_s is not None and timeout_s <= 0):
            return found
        loop = asyncio.get_running_loop()
        future: asyncio.Future[_V] = loop.create_future()
        room = self._enter(loop, key, future)
        try:
            async with asyncio.timeout(timeout_s):
                return await future
        except TimeoutError:
            return None
        finally:
            self._leave(room, key, future)

    def _enter(self, loop: asyncio.AbstractEventLoop, key: str, future: asyncio.Future[_V]) -> _Room[_V]:
        with self._lock:
            room = self._rooms.get(loop)
            if room is None:
                room = self._rooms[loop] = _Room(loop)
        room.waiting.setdefault(key, set()).add(future)
        if room.task is None:
            room.written.set()  # What was written before the task first looks must not be missed.
            room.task = loop.create_task(self._serve(room))
        return room

    def _leave(self, room: _Room[_V], key: str, future: asyncio.Future[_V]) -> None:
        futures = room.waiting.get(key)
        if futures is not None:
            futures.discard(future)
            if not futures:
                del room.waiting[key]
        if not room.waiting:
            with self._lock:
                self._rooms.pop(room.loop, None)
            if room.task is not None:
                room.task.cancel()
                room.task = None

    async def _serve(self, room: _Room[_V]) -> None:
        seen: tuple[int, ...] = ()
        looked = float("-inf")
        while True:
            try:
                versions = tuple(database.version for database in self._databases)
                now = time.monotonic()
                if room.written.is_set() or versions != seen or now - looked >= _LOOK_S:
                    room.written.clear()
                    seen, looked = versions, now
                    room.settle(self._look(list(room.waiting)))
            except Exception as error:  # nobody may be left to wait for ever
                if not (isinstance(error, StateUnavailable) and error.retryable):
                    room.fail(error)
            try:
                async with asyncio.timeout(_INTERVAL_S):
                    await room.written.wait()
            except TimeoutError:
                continue


class _Room(Generic[_V]):
    """Those who wait in one event loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self.written = asyncio.Event()
        self.waiting: dict[str, set[asyncio.Future[_V]]] = {}
        self.task: asyncio.Task[None] | None = None

    def settle(self, found: Mapping[str, _V]) -> None:
        for key, value in found.items():
            for future in self.waiting.get(key, ()):
                if not future.done():
                    future.set_result(value)

    def fail(self, error: Exception) -> None:
        for futures in self.waiting.values():
            for future in futures:
                if not future.done():
                    future.set_exception(error)
