"""A durable call as it is stored, with its attempts and its changes. Pure data."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Literal

__all__ = ["COLUMNS", "ENDED", "CallAttempt", "CallChange", "CallState", "DurableCall"]

CallState = Literal["ready", "running", "waiting", "done", "failed", "discarded", "cancelled", "unknown"]
"""`ready`: it waits for a worker, or for its time. `waiting`: for a person to decide.
`discarded`: the tool said that its input is wrong.
`unknown`: its worker died, and the tool may not be run twice."""
ENDED: tuple[CallState, ...] = ("done", "failed", "discarded", "cancelled", "unknown")


@dataclass(frozen=True, slots=True)
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


COLUMNS = ", ".join(field.name for field in fields(DurableCall))


@dataclass(frozen=True, slots=True)
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


@dataclass(frozen=True, slots=True)
class CallChange:
    """One change of a call."""

    number: int
    """1, 2, … within the call."""
    at: float
    kind: str
    """`submitted`, `claimed`, or how an attempt ended."""
    detail: str
