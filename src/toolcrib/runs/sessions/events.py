"""The events of runs: numbered in the order of their transactions, and read again from any number on."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping, Sequence
from functools import partial
from typing import Any

from toolcrib.runs.sessions.records import ENDED, RunEvent
from toolcrib.state import Database, DatabaseWatch, Transaction, ask, next_number

_TOPIC = "run events"
_BELOW = (
    "run_id IN (WITH RECURSIVE below(id) AS (SELECT id FROM runs WHERE id = ?"
    " UNION ALL SELECT runs.id FROM runs JOIN below ON runs.parent_id = below.id) SELECT id FROM below)"
)
_PAGE = 200
_COLUMNS = "number, run_id, root_id, at, kind, iteration, detail"


class RunNotes:
    """The events of one transaction. `write` comes last: all transactions with events take turns from there.

    So no event appears before one with a smaller number.
    """

    def __init__(self, tx: Transaction, now: float) -> None:
        self.tx = tx
        self.now = now
        self._events: list[tuple[str, str, str, int, str]] = []
        self.has_end = False
        """True if a run has ended."""

    def add(self, run: tuple[str, str], kind: str, iteration: int = 0, **detail: Any) -> None:
        """Note an event of a run, given by its id and the id of its root."""
        self._events.append((*run, kind, iteration, json.dumps(detail)))
        self.has_end = self.has_end or kind in ENDED

    def write(self) -> None:
        """Store the events."""
        if not self._events:
            return
        first = next_number(self.tx, _TOPIC, len(self._events))
        for number, (run_id, root_id, kind, iteration, detail) in enumerate(self._events, first):
            event = RunEvent(number, run_id, root_id, self.now, kind, iteration, detail)
            self.tx.add("run_events", event._asdict())
        self.tx.notify()
        self._events.clear()


class RunEvents:
    """The events of all runs of a database."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._watch: DatabaseWatch[bool] = DatabaseWatch(self._newer, database)

    def wake(self) -> None:
        """Look at once, because this process has written events. Callable from any thread."""
        self._watch.notify()

    def page(
        self, run_id: str | None = None, after: int = 0, *, tree: bool = False, limit: int = _PAGE
    ) -> Sequence[RunEvent]:
        """Return events after this number: of all runs, of one, or of one and those below it."""
        where: str = "number > ?"
        values: tuple[str | int, ...] = (after,)
        if run_id is not None:
            where, values = f"{_BELOW if tree else 'run_id = ?'} AND {where}", (run_id, after)
        query = f"SELECT {_COLUMNS} FROM run_events WHERE {where} ORDER BY number LIMIT ?"
        return [RunEvent(*row) for row in self._database.rows(query, *values, max(0, min(limit, 1_000)))]

    @property
    def last(self) -> int:
        """The number of the newest event; 0 if there is none."""
        rows = self._database.rows("SELECT last FROM topics WHERE topic = ?", _TOPIC)
        return int(rows[0][0]) if rows else 0

    async def follow(
        self, run_id: str | None = None, after: int = 0, *, tree: bool = False
    ) -> AsyncIterator[RunEvent]:
        """Yield events after this number as they come. Of one run, or its tree, ends when that has ended."""
        if run_id is not None and await ask(self._database, partial(self.is_over, run_id, after)):
            return
        while True:
            # Before the page is read: an event that comes in between then ends the wait below.
            seen = await ask(self._database, lambda: self.last)
            page = await ask(self._database, partial(self.page, run_id, after, tree=tree))
            for event in page:
                yield event
                after = event.number
                is_end = event.run_id == run_id and event.kind in ENDED
                if is_end and await ask(self._database, partial(self.is_over, event.run_id, after)):
                    return
            if not page:
                await self._watch.wait(str(seen), None)

    def is_over(self, run_id: str, after: int) -> bool:
        """Return True if the run has ended by this event, and was not continued by a retry."""
        query = "SELECT number, kind FROM run_events WHERE run_id = ? ORDER BY number DESC LIMIT 1"
        return any(number <= after and kind in ENDED for number, kind in self._database.rows(query, run_id))

    def retried_after(self, run_id: str) -> int:
        """Return the iteration after which the last retry continued the run; 0 without one."""
        query = "SELECT iteration FROM run_events WHERE run_id = ? AND kind = 'retried' ORDER BY number"
        return max((int(number) for (number,) in self._database.rows(query, run_id)[-1:]), default=0)

    def _newer(self, keys: Sequence[str]) -> Mapping[str, bool]:
        last = self.last
        return {key: True for key in keys if int(key) < last}
