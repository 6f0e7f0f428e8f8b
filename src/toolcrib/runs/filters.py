"""The conditions that calls and runs meet, for lists and for changes of many."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal, NamedTuple, TypedDict

from toolcrib.spec.identifier import first_id
from toolcrib.state import Database
from toolcrib.state.database import matching

Table = Literal["calls", "runs"]
Change = Literal["cancel", "retry"]
_AT_ONCE = 200


class Conditions(TypedDict, total=False):
    """Conditions that calls or runs meet all of; None is no condition."""

    tool: str | None
    """Of a run: a tool that it has called."""
    agent: str | None
    """Of a call: the agent, or `workflow:NAME`, whose run made it."""
    session_id: str | None
    caller: str | None
    since: float | None
    """Seconds since the epoch, as is `until`."""
    until: float | None


class Filters(Conditions, total=False):
    """Conditions, and the state."""

    state: str | Sequence[str] | None
    """One state, or several."""


class Changed(NamedTuple):
    """The result of a change of many."""

    done: list[str]
    """Ids of those that were changed."""
    refused: dict[str, str]
    """Ids of the others, each with the reason."""


_CHANGEABLE: Mapping[tuple[Table, Change], Sequence[str]] = {
    ("calls", "cancel"): ("ready", "running", "waiting"),
    ("calls", "retry"): ("failed", "discarded", "cancelled", "unknown"),
    ("runs", "cancel"): ("queued", "ready", "running", "waiting"),
    ("runs", "retry"): ("failed", "cancelled"),
}
_ELSEWHERE: Mapping[Table, Mapping[str, str]] = {
    "calls": {"agent": "run_id IN (SELECT id FROM runs WHERE agent = ?)"},
    "runs": {"tool": "id IN (SELECT run_id FROM calls WHERE tool = ?)"},
}


def changeable(table: Table, change: Change, filters: Filters) -> Filters:
    """Return the filters of those of the matching calls or runs to which a change applies."""
    asked = filters.get("state")
    asked = [asked] if isinstance(asked, str) else asked
    states = [state for state in _CHANGEABLE[table, change] if asked is None or state in asked]
    return {**filters, "state": states}


def conditions(table: Table, filters: Filters) -> dict[str, Any]:
    """Return the filters as `matching` takes them."""
    found = {_ELSEWHERE[table].get(name, name): value for name, value in filters.items()}
    # Ids begin with the time of their row, and lists are in their order: no other index is needed.
    for name, condition in (("since", "(id >= ?)"), ("until", "(id < ?)")):
        at: Any = found.pop(name, None)
        found[condition] = None if at is None else first_id(at)
    if isinstance(state := found.get("state"), Sequence) and not isinstance(state, str):
        found["state"] = list(state)
    return found


def count(database: Database, table: Table, filters: Mapping[str, Any]) -> int:
    """Return how many rows match these `conditions`."""
    where, values = matching(filters)
    return int(database.rows(f"SELECT COUNT(*) FROM {table} WHERE {where}", *values)[0][0])


def batches(database: Database, table: Table, filters: Mapping[str, Any]) -> Iterator[list[str]]:
    """Yield the ids of the rows that match these `conditions`, the oldest first, a few hundred at a time."""
    last: str | None = None
    while rows := _batch(database, table, {**filters, "id > ?": last}):
        yield rows
        last = rows[-1]


def _batch(database: Database, table: Table, filters: Mapping[str, Any]) -> list[str]:
    where, values = matching(filters)
    query = f"SELECT id FROM {table} WHERE {where} ORDER BY id LIMIT ?"
    return [id for (id,) in database.rows(query, *values, _AT_ONCE)]
