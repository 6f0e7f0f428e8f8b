"""Delivery of what is ready to those who can do it. A dispatcher only delivers: our tables are the truth."""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple, Protocol

from toolcrib.errors import StateUnavailable
from toolcrib.runs.serving import Handlers, Serving, Take, Work, note_lost, whole
from toolcrib.state import Database, Transaction

_LOOK_S = 1.0
"""Seconds until the next look when no notice comes: one may be lost, and the tools here may change."""
_RETRY_S = 0.5
"""Seconds until the next try after a failure of the database."""


_SENT_BEFORE = (
    "ON CONFLICT (entry, key) DO UPDATE SET priority = excluded.priority,"
    " due = CASE WHEN deliveries.due > excluded.due THEN deliveries.due ELSE excluded.due END,"
    " ready_at = CASE WHEN deliveries.ready_at < excluded.ready_at THEN deliveries.ready_at"
    " ELSE excluded.ready_at END"
)


def entry_of(tool: str) -> str:
    """Return the entry to which calls of a tool are sent."""
    return f"call:{tool}"


def run_entry(provider: str) -> str:
    """Return the entry to which runs are sent whose model is of this provider."""
    return f"run:{provider}"


MOST_DELAY_S = 3650 * 86_400.0
"""The longest delay: ten years."""


def within_delay(seconds: float) -> float:
    """Return a delay that every database can store as a time."""
    return min(max(0.0, seconds), MOST_DELAY_S)


class Delivery(NamedTuple):
    """A key to deliver to a server of an entry."""

    entry: str
    key: str
    delay_s: float = 0.0
    priority: int = 0


class Dispatcher(Protocol):
    """Delivers keys of ready rows to whoever serves their entry: at least once.

    A message says that a row may be ready, and is used up by the transaction that takes the row. A row whose
    worker dies is sent again by whoever notices (`DurableCalls.rescue`).
    """

    def send(self, tx: Transaction, *deliveries: Delivery) -> None:
        """Have keys delivered, each once in a call of this, if this transaction is committed.

        Where this process serves the entry and has room, the row is taken at once, in this transaction.
        Sending again before it was delivered changes nothing or delivers twice.
        """

    def resend(self, ready: str) -> int:
        """Send the rows that have no message, and return their number.

        `ready` selects `entry`, `key`, `priority` and `ready_at` of the rows that should have one.
        """

    def forget(self, tx: Transaction, workers: Sequence[str]) -> None:
        """Let others have what was delivered to workers that have ended, and that they have not taken."""

    def prepare(self) -> None:
        """Do what takes time before anything can be served. Called in a thread."""

    async def serve(
        self, handlers: Mapping[str, Take], *, stop: asyncio.Event, concurrency: int = 100, worker: str = ""
    ) -> None:
        """Take what is sent to these entries and do the work, until `stop` is set and all work has ended.

        Higher priorities come first, then what was ready first. At most `concurrency` works run at a time.
        `handlers` is read again for each look, so it may change; an entry that is `in` it may be taken
        without a look at what other workers run. Where it has a `room`, no more are taken: what is left keeps
        its place by priority. `worker` is the id by which others `forget` it. Cancelling this cancels the
        work.
        """


