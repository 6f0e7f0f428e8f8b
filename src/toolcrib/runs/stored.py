"""The calls of a database, as they are read."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast, get_args

from toolcrib.errors import NotFoundError, UsageError
from toolcrib.runs.history import COLUMNS, CallAttempt, CallChange, CallState, DurableCall, QueuedTool
from toolcrib.state import Database
from toolcrib.state.database import ids, newest

_TOGETHER = 256
_HINT = "To see all: toolcrib calls list"


class StoredCalls:
    """Durable calls with their attempts and changes. `caller` limits a method to the calls of that one."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def find(self, id: str, caller: str | None = None) -> DurableCall:
        """Return a call as it is now; `NotFoundError`."""
        rows = self._database.rows(f"SELECT {COLUMNS} FROM calls WHERE id = ?", id)
        call = DurableCall(*cast("Any", rows[0])) if rows else None
        if call is None or caller not in (None, call.caller):
            raise NotFoundError(f"there is no call {id[:100]!r}", hint=_HINT)
        return call

    def resolve(self, beginning: str, caller: str | None = None) -> str:
        """Return the id that begins so. Raises NotFoundError, and UsageError if several do."""
        found = ids(self._database, "calls", beginning, caller)
        if len(found) > 1 and beginning not in found:
            raise UsageError(f"several calls begin with {beginning!r}", hint="Write more of the id.")
        return found[0] if found else self.find(beginning, caller).id

    def page(
        self,
        state: CallState | Sequence[CallState] | None = None,
        limit: int = 100,
        *,
        before: str | None = None,
        caller: str | None = None,
    ) -> Sequence[DurableCall]:
        """Return calls, the newest first, at most 500; for the next page pass the last id as `before`."""
        states = [state] if isinstance(state, str) else None if state is None else list(state)
        if states is not None and len(states) == len(get_args(CallState)):
            states = None
        filters = {"caller": caller, "state": states}
        rows = newest(self._database, "calls", COLUMNS, filters, max(0, min(limit, 500)), before=before)
        return [DurableCall(*cast("Any", row)) for row in rows]

    def attempts(self, id: str) -> Sequence[CallAttempt]:
        """Return each time that a worker took the call, the first one first."""
        query = "SELECT epoch, worker, began_at, ended_at, ending, reason FROM call_attempts"
        rows = self._database.rows(f"{query} WHERE call_id = ? ORDER BY epoch", id)
        return [CallAttempt(*row) for row in rows]

    def changes(self, id: str, after: int = 0) -> Sequence[CallChange]:
        """Return the changes of a call that came after one of this number."""
        query = "SELECT number, at, kind, detail FROM call_events WHERE call_id = ? AND number > ?"
        rows = self._database.rows(f"{query} ORDER BY number", id, after)
        return [CallChange(*row) for row in rows]

    def counts(self) -> dict[str, int]:
        """Return how many calls have not ended, by state."""
        count = "SELECT COUNT(*) FROM calls WHERE state = ?"
        with self._database.read() as tx:
            return {state: (tx.one(count, state) or (0,))[0] for state in ("ready", "running", "waiting")}

    def queue(self) -> Sequence[QueuedTool]:
        """Return the tools with calls that are ready, those of the oldest call first."""
        query = "SELECT tool, COUNT(*), MIN(ready_at) FROM calls WHERE state = 'ready' AND ready_at <= ?"
        with self._database.read() as tx:
            now = tx.now()
            rows = tx.all(f"{query} GROUP BY tool ORDER BY MIN(ready_at)", now)
        return [QueuedTool(tool, count, now - since) for tool, count, since in rows]


def states_of(database: Database, table: str, ids: Sequence[str]) -> list[tuple[str, Any]]:
    """Return id and state of these rows of a table."""
    found = list[tuple[str, Any]]()
    for first in range(0, len(ids), _TOGETHER):
        some = list(ids[first : first + _TOGETHER])
        some += some[:1] * ((1 << (len(some) - 1).bit_length()) - len(some))  # Few lengths: few plans.
        query = f"SELECT id, state FROM {table} WHERE id IN ({', '.join('?' * len(some))})"
        found += [(id, state) for id, state in database.rows(query, *some)]
    return found
