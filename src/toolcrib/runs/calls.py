"""The calls of a database, and every change that one can make. Each is checked by its statement.

A worker that claims a call gets a new epoch. What it records later counts only if the call still has this
epoch, so of a frozen worker and the one that took over, one is heard. A worker keeps its claims by renewing
them; `rescue` takes the calls of those that no longer do.
"""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence, Set
from contextlib import contextmanager
from typing import Any, Literal, NamedTuple, TypedDict, Unpack

from toolcrib.core.decision import AttemptDecision, Cancel, Discard, RetryAfter, SnoozeFor
from toolcrib.errors import ApprovalRequired, ConflictError, IdempotencyConflict, InvalidInput
from toolcrib.runs.dispatch import Delivery, Dispatcher, EmbeddedDispatcher, entry_of, within_delay
from toolcrib.runs.filters import Change, Filters, batches, changeable, conditions
from toolcrib.runs.history import ENDED, CallState, DurableCall, StoredCalls, states_of, worker_died
from toolcrib.runs.leases import IS_LOST, lost_rows
from toolcrib.runs.questions import Waits, add_answers, add_questions, open_questions
from toolcrib.spec.identifier import made_at, new_id
from toolcrib.state import LEASE_S, Database, DatabaseWatch, Transaction, ask, this_process

_MAX_RESCUES = 3
_QUICK_SNOOZES, _SNOOZE_S = 100, 1.0
"""Snoozes of a call that may be as short as the tool asks for, and the seconds that each further one has."""
_TO_SEND = "SELECT 'call:' || tool AS entry, id AS key, priority, ready_at FROM calls WHERE state = 'ready'"
# Every statement about a claimed call ends so: a worker whose claim was taken over changes no row by it.
_OWN = "WHERE id = ? AND epoch = ? AND state = 'running'"
_TAKEN = "tool, arguments, caller, epoch, attempts, snoozes, context, session_id, run_id"
# The new epoch is what shuts out the worker before; `lease_ends_at` lets the next one in.
_TAKE = (
    "UPDATE calls SET state = 'running', epoch = epoch + 1, attempts = attempts + 1, worker = ?,"
    " holder = ?, lease_ends_at = ?, approval = NULL WHERE id = ? AND state = 'ready' AND ready_at <= ?"
    f" RETURNING {_TAKEN}"
)
# `_TAKE` has counted the attempt: where it must not count, it is taken back here.
_AGAIN = (
    "UPDATE calls SET state = 'ready', ready_at = ?, attempts = attempts - ?, snoozes = snoozes + ?,"
    f" rescues = rescues * ?, worker = NULL, lease_ends_at = NULL {_OWN}"
)
_END = f"UPDATE calls SET state = ?, result = ?, error = ?, ended_at = ?, lease_ends_at = NULL {_OWN}"
_BEGIN = f"UPDATE calls SET worker = ? {_OWN}"
_FACTS = "id, epoch, repeatable, rescues, tool, priority, worker"
_LOST = f"SELECT {_FACTS} FROM calls WHERE id = ? AND {IS_LOST}"
_RESCUE = (
    "UPDATE calls SET state = ?, rescues = rescues + ?, attempts = attempts - 1, worker = NULL,"
    f" lease_ends_at = NULL, ready_at = ?, error = ?, ended_at = ? {_OWN}"
)
# The epoch goes up without a claim: a body that still runs can record nothing any more.
_CANCEL = (
    "UPDATE calls SET state = 'cancelled', epoch = epoch + 1, ended_at = ?, lease_ends_at = NULL"
    " WHERE id = ? AND state IN ('ready', 'running', 'waiting')"
)
_REPEAT = (
    "UPDATE calls SET state = 'ready', ready_at = ?, ended_at = NULL, error = NULL, attempts = 0,"
    " rescues = 0, worker = NULL WHERE id = ? AND state IN ('failed', 'discarded', 'cancelled', 'unknown')"
)
# `approval` is the one that the call waits for. `room` is an asker who has too many open questions: the call
# has not asked yet, and does so once some of those are decided.
_WAIT = (
    "UPDATE calls SET state = 'waiting', approval = ?, room = ?, context = ?, attempts = attempts - 1,"
    f" rescues = 0, worker = NULL, lease_ends_at = NULL {_OWN}"
)
_ASKED = (
    "SELECT tool, priority, context FROM calls"
    " WHERE id = ? AND state = 'waiting' AND approval IS NULL AND room IS NULL"
)
_ANSWERED = "UPDATE calls SET state = ?, ready_at = ?, context = ? WHERE id = ? AND state = 'waiting'"
_WAKES = "UPDATE approvals SET wakes = 1 WHERE id = ?"
# Two queries and not one with OR: so each half is answered by an index of its own.
_DECIDED = (
    "SELECT id FROM approvals WHERE wakes = 1 AND status <> 'pending'"
    " UNION ALL SELECT id FROM approvals WHERE wakes = 1 AND status = 'pending' AND expires_at <= ? LIMIT 500"
)
# `wakes = 1` makes exactly one of several workers wake the calls of an approval.
_SETTLED = (
    "UPDATE approvals SET wakes = 0, status = CASE WHEN status = 'pending' THEN 'expired' ELSE status END"
    " WHERE id = ? AND wakes = 1 RETURNING status"
)
_WAITING = "SELECT id, tool, priority FROM calls WHERE state = 'waiting'"
_WAITING_FOR = f"{_WAITING} AND approval = ? ORDER BY id"
_ASKERS = "SELECT DISTINCT room FROM calls WHERE state = 'waiting' AND room IS NOT NULL"
_WOKEN = (
    "UPDATE calls SET state = ?, room = NULL, ready_at = ?, error = ?, ended_at = ?"
    " WHERE id = ? AND state = 'waiting'"
)
_OF_CALL = "(SELECT submitted_at FROM calls WHERE id = call_id)"
_RAN_BEFORE = f"UPDATE call_attempts SET began_at = {_OF_CALL} WHERE call_id = ?"
_CLOSE = "UPDATE call_attempts SET ended_at = ?, ending = ?, reason = ? WHERE call_id = ?"
# Attempts are noted by their own rows. The call's row is locked by now, so the number is free.
_NOTE = (
    "INSERT INTO call_events (call_id, number, epoch, at, kind)"
    " SELECT id, (SELECT COALESCE(MAX(number), 0) + 1 FROM call_events WHERE call_id = id), epoch, ?, ?"
    " FROM calls WHERE id = ?"
)


