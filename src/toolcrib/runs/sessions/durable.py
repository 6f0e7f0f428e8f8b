"""Runs and calls of one database together: the end of a call continues its run, whoever ends it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from toolcrib.runs.calls import DurableCalls
from toolcrib.runs.sessions.store import RunStore
from toolcrib.runs.sessions.transitions import RunTransitions
from toolcrib.runs.sessions.tree import RunTree
from toolcrib.state import Transaction

_TO_SEND = (
    "SELECT 'run:' || provider AS entry, id AS key, 0 AS priority, ready_at FROM runs WHERE state = 'ready'"
)


class DurableRuns(NamedTuple):
    """The calls and runs of a database, with every change that one can make."""

    calls: DurableCalls
    store: RunStore
    changes: RunTransitions
    tree: RunTree


def run_entry(provider: str) -> str:
    """Return the entry to which runs are sent whose model is of this provider."""
    return f"run:{provider}"


def durable_runs(calls: DurableCalls) -> DurableRuns:
    """Return the runs beside these calls."""

    def send(tx: Transaction, run_id: str, delay_s: float) -> None:
        (provider,) = tx.one("SELECT provider FROM runs WHERE id = ?", run_id) or ("",)
        calls.dispatcher.send(tx, run_entry(provider), run_id, delay_s=delay_s)

    def submit(tx: Transaction, call: Mapping[str, Any]) -> str:
        return calls.submit(**call, transaction=tx)

    # A dispatcher may lose messages: ready runs without one are sent again, as calls are.
    calls.to_send.append(_TO_SEND)
    store = RunStore(calls.database, send=send)
    changes = RunTransitions(store, submit, lease_s=calls.lease_s)
    calls.on_end.append(changes.call_ended)
    return DurableRuns(calls, store, changes, RunTree(store, calls.cancelling))
