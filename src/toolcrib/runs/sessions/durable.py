"""Runs and calls of one database together: the end of a call continues its run, whoever ends it."""

from __future__ import annotations

from typing import NamedTuple

from toolcrib.runs.calls import DurableCalls
from toolcrib.runs.known_tools import KnownTools
from toolcrib.runs.sessions.store import RunStore
from toolcrib.runs.sessions.transitions import RunTransitions
from toolcrib.runs.sessions.tree import RunTree

_TO_SEND = (
    "SELECT 'run:' || provider AS entry, id AS key, 0 AS priority, ready_at FROM runs WHERE state = 'ready'"
)


class DurableRuns(NamedTuple):
    """The calls and runs of a database, with every change that one can make."""

    calls: DurableCalls
    tools: KnownTools
    store: RunStore
    changes: RunTransitions
    tree: RunTree


def durable_runs(calls: DurableCalls) -> DurableRuns:
    """Return the runs beside these calls."""
    # A dispatcher may lose messages: ready runs without one are sent again, as calls are.
    calls.to_send.append(_TO_SEND)
    store = RunStore(calls)
    changes = RunTransitions(store)
    calls.on_end.append(changes.call_ended)
    return DurableRuns(calls, KnownTools(calls.database), store, changes, RunTree(store))
