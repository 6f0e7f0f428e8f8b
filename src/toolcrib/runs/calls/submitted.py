"""The changes that callers make: they submit calls, wait for them, cancel and retry them."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, TypedDict, Unpack

from toolcrib.errors import ConflictError, IdempotencyConflict, InvalidInput
from toolcrib.runs.calls.changes import CLOSE, NOTE, WAKES, CallChanges
from toolcrib.runs.dispatch import Delivery, entry_of, within_delay
from toolcrib.runs.filters import Change, Filters, batches, changeable, conditions
from toolcrib.runs.history import DurableCall
from toolcrib.spec.identifier import made_at, new_id
from toolcrib.state import Transaction, ask

# The epoch goes up without a claim: a body that still runs can record nothing any more.
_CANCEL = (
    "UPDATE calls SET state = 'cancelled', epoch = epoch + 1, ended_at = ?, lease_ends_at = NULL"
    " WHERE id = ? AND state IN ('ready', 'running', 'waiting')"
)
# An identical call may wait for the same answer, also one that is not stored and asked first.
_UNASKED = (
    "UPDATE approvals SET status = 'void' WHERE status = 'pending'"
    " AND id = (SELECT approval FROM calls WHERE id = ?) AND call_id IN (SELECT id FROM calls)"
    " AND NOT EXISTS (SELECT 1 FROM calls WHERE approval = approvals.id AND state = 'waiting')"
)
_REPEAT = (
    "UPDATE calls SET state = 'ready', ready_at = ?, ended_at = NULL, error = NULL, attempts = 0,"
    " rescues = 0, worker = NULL WHERE id = ? AND state IN ('failed', 'discarded', 'cancelled', 'unknown')"
)


class Submission(TypedDict, total=False):
    """The options with which a call is stored."""

    caller: str
    idempotency_key: str | None
    repeatable: bool
    """It may run again after its worker has died."""
    priority: int
    """Higher ones are taken first."""
    delay_s: float
    context: Mapping[str, Any]
    """Further facts that the call needs, as JSON."""
    session_id: str | None
    run_id: str | None
    id: str | None
    """A UUID version 7 that it has already. Its time is when the call was made."""
    approval: str | None
    """The approval that it waits for."""
    deliver: bool
    """False if it is for whoever takes it in the same transaction."""


class SubmittedCalls(CallChanges):
    """The calls of a database, for their callers."""

    def submit(
        self,
        tool: str,
        arguments: Mapping[str, Any],
        *,
        transaction: Transaction | None = None,
        **more: Unpack[Submission],
    ) -> str:
        """Store a call and return its id. With the key of an earlier call of this caller, return that one's.

        With `transaction`, one of the same database, the call exists only if that is committed.
        Raises `IdempotencyConflict` if the key was used for another call.
        """
        if transaction is not None:
            return self.submit_all(transaction, [{"tool": tool, "arguments": arguments, **more}])[0]
        # On Postgres writes of one scope take turns. Calls with the same key must, all others need not.
        scope = more.get("idempotency_key") or f"{os.getpid()} {threading.get_ident()}"
        with self._database.write(f"call {more.get('caller')} {scope}") as tx:
            return self.submit(tool, arguments, transaction=tx, **more)

    def submit_all(self, tx: Transaction, calls: Iterable[Mapping[str, Any]]) -> list[str]:
        """Store calls in a transaction and return their ids; each has the arguments of `submit`."""
        now, ids = tx.now(), list[str]()
        plain, ready = dict[str, dict[str, Any]](), list[Delivery]()
        for call in calls:
            row = _row(now, **call)
            id = row["id"]
            if row["idempotency_key"] is None and call.get("id") is None:
                plain[id] = row
            elif not tx.insert("calls", row):
                ids.append(_known(tx, row))
                continue
            ids.append(id)
            if row["approval"] is not None:
                tx.later(WAKES, row["approval"])
            elif call.get("deliver", True):
                ready.append(Delivery(entry_of(row["tool"]), id, row["ready_at"] - now, row["priority"]))
        # Sent first: a call that is taken here is added as one that runs, and not changed again.
        tx.coming = plain
        self.dispatcher.send(tx, *ready)
        tx.coming = {}
        tx.add("calls", *plain.values())
        return ids

    async def wait(self, id: str, timeout_s: float | None = None) -> DurableCall:
        """Return a call once it has ended, or as it is when the time is up; `NotFoundError`."""
        call = await ask(self.database, lambda: self.find(id))
        if call.ended:
            return call
        await self._ends.wait(id, timeout_s)
        return await ask(self.database, lambda: self.find(id))

    def cancel(self, id: str) -> None:
        """End a call; what its worker records later is refused. `ConflictError` if it has ended."""
        with self._database.write(f"call {id}") as tx, self.cancelling(tx, [id]) as cancelled:
            if not cancelled:
                raise ConflictError(f"call {id} has ended: it is {self.find(id).state}")

    @contextmanager
    def cancelling(self, tx: Transaction, ids: Collection[str]) -> Iterator[list[str]]:
        """Cancel those of these calls that have not ended; yield them before anybody is notified.

        Their rows are locked first, and in one order, as workers lock a call before its run: no deadlock.
        """
        now = tx.now()
        cancelled = [id for id in sorted(ids) if tx.run(_CANCEL, now, id)]
        yield cancelled
        for id in cancelled:
            if not tx.run(f"{CLOSE} AND ended_at IS NULL", now, "cancelled", "", id):
                tx.later(NOTE, now, "cancelled", id)
            tx.later(_UNASKED, id)
            self._report_end(tx, id, "cancelled")
        tx.after_commit.append(self._ends.notify)

    def retry(self, id: str) -> None:
        """Let a call that ended without a result run again. Raises `ConflictError` for any other."""
        with self._database.write(f"call {id}") as tx:
            if not self._retried(tx, [id]):
                state = self.find(id).state
                again = "only a call that ended without a result can be retried"
                raise ConflictError(f"call {id} is {state}; {again}")

    def cancel_all(self, **filters: Unpack[Filters]) -> list[str]:
        """Cancel all matching calls that have not ended; return their ids."""
        done = list[str]()
        for ids in self._changeable("cancel", filters):
            with self._database.write(f"calls {ids[0]}") as tx, self.cancelling(tx, ids) as cancelled:
                done += cancelled
        return done

    def retry_all(self, **filters: Unpack[Filters]) -> list[str]:
        """Let all matching calls run again that ended without a result; return their ids."""
        done = list[str]()
        # Listed first: one that fails again meanwhile is not retried twice.
        for ids in list(self._changeable("retry", filters)):
            with self._database.write(f"calls {ids[0]}") as tx:
                done += self._retried(tx, ids)
        return done

    def _changeable(self, change: Change, filters: Filters) -> Iterator[list[str]]:
        return batches(self.database, "calls", conditions("calls", changeable("calls", change, filters)))

    def _retried(self, tx: Transaction, ids: Sequence[str]) -> list[str]:
        now = tx.now()
        done = [id for id in sorted(ids) if tx.run(_REPEAT, now, id)]
        for id in done:
            tx.later(NOTE, now, "retried", id)
            tool, priority = tx.one("SELECT tool, priority FROM calls WHERE id = ?", id) or ("", 0)
            self._send(tx, id, tool, priority, 0.0)
        return done


def _row(now: float, tool: str, arguments: Mapping[str, Any], **more: Unpack[Submission]) -> dict[str, Any]:
    """Return the row of a new call."""
    key, approval = more.get("idempotency_key"), more.get("approval")
    if key == "":
        raise InvalidInput("an idempotency key must not be empty")
    id = more.get("id") or new_id(now)
    return {
        "id": id,
        "tool": tool,
        "arguments": json.dumps(arguments, sort_keys=True).encode(),
        "caller": more.get("caller", "local"),
        "idempotency_key": key,
        "repeatable": int(more.get("repeatable", False)),
        "priority": more.get("priority", 0),
        "context": json.dumps(more.get("context", {})),
        "session_id": more.get("session_id"),
        "run_id": more.get("run_id"),
        "state": "ready" if approval is None else "waiting",
        "approval": approval,
        "ready_at": now + within_delay(more.get("delay_s", 0.0)),
        "submitted_at": min(now, made_at(id) or now),
        **dict.fromkeys(("epoch", "attempts", "snoozes", "rescues"), 0),
        **dict.fromkeys(("worker", "holder", "lease_ends_at")),
    }


def _known(tx: Transaction, row: Mapping[str, Any]) -> str:
    """Return the id of the call that has the key of this one; `IdempotencyConflict` if it is another one."""
    key = (row["caller"], row["idempotency_key"])
    known = tx.one("SELECT id, tool, arguments FROM calls WHERE caller = ? AND idempotency_key = ?", *key)
    if known is None or known[1:] != (row["tool"], row["arguments"]):
        raise IdempotencyConflict(
            f"the idempotency key {key[1]!r} was used for another call",
            hint="Use a new key for each call, and the same key only to repeat exactly the same call.",
        )
    return str(known[0])
