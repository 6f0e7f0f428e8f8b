"""The changes that workers make, and all others beside them. Each is checked by its statement.

A worker that claims a call gets a new epoch. What it records later counts only if the call still has this
epoch, so of a frozen worker and the one that took over, one is heard. A worker keeps its claims by renewing
them; `rescue` takes the calls of those that no longer do.
"""

from __future__ import annotations

import json
import os
from collections.abc import Collection
from typing import Any, Literal

from toolcrib.core.decision import AttemptDecision, Cancel, Discard, RetryAfter, SnoozeFor
from toolcrib.errors import ConflictError, ToolFailed
from toolcrib.runs.calls.changes import OWN, ClaimedCall
from toolcrib.runs.calls.submitted import SubmittedCalls
from toolcrib.runs.calls.waiting import WaitingCalls
from toolcrib.runs.dispatch import within_delay
from toolcrib.runs.history import CallState
from toolcrib.runs.leases import IS_LOST, lost_rows
from toolcrib.state import Transaction, this_process

_MAX_RESCUES = 3
_QUICK_SNOOZES, _SNOOZE_S = 100, 1.0
"""Snoozes of a call that may be as short as the tool asks for, and the seconds that each further one has."""
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
    f" rescues = rescues * ?, worker = NULL, lease_ends_at = NULL {OWN}"
)
_END = f"UPDATE calls SET state = ?, result = ?, error = ?, ended_at = ?, lease_ends_at = NULL {OWN}"
_BEGIN = f"UPDATE calls SET worker = ? {OWN}"
_OF_CALL = "(SELECT submitted_at FROM calls WHERE id = call_id)"
_RAN_BEFORE = f"UPDATE call_attempts SET began_at = {_OF_CALL} WHERE call_id = ?"
_FACTS = "id, epoch, repeatable, rescues, tool, priority, worker"
_LOST = f"SELECT {_FACTS} FROM calls WHERE id = ? AND {IS_LOST}"
_RESCUE = (
    "UPDATE calls SET state = ?, rescues = rescues + ?, attempts = attempts - 1, worker = NULL,"
    f" lease_ends_at = NULL, ready_at = ?, error = ?, ended_at = ? {OWN}"
)


class DurableCalls(SubmittedCalls, WaitingCalls):
    """The durable calls of one project. Safe for threads, processes and, on a server, machines.

    A claim whose process has ended, or that was not renewed for `lease_s` seconds, is lost.
    """

    def adopt(self, worker: str, **call: Any) -> ClaimedCall:
        """Store a call that this process runs already, and take it; arguments are those of `submit`."""
        with self._database.write(f"call {os.getpid()} {id(call)}") as tx:
            claim = self.take(tx, self.submit(**call, transaction=tx, deliver=False), worker)
            assert claim is not None
            tx.run(_RAN_BEFORE, claim.id)
        return claim

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
            renew = f"UPDATE calls SET lease_ends_at = ? {OWN}"
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

    def lose(self, claim: ClaimedCall, reason: str) -> bool:
        """Record that the process of an attempt has died, as `rescue` does; False as in `finish`."""
        with self._database.write(f"call {claim.id}") as tx:
            row = tx.one(f"SELECT {_FACTS} FROM calls {OWN}", claim.id, claim.epoch)
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
        ending = (None, None) if state == "ready" else (_worker_died(state, rescues, reason), now)
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
        return self.dispatcher.resend(" UNION ALL ".join(self.to_send))

    @staticmethod
    def running(tx: Transaction, tool: str) -> int:
        """Return how many calls of a tool run now, in all workers."""
        row = tx.one("SELECT COUNT(*) FROM calls WHERE state = 'running' AND tool = ?", tool)
        return int(row[0]) if row else 0

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


def _worker_died(state: CallState, rescues: int, reason: str) -> str:
    """Return the error of a call whose worker has died, as JSON."""
    why, failed = reason or "its worker has died, or was silent for too long", state == "failed"
    what = f"this call was lost {rescues + 1} times" if failed else "the outcome of this call is unknown"
    hint = None if failed else "Check what it did; then retry it, or leave it."
    return json.dumps(ToolFailed(f"{what}: {why}", hint=hint, details={"outcome": "unknown"}).as_dict())
