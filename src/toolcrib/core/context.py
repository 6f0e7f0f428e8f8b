"""The context of a running call: run variables, ids, time left, secrets, progress.

A function gets its context by a parameter annotated `Context`. Code anywhere below it uses `get_variable` and
the functions beside it, which read the call that runs in this task or thread.
"""

from __future__ import annotations

import os
import re
import sys
import time
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeVar

from toolcrib.errors import TimedOut, ToolcribError
from toolcrib.spec import Call, CallEvent, Result
from toolcrib.spec.calls.caller import OWN_CALLERS
from toolcrib.spec.identifier import new_id
from toolcrib.spec.record import record

if TYPE_CHECKING:
    from toolcrib.core.bound import Bound
    from toolcrib.core.decision import AttemptDecision
    from toolcrib.core.events import Chunks, EventBus
    from toolcrib.guard import Decision, Permit, Pinned, Redactor, ToolDigest


T = TypeVar("T")
_DIGITS = 6
"""Decimals of progress."""
_EMPTY: Mapping[str, Any] = MappingProxyType({})
FOR_GOOD = "the call was cancelled, and not only its run here"
"""The message by which the task of a stored call is cancelled that does not go on."""


@dataclass(eq=False, repr=False, slots=True)
class _Walk(Call):
    """The part of a context that the path reads or changes in every call."""

    bound: Bound = field(init=False)
    """The tool that is called; set as soon as its name is resolved."""
    received: float = 0.0
    """Time of arrival, in `time.perf_counter` seconds."""
    started: float = 0.0
    """Beginning of this attempt, in `time.perf_counter` seconds; 0 before the call is approved."""
    reported: float = 0.0
    """Beginning of this attempt, or its last report since, in the same seconds."""
    attempt: int = 1
    """1 for the first try."""
    snoozes: int = 0
    """Number of times that the tool asked to be tried later."""
    bus: EventBus | None = None
    """The receiver of the events of the call while it runs."""
    created: tuple[str, ...] = ()
    """Paths of what the call has created that starts other programs of the user."""
    follows: AttemptDecision | None = None
    """The decision on the last attempt, if the call or, with `single`, the attempt has failed."""
    on_run: Callable[[], None] | None = None
    """Called once the call has passed all checks, before its first attempt."""


