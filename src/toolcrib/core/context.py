"""What a running tool may ask: run variables, identity of the call, time left, secrets, progress.

A function gets it by declaring a parameter annotated `Context`, or anywhere below through `get_variable`
and its sisters, which read the call in force in this task or thread.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, TypeVar

from toolcrib.errors import TimedOut
from toolcrib.spec import Call
from toolcrib.spec.identifier import new_id

__all__ = [
    "Context",
    "RunContext",
    "current",
    "get_run_context",
    "get_run_id",
    "get_session_id",
    "get_variable",
    "get_variable_or",
    "get_variables",
    "heard_on_loop",
    "must_get_variable",
]

T = TypeVar("T")
_NOTHING: Mapping[str, Any] = MappingProxyType({})


class Context(Call):
    """A call on its way: what its tool may ask. `attempt` and the time left change with each attempt."""

    attempt = 1
    """1 for the first try."""
    snoozes = 0
    """How often the tool asked to be tried later."""
    started = 0.0
    """When this attempt began, in `time.perf_counter` seconds."""
    secrets: Mapping[str, str] = _NOTHING
    """The declared secrets that are set, by name; nothing else."""
    redactor: Any = None
    """What masks all secrets that are known (a `Redactor`), for texts that are cut; the gate's own."""
    bound: Any = None
    """The tool made ready to be called (a `Bound`); the call path's own."""
    outcome: Any = None
    """What the last attempt gave; the call path's own."""
    decided: Any = None
    """What the gate has decided whatever the arguments; the gate's own."""
    held: Any = None
    """What the gate holds for this call until it is recorded; the gate's own."""

    @classmethod
    def of(cls, call: Call) -> Context:
        """The context of a call that a door has made."""
        # Not by a copy of its `__dict__`: to look at an attribute takes five times as long from then on.
        context = cls.__new__(cls)
        context.tool = call.tool
        context.arguments = call.arguments
        context.caller = call.caller
        context.variables = call.variables
        context.run_id = call.run_id
        context.session_id = call.session_id
        context.approved_by = call.approved_by
        context.call_id = call.call_id
        context.timeout_ms = call.timeout_ms
        context.on_progress = call.on_progress
        context.identity = call.identity
        context.wait = call.wait
        context.idempotency_key = call.idempotency_key
        context.attempt = 1
        context.snoozes = 0
        return context

    def identify(self) -> str:
        """UUIDv7 of the call, the same for all its attempts; doubles as the idempotency key."""
        if self.call_id is None:
            self.call_id = new_id()
        return self.call_id

    @property
    def limit_ms(self) -> int:
        """Limit of one attempt in milliseconds: the tool's, or less if the call says so."""
        limit: int = self.bound.timeout_ms
        return limit if self.timeout_ms is None else min(limit, self.timeout_ms)

    @property
    def limit_source(self) -> str:
        """Whose limit that is."""
        own = self.timeout_ms is not None and self.timeout_ms < self.bound.timeout_ms
        return "the call's own limit" if own else self.bound.timeout_source

    @property
    def remaining(self) -> float:
        """Seconds left of this attempt, never negative."""
        return max(0.0, self.limit_ms / 1000 - (time.perf_counter() - self.started))

    def timed_out(self) -> TimedOut:
        """The error of an attempt that used up its time, naming the limit that binds."""
        return TimedOut(
            f"{self.tool} took longer than {self.limit_ms} ms ({self.limit_source})",
            details={"limit_ms": self.limit_ms, "limit": self.limit_source},
        )

    def progress(self, done: float, total: float | None = None, message: str = "") -> None:
        """Tell the caller how far the tool has come, from any thread; silent when nobody listens."""
        if self.on_progress is not None:
            self.on_progress(done, total, message)


def heard_on_loop(
    listener: Callable[[float, float | None, str], None],
) -> Callable[[float, float | None, str], None]:
    """The listener, to be told from any thread, called on the event loop that runs now."""
    loop = asyncio.get_running_loop()
    home = threading.get_ident()

    def tell(done: float, total: float | None, message: str) -> None:
        if threading.get_ident() == home:
            listener(done, total, message)
        elif not loop.is_closed():
            loop.call_soon_threadsafe(listener, done, total, message)

    return tell


current: ContextVar[Context] = ContextVar("toolcrib.current")
"""The call in force here; unset outside of any call."""


@dataclass(frozen=True, slots=True)
class RunContext:
    """The run a call belongs to."""

    run_id: str | None = None
    session_id: str | None = None
    variables: Mapping[str, Any] = field(default_factory=lambda: _NOTHING)


def get_run_context() -> RunContext | None:
    """Run id, session id and variables of the call in force; None outside of any call."""
    context = current.get(None)
    if context is None:
        return None
    return RunContext(context.run_id, context.session_id, MappingProxyType(context.variables or {}))


def get_variables() -> dict[str, Any]:
    """All run variables, as a new dict; empty outside of any call."""
    context = current.get(None)
    return {} if context is None else dict(context.variables or {})


def get_variable(key: str, of: type[T]) -> T | None:
    """The run variable `key` if it is set and of this type, else None.

    As in JSON, True is no int, and an int will do where a float is asked for.
    """
    value = get_variables().get(key)
    return value if _is(value, of) else None


def get_variable_or(key: str, default: T) -> T:
    """The run variable `key` if it is set and of the default's type, else `default`.

    A default of None takes a variable of any type.
    """
    value = get_variables().get(key)
    fits = value is not None if default is None else _is(value, type(default))
    return value if fits else default  # type: ignore[return-value] # of the default's type


def must_get_variable(key: str, of: type[T]) -> T:
    """The run variable `key`; LookupError when it is not set, TypeError when it is of another type."""
    variables = get_variables()
    if key not in variables:
        raise LookupError(f"the run variable {key!r} is not set")
    value = variables[key]
    if not _is(value, of):
        raise TypeError(f"the run variable {key!r} is {type(value).__name__}, not {of.__name__}")
    return value  # type: ignore[no-any-return] # checked


def _is(value: Any, of: type) -> bool:
    if isinstance(value, bool):
        return issubclass(bool, of) and of is not int
    return isinstance(value, of) or (of is float and isinstance(value, int))


def get_run_id() -> str | None:
    """Id of the run in force, if any."""
    context = current.get(None)
    return None if context is None else context.run_id


def get_session_id() -> str | None:
    """Id of the session in force, if any."""
    context = current.get(None)
    return None if context is None else context.session_id
