"""Log lines about a database that is away: one when it is lost, one when it answers again."""

from __future__ import annotations

import logging
from weakref import WeakSet

from toolcrib.errors import StateUnavailable
from toolcrib.state import Database

_log = logging.getLogger("toolcrib.runs")

_away: WeakSet[Database] = WeakSet()


def note_lost(database: Database, error: StateUnavailable) -> None:
    """Log that a database is away, unless that was logged already."""
    if database not in _away:
        _away.add(database)
        _log.warning("this process waits for its database: %s", error)


def note_found(database: Database) -> None:
    """Log that a database answers again, if it was away."""
    if database in _away:
        _away.discard(database)
        _log.warning("the database answers again")