class Context(_Walk):
    """A call on its way. The path fills it in, and the tool reads it."""

    # Attributes of the class, not fields: most calls change none of them, and setting each takes time.
    used_s: float = 0.0
    """Seconds of the limit that earlier attempts and snoozes have used up, if they count."""
    secrets: Mapping[str, str] = _EMPTY
    """The declared secrets that are set, by name; nothing else."""
    redactor: Redactor | None = None
    """Masks every known secret, and what a middleware hides, in what the call reports; None if that is
    nothing."""
    decision: Decision | None = None
    """The decision of the policy, if it is the same for all arguments."""
    permit: Permit | None = None
    """The approval that the call runs by."""
    digest: ToolDigest | None = None
    """The digest of the tool that all decisions about the call are for; None if none of them needs it."""
    code: Callable[[], Pinned] | None = None
    """Returns the code that was approved, to be mounted: called at the moment of execution. Raises
    ConflictError if the tool is another one by then."""
    start_line: tuple[int, str, str] | None = None
    """The number of the line in the audit log that the call has started, and what it says of the call and of
    its ids."""
    chunks: Chunks | None = None
    """Masks the chunks of this attempt."""
    replayed: bool = False
    """True if the result is that of an earlier call with the same key."""
    single: bool = False
    """True to make one attempt only: whoever makes the call does what `follows` says."""
    stored: bool = False
    """True if the call is in the store: where this run of it is stopped, the call goes on."""
    may_be_stored: bool = False
    """True if the call is to be stored where a person must decide: it returns, in place of waiting."""
    plain_ends: bool = False
    """True if `on_event` gets no event that the call has started or ended: whoever makes it sees that."""

    @classmethod
    def of(cls, call: Call) -> Context:
        """Return the context of a call."""
        # By position, in the order of the fields: with keywords this would take twice as long.
        return cls(
            call.tool, call.arguments, call.caller, call.variables, call.run_id, call.session_id,
            call.approved_by, call.call_id, call.timeout_ms, call.on_event, call.identity, call.wait,
            call.idempotency_key, call.approval_channel, call.approved_digest, call.client, call.dry_run,
            call.trace
        )  # fmt: skip

    def __repr__(self) -> str:
        # Without fields: they hold secrets, and some are set later.
        return f"<Context of {self.tool}, attempt {self.attempt}, call {self.call_id}>"

    def identify(self) -> str:
        """Return the UUIDv7 of the call, the same for all its attempts; doubles as the idempotency key."""
        if self.call_id is None:
            self.call_id = new_id()
        return self.call_id

    @property
    def is_own(self) -> bool:
        """True if this machine's own user calls, in Python or on the command line."""
        return self.identity is None and self.caller in OWN_CALLERS

    @property
    def is_followed(self) -> bool:
        """True if reports during the call matter: somebody listens, or silence is limited."""
        return self.on_event is not None or self.bound.idle_ms is not None

    @property
    def limit_ms(self) -> int:
        """Limit of one attempt in milliseconds: the tool's, or less if the call says so."""
        limit = self.bound.timeout_ms
        return limit if self.timeout_ms is None else min(limit, self.timeout_ms)

    @property
    def limit_source(self) -> str:
        """The origin of that limit, in words."""
        own = self.timeout_ms is not None and self.timeout_ms < self.bound.timeout_ms
        return "the call's own limit" if own else self.bound.timeout_source

    @property
    def remaining(self) -> float:
        """Seconds left of this attempt, never negative."""
        return max(0.0, self.limit_ms / 1000 - self.used_s - (time.perf_counter() - self.started))

    def seconds_left(self) -> float:
        """Return the seconds until this attempt is cancelled; some executors have a grace time."""
        return self.remaining + getattr(self.bound.executor, "grace_s", 0.0)

    def idle_left(self) -> float:
        """Return the seconds for which this attempt may still report nothing; 0 or less if they are over."""
        assert self.bound.idle_ms is not None
        return self.reported + self.bound.idle_ms / 1000 - time.perf_counter()

    def timed_out(self) -> TimedOut:
        """Return the error of an attempt that used up its time; it names the limit that applies."""
        did, limit_ms, source = "took longer than", self.limit_ms, self.limit_source
        # If both limits are over, the one of the whole attempt is named: a report could not have helped.
        # What is reported while the attempt is being ended does not count.
        if self.bound.idle_ms is not None and self.remaining > 0:
            did, limit_ms, source = "reported nothing for", self.bound.idle_ms, "limits.idle_ms"
        details = {"limitMs": limit_ms, "limit": source}
        return TimedOut(f"{self.tool} {did} {limit_ms} ms ({source})", details=details)

    def failed(self, error: ToolcribError) -> Result:
        """Return the result of this call if it ends now with an error."""
        took = (time.perf_counter() - self.received) * 1000
        return Result("error", None, error, (), None, took, self.attempt, self.snoozes, self.call_id)

    def progress(self, done: float, total: float | None = None, message: str = "") -> None:
        """Report progress to the caller, from any thread; never waits."""
        self.reported = time.perf_counter()
        if self.bus is not None:
            # Sums of fractions are shown to people: 0.3, not 0.30000000000000004.
            total = None if total is None else round(total, _DIGITS)
            self.bus.publish(self, "progress", message, done=round(done, _DIGITS), total=total)

    def chunk(self, text: str) -> None:
        """Give the caller the next part of the output before the call ends, from any thread; never waits."""
        self.reported = time.perf_counter()
        if self.bus is not None:
            self.bus.chunk(self, text)

    def log(self, level: str, data: Any, logger: str | None = None) -> None:
        """Send a log message to the MCP client that called, if it wants messages of this level."""
        if self.client is not None:
            named = {} if logger is None else {"logger": logger}
            data = data if self.redactor is None else self.redactor.redact(data)
            self.client.notify("notifications/message", {"level": level, **named, "data": data})

    def relay(self, event: CallEvent) -> None:
        """Report progress, chunks and waiting of a call that this one makes as its own."""
        if event.kind == "progress" and event.done is not None:
            self.progress(event.done, event.total, event.message)
        elif event.kind == "chunk":
            self.chunk(event.text)
        elif event.kind == "approval":
            self.waits(event.approval, event.message)

    def waits(self, approval: str | None, reason: str) -> None:
        """Report that the call waits for a person to decide."""
        if self.bus is not None:
            self.bus.publish(self, "approval", reason, approval=approval)


