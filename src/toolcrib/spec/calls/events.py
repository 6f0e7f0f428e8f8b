"""Events of running calls, as interfaces receive them, and what a tool yields to report them."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any, Literal, Protocol

from toolcrib.spec.record import record


@dataclass(slots=True)  # Not frozen: that would triple the time to make one.
class CallEvent:
    """One event of one call, with secrets masked. Only `chunk` holds anything of the call's value."""

    kind: Literal["started", "progress", "chunk", "approval", "ended"]
    call_id: str
    tool: str
    caller: str
    attempt: int = 1
    """Number of the attempt, from 1. The chunks of an attempt that failed are void."""
    done: float | None = None
    """Of `progress`: how far the tool has come,"""
    total: float | None = None
    """and the end of that scale, if it is known."""
    message: str = ""
    """Of `progress`; of `approval`, the reason why a person must decide."""
    text: str = ""
    """Of `chunk`: the next part of the tool's output."""
    approval: str | None = None
    """Of `approval`: the id of the approval that the call waits for."""
    status: Literal["ok", "error", "pending", "cancelled"] | None = None
    """Of `ended`."""
    code: str | None = None
    """The error code of a call that ended with an error."""
    duration_ms: float | None = None
    missed: int = 0
    """Number of events before this one that were dropped, because the subscriber was too slow."""

    def as_dict(self) -> dict[str, Any]:
        """Return the JSON form, without fields that have their default."""
        found = ((field, getattr(self, field.name)) for field in fields(self))
        return {field.name: value for field, value in found if value != field.default}


@record
class Progress:
    """The share of its work that a tool has done."""

    done: float
    total: float | None = None
    message: str = ""


@record
class Chunk:
    """The next part of a tool's output. If the tool yields no value, its value is all chunks together."""

    text: str


class CallEvents(Protocol):
    """The events of one subscriber, in their order. Iteration ends when it is closed."""

    def __aiter__(self) -> CallEvents: ...

    async def __anext__(self) -> CallEvent: ...

    def close(self) -> None:
        """Unsubscribe. Events that came before can still be read."""
