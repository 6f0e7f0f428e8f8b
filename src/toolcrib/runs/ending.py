"""The end of one attempt, as data that a process can send to another one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from toolcrib.core.context import Context
from toolcrib.core.decision import AttemptDecision, Cancel, Discard, Fail, RetryAfter, SnoozeFor
from toolcrib.errors import InputRequired, LockDrift, NotTrusted, RateLimited, StateUnavailable, ToolcribError
from toolcrib.runs.calls import ClaimedCall, DurableCalls
from toolcrib.runs.questions import Waits, client_of
from toolcrib.schema import to_json_text
from toolcrib.spec import Caller, Result


@dataclass(frozen=True, slots=True)
class Done:
    """The tool has returned; the result as JSON."""

    result: bytes


@dataclass(frozen=True, slots=True)
class HandedBack:
    """The worker ends: nothing has failed."""


@dataclass(frozen=True, slots=True)
class Lost:
    """The process that ran the attempt has died."""

    reason: str


@dataclass(frozen=True, slots=True)
class NotHere:
    """The tool may not run on this machine, and has not: another worker may take the call."""

    reason: str


Ending = Done | Waits | HandedBack | NotHere | Lost | AttemptDecision
_KINDS: dict[str, type[Any]] = {
    "done": Done,
    "waits": Waits,
    "retry": RetryAfter,
    "snooze": SnoozeFor,
    "handed_back": HandedBack,
    "not_here": NotHere,
    "lost": Lost,
    "fail": Fail,
    "discard": Discard,
    "cancel": Cancel,
}
"""The endings by their names in JSON."""


def context_of(claim: ClaimedCall) -> Context:
    """Return a claimed call for the one path: one attempt, which waits for nobody."""
    more = claim.context
    identity = more.get("identity")
    ctx = Context(
        claim.tool,
        claim.arguments,
        claim.caller,
        more.get("variables"),
        claim.run_id,
        claim.session_id,
        call_id=claim.id,
        timeout_ms=more.get("timeout_ms"),
        identity=None if identity is None else Caller.from_dict(identity),
        wait="pending",
        idempotency_key=more.get("idempotency_key"),
        client=client_of(more),
        trace=more.get("trace"),
    )
    ctx.single = ctx.stored = True
    ctx.attempt, ctx.snoozes = claim.attempt, claim.snoozes
    return ctx


def ending_of(ctx: Context, result: Result) -> Ending:
    """Return the end of an attempt by its result."""
    error, follows = result.error, ctx.follows
    if result.status == "pending":
        details = result.details or {}
        return Waits(details.get("approval"), details.get("room"))
    if error is None:
        return Done(to_json_text(result.as_record()))
    # The person of this machine has not accepted it, or its files are not those of the lock.
    if isinstance(error, NotTrusted | LockDrift) and not ctx.started:
        return NotHere(f"{error.message}. {error.hint or ''}".rstrip())
    if isinstance(error, InputRequired) and ctx.client is not None and error.details.get("requests"):
        return Waits(requests=error.details["requests"], state=error.details.get("state"))
    # A limit of calls says nothing about this one, so it waits without using up an attempt.
    if isinstance(error, RateLimited):
        return SnoozeFor(float(error.details.get("retryAfterS") or 1.0), error.message)
    # The path could not reach its own database: the tool has not run.
    if follows is None and isinstance(error, StateUnavailable) and error.retryable:
        return SnoozeFor(1.0, error.message)
    if isinstance(follows, RetryAfter):
        return RetryAfter(follows.seconds, error)
    if isinstance(follows, SnoozeFor):
        return SnoozeFor(follows.seconds, error.message)
    return Fail(error) if follows is None else type(follows)(error)


def as_json(ending: Ending) -> dict[str, Any]:
    """Return the JSON form."""
    data = {one.name: getattr(ending, one.name) for one in fields(ending)}
    if data.get("error") is not None:
        data["error"] = data["error"].as_dict()
    if isinstance(ending, Done):
        data["result"] = ending.result.decode()
    return {"end": next(name for name, kind in _KINDS.items() if type(ending) is kind), **data}


def from_json(data: Mapping[str, Any]) -> Ending:
    """Return what `as_json` has written."""
    values = dict(data)
    kind = _KINDS[values.pop("end")]
    if values.get("error") is not None:
        values["error"] = ToolcribError.from_dict(values["error"])
    if kind is Done:
        values["result"] = values["result"].encode()
    ending: Ending = kind(**values)
    return ending


def record_ending(calls: DurableCalls, claim: ClaimedCall, ending: Ending) -> bool:
    """Record the end of an attempt; False if the worker no longer has the call."""
    match ending:
        case Done(result):
            return calls.finish(claim, result)
        case Waits():
            return calls.suspend(claim, ending)
        case HandedBack():
            return calls.hand_back(claim)
        case NotHere(reason):
            return calls.hand_back(claim, reason)
        case Lost(reason):
            return calls.lose(claim, reason)
    return calls.decide(claim, ending)