current: ContextVar[Context] = ContextVar("toolcrib.current")
"""The call that runs here; unset outside of any call."""


@record
class RunContext:
    """The run a call belongs to."""

    run_id: str | None = None
    session_id: str | None = None
    variables: Mapping[str, Any] = field(default_factory=lambda: _EMPTY)


def get_run_context() -> RunContext | None:
    """Return run id, session id and variables of the running call; None outside of any call."""
    context = current.get(None)
    if context is None:
        return None
    return RunContext(context.run_id, context.session_id, MappingProxyType(context.variables or {}))


def get_variables() -> dict[str, Any]:
    """Return all run variables, as a new dict; empty outside of any call."""
    context = current.get(None)
    return {} if context is None else dict(context.variables or {})


def get_variable(key: str, of: type[T]) -> T | None:
    """Return the run variable `key` if it is set and of this type, else None.

    As in JSON, True is not an int, and an int is accepted as a float. `get_variable_or` and
    `must_get_variable` tell null from a variable that is not set.
    """
    value = get_variables().get(key)
    return value if _is(value, of) else None


def get_variable_or(key: str, default: T) -> T:
    """Return the run variable `key` if it is set and of the default's type, or null; else `default`.

    A default of None accepts a variable of any type. Null is None, whatever the default: it is set.
    """
    value = get_variables().get(key, default)
    matches = value is None or default is None or _is(value, type(default))
    return value if matches else default


def must_get_variable(key: str, of: type[T]) -> T:
    """Return the run variable `key`; LookupError when it is not set, TypeError when it is of another type."""
    variables = get_variables()
    if key not in variables:
        raise LookupError(f"the run variable {key!r} is not set")
    value = variables[key]
    if not _is(value, of):
        raise TypeError(f"the run variable {key!r} is {type(value).__name__}, not {of.__name__}")
    return value  # type: ignore[no-any-return] # checked


def _is(value: Any, of: type) -> bool:
    # In Python a bool is also an int; in JSON, true is not a number.
    if isinstance(value, bool):
        return issubclass(bool, of) and of is not int
    return isinstance(value, of) or (of is float and isinstance(value, int))


def get_run_id() -> str | None:
    """Return the id of the running call's run, if any."""
    context = current.get(None)
    return None if context is None else context.run_id


def get_session_id() -> str | None:
    """Return the id of the running call's session, if any."""
    context = current.get(None)
    return None if context is None else context.session_id


# Version 00 of W3C Trace Context, in which an id of zeros only is invalid.
_is_trace = re.compile(r"00-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}\Z").match


def read_trace(text: str | None) -> str | None:
    """Return a text that somebody sent, or None if it is no `traceparent`: W3C lets that be ignored."""
    return text if text is not None and _is_trace(text) else None


def current_trace() -> str | None:
    """Return the span of OpenTelemetry that is current here; None without one."""
    if "opentelemetry.trace" not in sys.modules:  # Then no span was begun, and the import would take time.
        return None
    from opentelemetry import trace

    span = trace.get_current_span().get_span_context()
    if not span.is_valid:
        return None
    return f"00-{span.trace_id:032x}-{span.span_id:016x}-{int(span.trace_flags):02x}"


def new_trace() -> str:
    """Return the beginning of a new trace."""
    # 01 is the flag `sampled`: record this trace.
    return f"00-{os.urandom(16).hex()}-{os.urandom(8).hex()}-01"
