"""Durable calls as they are stored, with their attempts and changes, and how they are read."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import fields
from typing import Any, Literal, Unpack, cast

from toolcrib.errors import Cancelled, NotFoundError, ToolcribError, ToolFailed, UsageError
from toolcrib.runs.filters import Conditions, Filters, conditions, count
from toolcrib.spec import Result
from toolcrib.spec.moment import written
from toolcrib.spec.record import json_form, record
from toolcrib.state import Database
from toolcrib.state.database import ids, newest

_TOGETHER = 256
_HINT = "To see all: toolcrib calls list"
CallState = Literal["ready", "running", "waiting", "done", "failed", "discarded", "cancelled", "unknown"]
"""`ready`: it waits for a worker, or for its time. `waiting`: for a person to decide, or a client to answer.
`discarded`: the tool reported that its input is wrong.
`unknown`: its worker died, and the tool may not be run twice."""
CallStatus = Literal["running", "awaiting_approval", "ok", "error", "cancelled"]
STATES: dict[CallStatus, tuple[CallState, ...]] = {
    "running": ("ready", "running"),
    "awaiting_approval": ("waiting",),
    "ok": ("done",),
    "error": ("failed", "discarded", "unknown"),
    "cancelled": ("cancelled",),
}
"""The status of a call for its caller, as its states in the store."""
ENDED: tuple[CallState, ...] = ("done", "failed", "discarded", "cancelled", "unknown")


@record
class DurableCall:
    """A call. Times are seconds since the epoch."""

    id: str
    """A UUID version 7."""
    tool: str
    arguments: bytes
    """JSON."""
    caller: str
    state: CallState
    priority: int
    ready_at: float
    attempts: int
    """Attempts that counted; snoozes, rescues and attempts that were handed back do not."""
    snoozes: int
    rescues: int
    worker: str | None
    result: bytes | None
    """JSON."""
    error: str | None
    """JSON of a `ToolcribError`."""
    submitted_at: float
    ended_at: float | None
    session_id: str | None
    run_id: str | None
    approval: str | None
    """The approval that it waits for."""
    context: str
    """JSON: what the submitter gave beside the arguments."""

    @property
    def ended(self) -> bool:
        """True if nothing more happens unless somebody retries it."""
        return self.state in ENDED

    def outcome(self) -> Result:
        """Return the result of the call as a direct call returns it; `pending` while it has not ended."""
        if self.result is not None and self.state == "done":
            result = Result.from_dict(json.loads(self.result))
        elif self.error is not None:
            result = Result("error", error=ToolcribError.from_dict(json.loads(self.error)))
        elif self.state == "cancelled":
            result = Result("error", error=Cancelled("the call was cancelled"))
        else:
            result = Result("pending", details={"state": self.state, "approval": self.approval})
        result.call_id, result.attempts, result.snoozes = self.id, max(1, self.attempts), self.snoozes
        return result

    def as_dict(self) -> dict[str, Any]:
        """Return the JSON form."""
        outcome = self.outcome() if self.ended else None
        return {
            **json_form(self, "approval", "context", "error", "submitted_at"),
            "status": next(status for status, states in STATES.items() if self.state in states),
            "beganAt": written(self.submitted_at),
            "approvalId": self.approval if self.state == "waiting" else None,
            "result": None if outcome is None else outcome.answer(),
            "details": None if outcome is None else outcome.details,
        }


_CHANGES = (
    "SELECT 0, 0, 0, submitted_at, 'submitted', '' FROM calls WHERE id = ?"
    " UNION ALL SELECT epoch, 0, 0, began_at, 'claimed', worker FROM call_attempts WHERE call_id = ?"
    " UNION ALL SELECT epoch, 1, 0, ended_at, ending, reason FROM call_attempts"
    " WHERE call_id = ? AND ended_at IS NOT NULL"
    " UNION ALL SELECT epoch, 2, number, at, kind, '' FROM call_events WHERE call_id = ? ORDER BY 1, 2, 3"
)
"""By epoch, and in one epoch: the claim, the end of the attempt, what came after it."""
COLUMNS = ", ".join(field.name for field in fields(DurableCall))


@record
class CallAttempt:
    """One time that a worker took a call."""

    epoch: int
    """1, 2, …: only the newest can be recorded."""
    worker: str
    began_at: float
    ended_at: float | None
    ending: str | None
    """`done`, `retry`, `snooze`, `failed`, `discarded`, `cancelled`, `handed_back`, `waits` or `lost`."""
    reason: str | None

    def as_dict(self) -> dict[str, Any]:
        """Return the JSON form."""
        return {**json_form(self, "epoch"), "reason": _message(self.reason)}


@record
class CallChange:
    """One change of a call."""

    number: int
    """1, 2, … within the call."""
    at: float
    kind: str
    """`submitted`, `claimed`, or how an attempt ended."""
    detail: str

    def as_dict(self) -> dict[str, Any]:
        """Return the JSON form."""
        at, detail = written(self.at), _message(self.detail)
        return {"number": self.number, "at": at, "kind": self.kind, "detail": detail}


@record
class QueuedTool:
    """A tool with calls that are ready."""

    tool: str
    ready: int
    waits_s: float
    """Seconds that the oldest of them has been ready."""

    def as_dict(self) -> dict[str, Any]:
        """Return the JSON form."""
        return {"tool": self.tool, "ready": self.ready, "waitsS": round(self.waits_s, 1)}


def _message(detail: str | None) -> str | None:
    """Return the message where the detail is an error as JSON."""
    if detail is None or not detail.startswith("{"):
        return detail
    return str(json.loads(detail).get("message", detail))


class StoredCalls:
    """Durable calls with their attempts and changes. `caller` limits a method to the calls of that one."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def find(self, id: str, caller: str | None = None) -> DurableCall:
        """Return a call as it is now; `NotFoundError`."""
        rows = self._database.rows(f"SELECT {COLUMNS} FROM calls WHERE id = ?", id)
        call = DurableCall(*cast("Any", rows[0])) if rows else None
        if call is None or caller not in (None, call.caller):
            raise NotFoundError(f"there is no call {id[:100]!r}", hint=_HINT)
        return call

    def resolve(self, beginning: str, caller: str | None = None) -> str:
        """Return the id that begins so. Raises NotFoundError, and UsageError if several do."""
        found = ids(self._database, "calls", beginning, caller)
        if len(found) > 1 and beginning not in found:
            raise UsageError(f"several calls begin with {beginning!r}", hint="Write more of the id.")
        return found[0] if found else self.find(beginning, caller).id

    def page(
        self,
        state: str | Sequence[str] | None = None,
        limit: int = 100,
        *,
        before: str | None = None,
        **filters: Unpack[Conditions],
    ) -> Sequence[DurableCall]:
        """Return calls, the newest first, at most 500; for the next page pass the last id as `before`."""
        wanted = conditions("calls", Filters(**filters, state=state))
        rows = newest(self._database, "calls", COLUMNS, wanted, limit, before=before)
        return [DurableCall(*cast("Any", row)) for row in rows]

    def count(self, **filters: Unpack[Filters]) -> int:
        """Return how many calls match."""
        return count(self._database, "calls", conditions("calls", filters))

    def attempts(self, id: str) -> Sequence[CallAttempt]:
        """Return each time that a worker took the call, the first one first."""
        query = "SELECT epoch, worker, began_at, ended_at, ending, reason FROM call_attempts"
        rows = self._database.rows(f"{query} WHERE call_id = ? ORDER BY epoch", id)
        return [CallAttempt(*row) for row in rows]

    def changes(self, id: str) -> Sequence[CallChange]:
        """Return the changes of a call, the first one first."""
        rows = self._database.rows(_CHANGES, *[id] * 4)
        return [CallChange(number, *row[3:]) for number, row in enumerate(rows, 1)]

    def history(self, id: str) -> dict[str, list[dict[str, Any]]]:
        """Return every attempt and every change of a call, as JSON."""
        parts: dict[str, Sequence[CallAttempt | CallChange]] = {
            "attempts": self.attempts(id),
            "changes": self.changes(id),
        }
        return {name: [one.as_dict() for one in part] for name, part in parts.items()}

    def mark(self) -> tuple[Any, ...]:
        """Return values of which one differs once a call is added, begins, waits or ends."""
        ended = "run_id IS NULL AND ended_at IS NOT NULL"  # The ends of others are events of their runs.
        newest = f"(SELECT MAX(id) FROM calls), (SELECT MAX(ended_at) FROM calls WHERE {ended})"
        open_ = "SELECT id, epoch FROM calls WHERE state IN ('running', 'waiting') ORDER BY id LIMIT 1000"
        return (*self._database.rows(f"SELECT {newest}"), *self._database.rows(open_))

    def counts(self) -> dict[str, int]:
        """Return how many calls have not ended, by state."""
        count = "SELECT COUNT(*) FROM calls WHERE state = ?"
        with self._database.read() as tx:
            return {state: (tx.one(count, state) or (0,))[0] for state in ("ready", "running", "waiting")}

    def ready_tools(self) -> list[str]:
        """Return the tools of all calls that are ready, now or at their time."""
        ready = "SELECT DISTINCT tool FROM calls WHERE state = 'ready'"
        return [tool for (tool,) in self._database.rows(ready)]

    def queue(self) -> Sequence[QueuedTool]:
        """Return the tools with calls that are ready, those of the oldest call first."""
        query = "SELECT tool, COUNT(*), MIN(ready_at) FROM calls WHERE state = 'ready' AND ready_at <= ?"
        with self._database.read() as tx:
            now = tx.now()
            rows = tx.all(f"{query} GROUP BY tool ORDER BY MIN(ready_at)", now)
        return [QueuedTool(tool, count, now - since) for tool, count, since in rows]


def states_of(database: Database, table: str, ids: Sequence[str]) -> list[tuple[str, Any]]:
    """Return id and state of these rows of a table."""
    found = list[tuple[str, Any]]()
    for first in range(0, len(ids), _TOGETHER):
        some = list(ids[first : first + _TOGETHER])
        some += some[:1] * ((1 << (len(some) - 1).bit_length()) - len(some))  # Few lengths: few plans.
        query = f"SELECT id, state FROM {table} WHERE id IN ({', '.join('?' * len(some))})"
        found += [(id, state) for id, state in database.rows(query, *some)]
    return found


def worker_died(state: CallState, rescues: int, reason: str) -> str:
    """Return the error of a call whose worker has died, as JSON."""
    why, failed = reason or "its worker has died, or was silent for too long", state == "failed"
    what = f"this call was lost {rescues + 1} times" if failed else "the outcome of this call is unknown"
    hint = None if failed else "Check what it did; then retry it, or leave it."
    return json.dumps(ToolFailed(f"{what}: {why}", hint=hint, details={"outcome": "unknown"}).as_dict())
