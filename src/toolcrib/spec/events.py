"""Events of running calls, as interfaces receive them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Protocol

__all__ = ["CallEvent", "CallEvents"]


@dataclass(frozen=True, slots=True)
class CallEvent:
    """One event of one call. It holds no arguments and no values; secrets in its message are masked."""

    kind: Literal["started", "progress", "ended"]
    call_id: str
    tool: str
    caller: str
    done: float | None = None
    """Of `progress`: how far the tool has come,"""
    total: float | None = None
    """and the end of that scale, if it is known."""
    message: str = ""
    status: Literal["ok", "error", "pending", "cancelled"] | None = None
    """Of `ended`."""
    code: str | None = None
    """The error code of a call that ended with an error."""
    duration_ms: float | None = None


class CallEvents(Protocol):
    """The events of one subscriber, in their order. Iteration ends when it is closed."""

    @property
    def lost(self) -> int:
        """Number of events dropped, the oldest first, because the subscriber was too slow."""

    def __aiter__(self) -> CallEvents: ...

    async def __anext__(self) -> CallEvent: ...

    def close(self) -> None:
        """Unsubscribe."""
