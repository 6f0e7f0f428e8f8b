"""The decisions that can follow a failed attempt. Pure data."""

from __future__ import annotations

from dataclasses import field

from toolcrib.errors import (
    Cancelled,
    LockDrift,
    NotTrusted,
    RateLimited,
    StateUnavailable,
    ToolcribError,
    ToolFailed,
)
from toolcrib.spec.record import record


@record
class RetryAfter:
    """Run the tool again in this many seconds. The attempt counts."""

    seconds: float
    error: ToolcribError | None = field(default=None, compare=False)
    """The failure of the attempt."""


@record
class SnoozeFor:
    """Run the tool again in this many seconds. The attempt does not count."""

    seconds: float
    reason: str = field(default="", compare=False)


@record
class Fail:
    """The call has failed."""

    error: ToolcribError


class Discard(Fail):
    """The tool says that its input is wrong."""

    __slots__ = ()


class Cancel(Fail):
    """The tool says that it can never succeed."""

    __slots__ = ()


def goes_on(error: ToolcribError) -> bool:
    """Return True if a stored call of which nothing ran goes on after this error: later, or elsewhere.

    A limit of calls says nothing about this one; the person of another machine may have accepted the tool.
    """
    away = isinstance(error, StateUnavailable) and error.retryable
    return away or isinstance(error, Cancelled | RateLimited | NotTrusted | LockDrift)


AttemptDecision = RetryAfter | SnoozeFor | Fail


def failure_of(decision: AttemptDecision) -> ToolcribError:
    """Return the error of the attempt that this decision is about."""
    error = None if isinstance(decision, SnoozeFor) else decision.error
    if error is not None:
        return error
    return ToolFailed(getattr(decision, "reason", "") or "the tool asked to be tried later", retryable=True)
