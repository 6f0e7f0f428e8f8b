"""Parts that every change of a durable call needs: rows of attempts and events, messages, listeners."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from toolcrib.runs.dispatch import Delivery, Dispatcher, EmbeddedDispatcher, entry_of
from toolcrib.runs.history import ENDED, CallState, StoredCalls, states_of
from toolcrib.state import LEASE_S, Database, DatabaseWatch, Transaction

_TO_SEND = "SELECT 'call:' || tool AS entry, id AS key, priority, ready_at FROM calls WHERE state = 'ready'"
# Every statement about a claimed call ends so: a worker whose claim was taken over changes no row by it.
OWN = "WHERE id = ? AND epoch = ? AND state = 'running'"
CLOSE = "UPDATE call_attempts SET ended_at = ?, ending = ?, reason = ? WHERE call_id = ?"
WAKES = "UPDATE approvals SET wakes = 1 WHERE id = ?"
# Attempts are noted by their own rows. The call's row is locked by now, so the number is free.
NOTE = (
    "INSERT INTO call_events (call_id, number, epoch, at, kind)"
    " SELECT id, (SELECT COALESCE(MAX(number), 0) + 1 FROM call_events WHERE call_id = id), epoch, ?, ?"
    " FROM calls WHERE id = ?"
)


class ClaimedCall(NamedTuple):
    """A call that a worker has taken."""

    id: str
    tool: str
    arguments: bytes
    caller: str
    epoch: int
    attempt: int
    """1, 2, …: the number of this attempt."""
    snoozes: int
    context: Mapping[str, Any]
    """The submitter's data beside the arguments: `identity`, `variables`, `timeout_ms`."""
    session_id: str | None
    run_id: str | None
    begun: bool = True
    """False until `DurableCalls.begin`: nothing is lost with its worker but time."""


class CallChanges(StoredCalls):
    """The calls of a database, with the parts of which changes are made."""

    def __init__(
        self,
        database: Database,
        *,
        lease_s: float = LEASE_S,
        dispatcher: Dispatcher | None = None,
    ) -> None:
        super().__init__(database)
        self.database = database
        self.lease_s = lease_s
        self.dispatcher: Dispatcher = dispatcher or EmbeddedDispatcher(database)
        """The dispatcher to which ready calls are sent, to the entry `entry_of(tool)`."""
        self.to_send = [_TO_SEND]
        """The calls that should have a message, as `Dispatcher.resend` takes them."""
        self.on_end: list[Callable[[Transaction, str, CallState], None]] = []
        """Called in the transaction in which a call of a run ends, whatever way, with its id and state."""
        self.room: Callable[[str], int] = lambda _: 1
        """Returns how many further calls of an asker (`Approvals.room`) may ask for approval."""
        self._ends: DatabaseWatch[CallState] = DatabaseWatch(self._ended, database)

    def _close(self, tx: Transaction, id: str, epoch: int, now: float, ending: tuple[str, str]) -> None:
        """Record the end of an attempt."""
        tx.later(f"{CLOSE} AND epoch = ?", now, *ending, id, epoch)

    def _send(self, tx: Transaction, id: str, tool: str, priority: int, delay_s: float) -> None:
        self.dispatcher.send(tx, Delivery(entry_of(tool), id, delay_s, priority))

    def _report_end(self, tx: Transaction, id: str, state: CallState) -> None:
        """Call the listeners of the ends of calls, which continue runs."""
        tx.notify()
        for listener in self.on_end:
            listener(tx, id, state)

    def _ended(self, ids: Sequence[str]) -> Mapping[str, CallState]:
        return {id: state for id, state in states_of(self._database, "calls", ids) if state in ENDED}