class Submission(TypedDict, total=False):
    """How a call is stored."""

    caller: str
    idempotency_key: str | None
    repeatable: bool
    """It may run again after its worker has died."""
    priority: int
    """Higher ones are taken first."""
    delay_s: float
    context: Mapping[str, Any]
    """What else the call needs, as JSON."""
    session_id: str | None
    run_id: str | None
    id: str | None
    """A UUID version 7 that it has already. Its time is when the call was made."""
    approval: str | None
    """What it waits for."""
    deliver: bool
    """False if it is for whoever takes it in the same transaction."""


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


class DurableCalls(StoredCalls):
    """The durable calls of one project. Safe for threads, processes and, on a server, machines.

    A claim whose process has ended, or that was not renewed for `lease_s` seconds, is lost.
    """

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

    # -- callers ---------------------------------------------------------------------------------

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
                tx.later(_WAKES, row["approval"])
            elif call.get("deliver", True):
                ready.append(Delivery(entry_of(row["tool"]), id, row["ready_at"] - now, row["priority"]))
        # Sent first: a call that is taken here is added as one that runs, and not changed again.
        tx.coming = plain
        self.dispatcher.send(tx, *ready)
        tx.coming = {}
        tx.add("calls", *plain.values())
        return ids

    def adopt(self, worker: str, **call: Any) -> ClaimedCall:
        """Store a call that this process runs already, and take it; arguments are those of `submit`."""
        with self._database.write(f"call {os.getpid()} {id(call)}") as tx:
            claim = self.take(tx, self.submit(**call, transaction=tx, deliver=False), worker)
            assert claim is not None
            tx.run(_RAN_BEFORE, claim.id)
        return claim

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
            if not tx.run(f"{_CLOSE} AND ended_at IS NULL", now, "cancelled", "", id):
                tx.later(_NOTE, now, "cancelled", id)
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
            tx.later(_NOTE, now, "retried", id)
            tool, priority = tx.one("SELECT tool, priority FROM calls WHERE id = ?", id) or ("", 0)
            self._send(tx, id, tool, priority, 0.0)
        return done

    # -- workers ---------------------------------------------------------------------------------

    def take(self, tx: Transaction, id: str, worker: str, *, begins: bool = True) -> ClaimedCall | None:
        """Take a call in the transaction that delivers it, for `worker`; None if it is not ready.

        One that is delivered too early is sent again for its time. Without `begins` it does not run before
        `begin`: if the worker dies until then, the call is handed back.
        """
        now = tx.now()
        holds = (worker if begins else None, this_process(), now + self.lease_s)
        row: tuple[Any, ...] | None
        if (coming := tx.coming.get(id)) is not None:
            coming |= dict(zip(("worker", "holder", "lease_ends_at"), holds, strict=True))
            coming |= {"state": "running", "epoch": 1, "attempts": 1}
            row = tuple(coming[column] for column in _TAKEN.split(", "))
        else:
            row = tx.one(_TAKE, *holds, id, now)
        if row is None:
            early = tx.one("SELECT tool, priority, ready_at FROM calls WHERE id = ? AND state = 'ready'", id)
            if early is not None:
                self._send(tx, id, early[0], early[1], early[2] - now)
            return None
        tool, arguments, caller, epoch, attempt, snoozes, context, session_id, run_id = row
        tx.add("call_attempts", {"call_id": id, "epoch": epoch, "worker": worker, "began_at": now})
        more = json.loads(context)
        claim = ClaimedCall(id, tool, arguments, caller, epoch, attempt, snoozes, more, session_id, run_id)
        return claim._replace(begun=begins)

    def begin(self, claim: ClaimedCall, worker: str) -> None:
        """Record that a call which was only taken runs from now on; `ConflictError` if the worker lost it."""
        with self._database.write(f"call {claim.id}") as tx:
            if not tx.run(_BEGIN, worker, claim.id, claim.epoch):
                raise ConflictError(f"call {claim.id} was taken over")

    def renew(self, claims: Collection[ClaimedCall]) -> list[ClaimedCall]:
        """Keep calls for another `lease_s` seconds; return those that this worker still has.

        No other worker is in its way, even one that is frozen in a transaction.
        """
        with self._database.write(f"renew {os.getpid()} {id(self)}") as tx:
            end = tx.now() + self.lease_s
            renew = f"UPDATE calls SET lease_ends_at = ? {_OWN}"
            ordered = sorted(claims, key=lambda claim: claim.id)  # As `cancelling` locks them.
            kept = tx.each(renew, [(end, claim.id, claim.epoch) for claim in ordered])
            return [claim for claim, is_kept in zip(ordered, kept, strict=True) if is_kept]

    def finish(self, claim: ClaimedCall, result: bytes) -> bool:
        """Record the result (JSON) of an attempt; False if the worker no longer has the call."""
        return bool(self.finish_all([(claim, result)]))

    def finish_all(self, results: Collection[tuple[ClaimedCall, bytes]]) -> list[ClaimedCall]:
        """Record results in one transaction; return the claims that the worker still had.

        Several must belong to no run: the end of a call locks its run.
        """
        return self._end(*((claim, "done", result, None) for claim, result in results))

    def decide(self, claim: ClaimedCall, decision: AttemptDecision) -> bool:
        """Record what follows a failed attempt (`core.attempt.decide`); False as `finish` returns it."""
        if isinstance(decision, RetryAfter):
            reason = "" if decision.error is None else decision.error.message
            return self._again(claim, "retry", reason, decision.seconds)
        if isinstance(decision, SnoozeFor):
            # A tool that asks for no pause, again and again, would keep a worker and the database busy.
            least = _SNOOZE_S if claim.snoozes >= _QUICK_SNOOZES else 0.0
            return self._again(claim, "snooze", decision.reason, max(decision.seconds, least))
        state: CallState = "failed"
        if isinstance(decision, Discard | Cancel):
            state = "discarded" if isinstance(decision, Discard) else "cancelled"
        return bool(self._end((claim, state, None, json.dumps(decision.error.as_dict()))))

    def hand_back(self, claim: ClaimedCall, reason: str = "") -> bool:
        """Give a call back: another worker may take it at once, and nothing has failed.

        Its own ends, or may not run it for this reason.
        """
        return self._again(claim, "handed_back", reason, 0.0)

    def suspend(self, claim: ClaimedCall, waits: Waits) -> bool:
        """Let a call wait; no worker has it meanwhile. False as in `finish`."""
        context = claim.context
        reason = waits.approval or "too many calls wait for approval"
        if waits.requests:
            context = add_questions(context, waits.requests, waits.state)
            reason = ", ".join(waits.requests)
        with self._database.write(f"call {claim.id}") as tx:
            now, own = tx.now(), (claim.id, claim.epoch)
            if not tx.run(_WAIT, waits.approval, waits.room, json.dumps(context), *own):
                return False
            if waits.approval is not None:
                tx.later(_WAKES, waits.approval)
            self._close(tx, *own, now, ("waits", reason))
        return True

    def answer(self, id: str, answers: Mapping[str, Any]) -> None:
        """Give a call the answers of its client. With the last one it continues; others are ignored."""
        with self._database.write(f"call {id}") as tx:
            row = tx.one(_ASKED, id)
            if row is None:
                return
            tool, priority, given = row
            now, context = tx.now(), add_answers(json.loads(given), answers)
            complete = not open_questions(context)
            tx.run(_ANSWERED, "ready" if complete else "waiting", now, json.dumps(context), id)
            if complete:
                tx.later(_NOTE, now, "answered", id)
                self._send(tx, id, tool, priority, 0.0)

    def wake_decided(self) -> list[str]:
        """Continue the calls that wait for a decided approval, or for room; return their ids.

        The approval itself is checked again when the call runs. Where nobody has decided in time, the call
        fails.
        """
        if not self._database.rows(f"{_WAITING} LIMIT 1"):  # As each second where nothing waits.
            return []
        with self._database.read() as tx:
            decided = [id for (id,) in tx.all(_DECIDED, tx.now())]
        woken = []
        for approval in decided:
            with self._database.write(f"approval {approval}") as tx:
                (status,) = tx.one(_SETTLED, approval) or (None,)
                waiting = [] if status is None else tx.all(_WAITING_FOR, approval)
                woken += [row[0] for row in waiting if self._continue(tx, row, expired=status == "expired")]
        for id in self._with_room():
            with self._database.write(f"call {id}") as tx:
                row = tx.one(f"{_WAITING} AND room IS NOT NULL AND id = ?", id)
                if row is not None and self._continue(tx, row):
                    woken.append(id)
        if woken:
            self._ends.notify()
        return woken

    def _with_room(self) -> list[str]:
        """Return the first calls of each asker that wait for room, as many as there is room for."""
        waiting, found = f"{_WAITING} AND room = ? ORDER BY id LIMIT ?", list[str]()
        for (asker,) in self._database.rows(_ASKERS):
            found += [row[0] for row in self._database.rows(waiting, asker, max(0, self.room(asker)))]
        return found

    def _continue(self, tx: Transaction, row: tuple[Any, ...], *, expired: bool = False) -> bool:
        id, tool, priority = row
        now = tx.now()
        state: CallState = "failed" if expired else "ready"
        if not tx.run(_WOKEN, state, now, *((_NOBODY, now) if expired else (None, None)), id):
            return False
        tx.later(_NOTE, now, state if expired else "decided", id)
        if expired:
            self._report_end(tx, id, state)
        else:
            self._send(tx, id, tool, priority, 0.0)
        return True

    def lose(self, claim: ClaimedCall, reason: str) -> bool:
        """Record that the process of an attempt has died, as `rescue` does; False as in `finish`."""
        with self._database.write(f"call {claim.id}") as tx:
            row = tx.one(f"SELECT {_FACTS} FROM calls {_OWN}", claim.id, claim.epoch)
            lost = row is not None and self._lost(tx, row, tx.now(), reason)
        self._ends.notify()
        return lost

    def rescue(self) -> list[str]:
        """Take the calls of workers that are dead or silent, at most 100; return their ids.

        One that had not begun is handed back. Of the others, a call that is not repeatable ends as
        `unknown`, and one that was rescued three times since its last recorded attempt fails.
        """
        rescued = []
        # Each by itself: the end of a call locks its run and the events of all runs.
        for id, holder in lost_rows(self._database, "calls", self.lease_s):
            with self._database.write(f"call {id}") as tx:
                now = tx.now()
                row = tx.one(_LOST, id, now, holder)
                if row is not None and self._lost(tx, row, now):
                    rescued.append(id)
        if rescued:
            self._ends.notify()
        return rescued

    def _lost(self, tx: Transaction, row: tuple[Any, ...], now: float, reason: str = "") -> bool:
        id, epoch, repeatable, rescues, tool, priority, worker = row
        # A call that was only taken has done nothing yet, so no rescue is counted for it.
        begun = worker is not None
        state: CallState = "ready"
        if begun and not (repeatable and rescues < _MAX_RESCUES):
            state = "failed" if repeatable else "unknown"
        ending = (None, None) if state == "ready" else (worker_died(state, rescues, reason), now)
        if not tx.run(_RESCUE, state, int(begun), now, *ending, id, epoch):
            return False
        self._close(tx, id, epoch, now, ("lost", reason or state) if begun else ("handed_back", reason))
        if state == "ready":
            self._send(tx, id, tool, priority, 0.0)
        else:
            self._report_end(tx, id, state)
        return True

    def resend(self) -> int:
        """Send what is ready and whose message was lost; return the number."""
        return sum(map(self.dispatcher.resend, self.to_send))

    @staticmethod
    def running(tx: Transaction, tool: str) -> int:
        """Return how many calls of a tool run now, in all workers."""
        row = tx.one("SELECT COUNT(*) FROM calls WHERE state = 'running' AND tool = ?", tool)
        return int(row[0]) if row else 0

    def approved(self, tools: Collection[str]) -> Set[str]:
        """Return those of these tools that have a ready call which has just been approved."""
        if not tools:
            return frozenset()
        rows = self._database.rows(
            "SELECT DISTINCT tool FROM calls WHERE state = 'ready' AND approval IS NOT NULL"
        )
        return {tool for (tool,) in rows} & set(tools)

    # -- changes ---------------------------------------------------------------------------------

    def _again(
        self,
        claim: ClaimedCall,
        ending: Literal["retry", "snooze", "handed_back"],
        reason: str,
        delay_s: float,
    ) -> bool:
        with self._database.write(f"call {claim.id}") as tx:
            now = tx.now()
            # A retry counts as an attempt. Where something was recorded, the rescues before it are over.
            counts = (int(ending != "retry"), int(ending == "snooze"), int(ending == "handed_back"))
            if not tx.run(_AGAIN, now + within_delay(delay_s), *counts, claim.id, claim.epoch):
                return False
            self._close(tx, claim.id, claim.epoch, now, (ending, reason))
            (priority,) = tx.one("SELECT priority FROM calls WHERE id = ?", claim.id) or (0,)
            self._send(tx, claim.id, claim.tool, priority, delay_s)
        return True

    def _end(self, *ends: tuple[ClaimedCall, CallState, bytes | None, str | None]) -> list[ClaimedCall]:
        """Record claims with state, result and error; return those that the worker still had."""
        ordered, ended = sorted(ends, key=lambda end: end[0].id), list[ClaimedCall]()  # As `cancelling`.
        with self._database.write(f"ends {ordered[0][0].id}") as tx:
            now = tx.now()
            changed = tx.each(_END, [(*end[1:], now, end[0].id, end[0].epoch) for end in ordered])
            for (claim, state, _, error), is_changed in zip(ordered, changed, strict=True):
                if is_changed:
                    ended.append(claim)
                    self._close(tx, claim.id, claim.epoch, now, (state, error or ""))
                    # Listeners continue runs: they have nothing to do for a call without one.
                    if claim.run_id is not None:
                        self._report_end(tx, claim.id, state)
            tx.notify()
            tx.after_commit.append(self._ends.notify)
        return ended

    def _close(self, tx: Transaction, id: str, epoch: int, now: float, ending: tuple[str, str]) -> None:
        """Record the end of an attempt."""
        tx.later(f"{_CLOSE} AND epoch = ?", now, *ending, id, epoch)

    def _send(self, tx: Transaction, id: str, tool: str, priority: int, delay_s: float) -> None:
        self.dispatcher.send(tx, Delivery(entry_of(tool), id, delay_s, priority))

    def _report_end(self, tx: Transaction, id: str, state: CallState) -> None:
        """Call the listeners of the ends of calls, which continue runs."""
        tx.notify()
        for listener in self.on_end:
            listener(tx, id, state)

    def _ended(self, ids: Sequence[str]) -> Mapping[str, CallState]:
        return {id: state for id, state in states_of(self._database, "calls", ids) if state in ENDED}


_NOBODY = json.dumps(ApprovalRequired("nobody approved the call in time").as_dict())


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
