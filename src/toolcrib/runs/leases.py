"""Leases on calls and runs: a row is kept by renewing it, and lost when its process is dead or silent.

A process of this machine that has ended is seen by its number and start time, at once. Any other is given up
when its lease is over. So a lease can be long, and a slow or frozen worker is not taken for a dead one.
"""

from __future__ import annotations

from typing import NamedTuple

from toolcrib.state import Database, has_ended

BEAT_S = 1.0
"""Seconds between two times that a worker renews what it has, and looks after what others have lost."""
IS_LOST = "state = 'running' AND (lease_ends_at <= ? OR holder = ?)"
"""With the time and `Lost.holder`: nobody has renewed the row or recorded its end since."""
_MOST = 100


class Lost(NamedTuple):
    """A row whose holder is dead or silent."""

    id: str
    holder: str
    """The process that has ended; empty for one that is silent."""


def lost_rows(database: Database, table: str, lease_s: float) -> list[Lost]:
    """Return what was lost in the table `calls` or `runs`, at most 100 rows."""
    holders = [
        one for (one,) in database.rows(f"SELECT DISTINCT holder FROM {table} WHERE state = 'running'")
    ]
    if not holders:  # As each second where nothing runs: that is one way to a server.
        return []
    with database.read() as tx:
        found: list[Lost] = []
        for holder in filter(has_ended, holders):
            query = f"SELECT id FROM {table} WHERE state = 'running' AND holder = ? LIMIT {_MOST}"
            found += [Lost(id, holder) for (id,) in tx.all(query, holder)]
        query = f"SELECT id FROM {table} WHERE state = 'running' AND lease_ends_at <= ?"
        silent = tx.all(f"{query} ORDER BY lease_ends_at LIMIT {_MOST}", tx.now())
        # After an outage of the database all leases are over: their holders get the time to renew them first.
        if silent and not tx.has_just_begun(lease_s):
            found += [Lost(id, "") for (id,) in silent]
    return found[:_MOST]
