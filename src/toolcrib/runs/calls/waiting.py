"""The changes of calls that wait: for approval, for room to ask for it, or for answers of their client."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Set
from typing import Any

from toolcrib.errors import ApprovalRequired
from toolcrib.runs.calls.changes import NOTE, OWN, WAKES, CallChanges, ClaimedCall
from toolcrib.runs.history import CallState
from toolcrib.runs.questions import Waits, add_answers, add_questions, open_questions
from toolcrib.state import Transaction

# `approval` is the one that the call waits for. `room` is an asker who has too many open questions: the call
# has not asked yet, and does so once some of those are decided.
_WAIT = (
    "UPDATE calls SET state = 'waiting', approval = ?, room = ?, context = ?, attempts = attempts - 1,"
    f" rescues = 0, worker = NULL, lease_ends_at = NULL {OWN}"
)
_ASKED = (
    "SELECT tool, priority, context FROM calls"
    " WHERE id = ? AND state = 'waiting' AND approval IS NULL AND room IS NULL"
)
_ANSWERED = "UPDATE calls SET state = ?, ready_at = ?, context = ? WHERE id = ? AND state = 'waiting'"
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
_NOBODY = json.dumps(
    ApprovalRequired(
        "nobody approved the call in time", hint="Make the same call again to ask once more."
    ).as_dict()
)


class WaitingCalls(CallChanges):
    """The calls of a database, as they wait and continue."""

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
                tx.later(WAKES, waits.approval)
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
                tx.later(NOTE, now, "answered", id)
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
        tx.later(NOTE, now, state if expired else "decided", id)
        if expired:
            self._report_end(tx, id, state)
        else:
            self._send(tx, id, tool, priority, 0.0)
        return True

    def approved(self, tools: Collection[str]) -> Set[str]:
        """Return those of these tools that have a ready call which has just been approved."""
        if not tools:
            return frozenset()
        rows = self._database.rows(
            "SELECT DISTINCT tool FROM calls WHERE state = 'ready' AND approval IS NOT NULL"
        )
        return {tool for (tool,) in rows} & set(tools)
