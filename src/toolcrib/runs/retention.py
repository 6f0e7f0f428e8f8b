"""Removes calls and runs that ended long ago, a few at a time beside running work."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from typing import Any, NamedTuple

from toolcrib.spec.record import record
from toolcrib.state import Database, Transaction

_DAY_S = 86_400.0
_LOOK_S = 60.0
"""Seconds between two looks at what is due."""
_CALLS, _RUNS = 500, 20
"""Calls, and runs with all that belongs to them, that one transaction removes: others may wait for it."""
_TOGETHER = 1_000
"""Keys in one statement."""
_DUE_CALLS = "SELECT id FROM calls WHERE run_id IS NULL AND ended_at < ? ORDER BY ended_at LIMIT ?"
# A session is a conversation: while it continues, its later runs need the messages of the earlier ones.
_DUE_RUNS = (
    "SELECT id FROM runs WHERE parent_id IS NULL AND ended_at < ? AND state {} 'failed'"
    " AND NOT EXISTS (SELECT 1 FROM runs AS other WHERE other.session_id = runs.session_id"
    " AND (other.ended_at IS NULL OR other.ended_at >= ?)) ORDER BY ended_at LIMIT ?"
)
_OF_RUNS = ("run_messages", "run_iterations", "run_uses")
_EMPTY = (
    "SELECT id FROM sessions WHERE id IN ({})"
    " AND NOT EXISTS (SELECT 1 FROM runs WHERE session_id = sessions.id)"
)
_log = logging.getLogger("toolcrib.runs")


@record
class Retention:
    """The days that calls and runs are kept after their end."""

    calls_days: float = 30
    """Calls that belong to no run."""
    runs_days: float = 90
    """Runs, with their calls, events and messages."""
    failed_days: float = 180
    """Runs that failed."""


class Pruned(NamedTuple):
    """The numbers of what was removed."""

    calls: int = 0
    runs: int = 0


class Pruner:
    """Removes from a database what was kept for long enough. The audit log is not in it."""

    def __init__(self, database: Database, retention: Retention) -> None:
        self._database, self._retention = database, retention
        self._next_look = 0.0

    def beat(self) -> None:
        """Remove some of what is due. Called about once a second by each process that serves."""
        if (now := time.monotonic()) < self._next_look:
            return
        removed = self._remove_some()
        if any(removed):  # Look again at the next beat: there may be more.
            _log.info("removed %d calls and %d runs that ended long ago", *removed)
        else:
            self._next_look = now + _LOOK_S

    def prune(self) -> Pruned:
        """Remove all that is due."""
        every = Pruned()
        while any(some := self._remove_some()):
            every = Pruned(*map(sum, zip(every, some, strict=True)))
        return every

    def _remove_some(self) -> Pruned:
        kept = self._retention
        with self._database.write("retention") as tx:
            now = tx.now()
            calls, runs, failed = (
                now - days * _DAY_S for days in (kept.calls_days, kept.runs_days, kept.failed_days)
            )
            done = _delete_calls(tx, _ids(tx, _DUE_CALLS, calls, _CALLS), calls)
            roots: list[str] = []
            for how, before in (("<>", runs), ("=", min(failed, runs))):
                roots += _delete_runs(tx, _ids(tx, _DUE_RUNS.format(how), before, runs, _RUNS), before)
        removed = Pruned(len(done), len(roots))
        if any(removed):
            self._database.shrink()
        return removed


def _ids(tx: Transaction, query: str, *values: Any) -> list[str]:
    return [id for (id,) in tx.all(query, *values)]


def _delete_calls(tx: Transaction, ids: Sequence[str], before: float) -> list[str]:
    """Delete those of these calls that still ended before this time; return their ids."""
    # Of one that is retried just now nothing is deleted.
    deleted = _delete(tx, "calls", "id", ids, before)
    for table in ("call_events", "call_attempts"):
        _delete(tx, table, "call_id", deleted)
    return deleted


def _delete_runs(tx: Transaction, ids: Sequence[str], before: float) -> list[str]:
    """Delete those of these runs that still ended before this time, with all below; return their ids."""
    if not ids:
        return []
    sessions = _matching(tx, "SELECT DISTINCT session_id FROM runs WHERE id IN ({})", ids)
    deleted = _delete(tx, "runs", "id", ids, before)
    if not deleted:
        return []
    tree = [*deleted, *_matching(tx, "SELECT id FROM runs WHERE root_id IN ({})", deleted)]
    _delete_calls(tx, _matching(tx, "SELECT id FROM calls WHERE run_id IN ({})", tree), tx.now())
    for table in _OF_RUNS:
        _delete(tx, table, "run_id", tree)
    _delete(tx, "run_events", "root_id", deleted)
    _delete(tx, "runs", "root_id", deleted)
    _delete(tx, "sessions", "id", _matching(tx, _EMPTY, sessions))
    return deleted


def _delete(
    tx: Transaction, table: str, column: str, ids: Sequence[str], before: float | None = None
) -> list[str]:
    """Delete rows by a column, those that ended before a time; return their values of it."""
    ended, values = ("", ()) if before is None else (" AND ended_at < ?", (before,))
    return _matching(
        tx, f"DELETE FROM {table} WHERE {column} IN ({{}}){ended} RETURNING {column}", ids, *values
    )


def _matching(tx: Transaction, query: str, keys: Sequence[str], *values: Any) -> list[str]:
    """Run a query for these keys, some at a time: a statement takes so many values only."""
    found = list[str]()
    for start in range(0, len(keys), _TOGETHER):
        some = keys[start : start + _TOGETHER]
        found += _ids(tx, query.format(", ".join("?" * len(some))), *some, *values)
    return found
