"""The works of a process that serves: what it has taken, and what it takes in the transaction that sends it.

A row that this process would be handed at once needs no message: it is taken where it is made ready. That
saves a transaction, and the way through the queue, for most calls and for each turn of a run.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, Generic, TypeVar
from weakref import WeakSet

from toolcrib.errors import StateUnavailable
from toolcrib.state import Database, Transaction

_log = logging.getLogger("toolcrib.runs")

_away: WeakSet[Database] = WeakSet()
_I = TypeVar("_I")
_T = TypeVar("_T")
BATCH = 50
"""Rows that are taken, or ends that are recorded, in one transaction."""
Work = Callable[[], Awaitable[None]]
"""The work on a row that was taken. It records its own failures and never raises."""
Take = Callable[[Transaction, str], Work | None]
"""Takes the row with this key inside a transaction, under a lease of its own; None if it is not ready."""


async def whole(work: Coroutine[Any, Any, _T]) -> _T:
    """Await something that must not stop halfway: a cancellation takes effect after it."""
    task = asyncio.create_task(work)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait({task})
        raise


class Together(Generic[_I, _T]):
    """Hands items over in batches: those that come while one is handled are the next one.

    Under load their number sets the pace, and each is a transaction.
    """

    def __init__(self, handle: Callable[[list[_I]], Awaitable[Sequence[_T]]], most: int) -> None:
        self._handle, self._most = handle, most
        self._items: list[tuple[_I, asyncio.Future[_T]]] = []
        self._task: asyncio.Task[None] | None = None

    async def add(self, item: _I) -> _T:
        """Return what the handler returns for an item, or raise what it raises for its batch."""
        answer: asyncio.Future[_T] = asyncio.get_running_loop().create_future()
        self._items.append((item, answer))
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._run())
        return await answer

    async def _run(self) -> None:
        while self._items:
            batch, self._items = self._items[: self._most], self._items[self._most :]
            try:
                values = await self._handle([item for item, _ in batch])
            except Exception as error:
                for _, answer in batch:
                    if not answer.done():
                        answer.set_exception(error)
            else:
                for (_, answer), value in zip(batch, values, strict=True):
                    if not answer.done():
                        answer.set_result(value)


class Handlers(Mapping[str, Take]):
    """The entries that somebody serves, each with the function that takes a row of it."""

    def serves(self, entry: str) -> bool:
        """Return True if rows of an entry may be taken here, as far as is known without the database."""
        return entry in self

    def room(self, tx: Transaction, entry: str) -> int | None:  # noqa: ARG002 - for those who have limits
        """Return how many further works of an entry may run now, on all workers; None: any number."""
        return None


class Serving:
    """One `Dispatcher.serve`, in the running event loop."""

    def __init__(self, handlers: Mapping[str, Take], stop: asyncio.Event, concurrency: int) -> None:
        self.handlers = handlers
        self.stop = stop
        self.concurrency = concurrency
        self._loop = asyncio.get_running_loop()
        self._lock = threading.Lock()
        self._taken = 0
        self._settled = asyncio.Event()
        self.running: set[asyncio.Future[None]] = set()
        self.woken = asyncio.Event()
        """Set when there is a reason to look for messages."""
        self.keeps_up = False
        """True while no message waits for room here. One that waits comes before what is new."""

    @property
    def used(self) -> int:
        """Works that run, or are being taken."""
        return len(self.running) + self._taken

    @property
    def room(self) -> int:
        """Works that may be taken beside those."""
        return self.concurrency - self.used

    def take(self, tx: Transaction, entry: str, key: str) -> bool:
        """Take a row in the transaction that makes it ready, if there is room. Callable from any thread."""
        # In a transaction of somebody else the end is not known here, so no work could begin with it.
        if not tx.owned or not self.keeps_up or self.stop.is_set() or entry not in self.handlers:
            return False
        with self._lock:
            # Messages wait from now on, and come first: nothing is taken here until a look finds none.
            if self.room <= 0:
                self.keeps_up = False
                return False
            self._taken += 1
        try:
            work = self.handlers[entry](tx, key)
        except BaseException:
            self._ended(None, committed=False)
            raise
        # Begun after the commit only: before it the row is not taken for anybody else.
        tx.after_end.append(lambda committed: self._ended(work, committed=committed))
        return True

    def _ended(self, work: Work | None, *, committed: bool) -> None:
        with suppress(RuntimeError):  # That loop is closed.
            self._loop.call_soon_threadsafe(self._begin_taken, work if committed else None)

    def _begin_taken(self, work: Work | None) -> None:
        with self._lock:
            self._taken -= 1
        if work is not None:
            _ = self.begin(work)
        self._settled.set()

    def begin(self, work: Work, *, look_after: bool = False) -> asyncio.Future[None]:
        """Begin a work. `look_after`: its end may let another one be taken, even where there is room."""
        begun = asyncio.ensure_future(work())
        self.running.add(begun)
        begun.add_done_callback(partial(self._done, look_after=look_after))
        return begun

    def _done(self, begun: asyncio.Future[None], *, look_after: bool) -> None:
        self.running.discard(begun)
        if look_after or not self.keeps_up:
            self.woken.set()

    def wake(self) -> None:
        """Let this process look for messages. Callable from any thread."""
        with suppress(RuntimeError):  # That loop is closed.
            self._loop.call_soon_threadsafe(self.woken.set)

    async def end(self) -> None:
        """Wait until all works have ended, those too that are being taken."""
        while self.used:
            await self._settle()
            if self.running:
                await asyncio.wait(set(self.running))

    async def cancel(self) -> None:
        """Cancel all works and wait until they have ended."""
        await self._settle()
        await asyncio.sleep(0)  # Each has begun, so it hears of its end.
        for one in self.running:
            one.cancel()
        await self.end()

    async def _settle(self) -> None:
        """Wait for the transactions in which works are being taken."""
        while self._taken:
            self._settled.clear()
            await self._settled.wait()


def note_lost(database: Database, error: StateUnavailable) -> None:
    """Log that a database is away, unless that was logged already."""
    if database not in _away:
        _away.add(database)
        hint = f" ({error.hint})" if error.hint else ""
        _log.warning("this process waits for its database: %s%s", error, hint)


def note_found(database: Database) -> None:
    """Log that a database answers again, if it was away."""
    if database in _away:
        _away.discard(database)
        _log.warning("the database answers again")
