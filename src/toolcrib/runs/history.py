"""A durable call as it is stored, with its attempts and its changes. Pure data."""

from __future__ import annotations

import json
from dataclasses import fields
from typing import Any, Literal

from toolcrib.errors import Cancelled, ToolcribError
from toolcrib.spec import Result
from toolcrib.spec.moment import written
from toolcrib.spec.record import json_form, record

CallState = Literal["ready", "running", "waiting", "done", "failed", "discarded", "cancelled", "unknown"]
"""`ready`: it waits for a worker, or for its time. `waiting`: for a person to decide, or a client to answer.
`discarded`: the tool said that its input is wrong.
`unknown`: its worker died, and the tool may not be run twice."""
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
        result = self.outcome().as_dict() if self.ended else None
        return {**json_form(self, "error", "context"), "result": result}


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
        return {"tool": self.tool, "ready": self.ready, "waits_s": round(self.waits_s, 1)}


def _message(detail: str | None) -> str | None:
    """Return the message where the detail is an error as JSON."""
    if detail is None or not detail.startswith("{"):
        return detail
    return str(json.loads(detail).get("message", detail))