class EmbeddedDispatcher:
    """Messages in a table of the same database. It needs nothing else, and is meant for one machine."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._serving: list[Serving] = []

    def send(self, tx: Transaction, *deliveries: Delivery) -> None:
        """Have keys delivered; one that is sent again comes at the earlier time."""
        now = tx.now()
        rows = [
            {
                "entry": one.entry,
                "key": one.key,
                "priority": one.priority,
                "ready_at": now + max(0.0, one.delay_s),
                "due": int(one.delay_s <= 0),
            }
            for one in not_taken(self._serving, tx, deliveries)
        ]
        if rows:
            tx.add("deliveries", *rows, conflict=_SENT_BEFORE)
            tx.notify()
            tx.after_commit.append(self._wake)

    def resend(self, ready: str) -> int:  # noqa: ARG002 - nothing can be lost
        """Return 0: a message is as durable as the row that it is about."""
        return 0

    def forget(self, tx: Transaction, workers: Sequence[str]) -> None:
        """Do nothing: what is delivered is taken in the same transaction."""

    def prepare(self) -> None:
        """Do nothing: the first look opens the database."""

    def take(
        self, handlers: Mapping[str, Take], limit: int = 1, stop: asyncio.Event | None = None
    ) -> list[Work]:
        """Take at most `limit` ready rows of these entries, none after `stop`; return the work on them."""
        if limit <= 0 or not self._is_due(handlers):
            return []
        works: list[Work] = []
        with self._database.write("deliveries") as tx:
            # It may have come since this look began: what the works here hand back is for others.
            if stop is not None and stop.is_set():
                return []
            # A column and not a comparison with the clock: only so can one index give the order by priority.
            tx.run("UPDATE deliveries SET due = 1 WHERE due = 0 AND ready_at <= ?", tx.now())
            for entry, key in self._due(tx, handlers, limit):
                if tx.run("DELETE FROM deliveries WHERE entry = ? AND key = ?", entry, key):
                    work = handlers[entry](tx, key)
                    if work is not None:
                        works.append(work)
        return works

    async def serve(
        self,
        handlers: Mapping[str, Take],
        *,
        stop: asyncio.Event,
        concurrency: int = 100,
        worker: str = "",  # noqa: ARG002 - no message is its
    ) -> None:
        """Take what is sent to these entries and do the work, until `stop` is set and all work has ended."""
        serving = Serving(handlers, stop, concurrency)
        self._serving.append(serving)
        stopping = asyncio.create_task(then_wake(stop, serving.woken))
        try:
            with self._database.listening(serving.wake):
                while not stop.is_set():
                    serving.woken.clear()  # Before the look: nobody sleeps through what is sent during it.
                    pause: float | None = None
                    if serving.room > 0:
                        taken, pause = await whole(self._begin(serving))
                        if taken:
                            continue
                    else:
                        # Else the end of a work that was taken where it was sent wakes nobody.
                        serving.keeps_up = False
                    with suppress(TimeoutError):
                        async with asyncio.timeout(pause):
                            await serving.woken.wait()
            await serving.end()
        finally:
            self._serving.remove(serving)
            stopping.cancel()
            await serving.cancel()

    async def _begin(self, serving: Serving) -> tuple[int, float]:
        """Take what is ready and begin it; return its number, and the seconds until there may be more."""
        room = serving.room
        works, pause = await asyncio.to_thread(self._look, serving, room)
        for work in works:
            _ = serving.begin(work, look_after=True)
        serving.keeps_up = len(works) < room
        return len(works), pause

    def _look(self, serving: Serving, room: int) -> tuple[list[Work], float]:
        """Take what is ready; return also the seconds until there may be more."""
        try:
            works = self.take(serving.handlers, room, serving.stop)
            return works, 0.0 if works else self._pause()
        except StateUnavailable as error:
            note_lost(self._database, error)
            return [], _RETRY_S

    def _is_due(self, handlers: Mapping[str, Take]) -> bool:
        """Look without the right to write, which is one process's at a time."""
        with self._database.read() as tx:
            if tx.one("SELECT 1 FROM deliveries WHERE due = 0 AND ready_at <= ? LIMIT 1", tx.now()):
                return True
            return next(self._due(tx, handlers, 1), None) is not None

    def _pause(self) -> float:
        """Return the seconds until the next message is due, or until the next look."""
        with self._database.read() as tx:
            row = tx.one("SELECT MIN(ready_at) FROM deliveries WHERE due = 0")
            return _LOOK_S if row is None or row[0] is None else min(_LOOK_S, max(0.0, row[0] - tx.now()))

    @staticmethod
    def _due(tx: Transaction, handlers: Mapping[str, Take], limit: int) -> Iterator[tuple[str, str]]:
        """Yield the entries and keys to deliver next. Of other entries one message is looked at."""
        following = "SELECT MIN(entry) FROM deliveries WHERE due = 1 AND entry > ?"
        query = (
            "SELECT -priority, ready_at, key, entry FROM deliveries WHERE due = 1 AND entry = ?"
            " ORDER BY priority DESC, ready_at, key LIMIT ?"
        )
        found: list[tuple[Any, ...]] = []
        entry = ""
        while (row := tx.one(following, entry)) is not None and row[0] is not None:
            entry = row[0]
            room = handlers.room(tx, entry) if isinstance(handlers, Handlers) else None
            if room != 0 and handlers.get(entry) is not None:
                found += tx.all(query, entry, limit if room is None else min(limit, room))
        for _, _, key, entry in heapq.nsmallest(limit, found):
            yield entry, key

    def _wake(self) -> None:
        for serving in list(self._serving):
            serving.wake()


def not_taken(
    serving: Sequence[Serving], tx: Transaction, deliveries: Iterable[Delivery]
) -> Iterator[Delivery]:
    """Yield those that nobody of this process takes at once."""
    for one in deliveries:
        if one.delay_s > 0 or not any(here.take(tx, one.entry, one.key) for here in serving):
            yield one


async def then_wake(stop: asyncio.Event, woken: asyncio.Event) -> None:
    """Wake a loop when it must stop."""
    await stop.wait()
    woken.set()
