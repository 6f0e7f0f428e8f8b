"""The end of one attempt, as data that a process can send to another one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from toolcrib.core.context import Context
from toolcrib.core.decision import AttemptDecision, Cancel, Discard, Fail, RetryAfter, SnoozeFor
from toolcrib.errors import InputRequired, RateLimited, StateUnavailable, ToolcribError
from toolcrib.runs.calls import ClaimedCall, DurableCalls
from toolcrib.runs.questions import client_of
from toolcrib.schema import to_json_text
from toolcrib.spec import Caller, Result


@dataclass(frozen=True, slots=True)
class Done:
    """The tool has returned; the result as JSON."""

    result: bytes


@dataclass(frozen=True, slots=True)
class Waits:
    """A person must decide first, about this approval."""

    approval: str


@dataclass(frozen=True, slots=True)
class WaitsForRoom:
    """A person must decide first on other calls of this asker."""

    asker: str


@dataclass(frozen=True, slots=True)
class Asks:
    """The client must answer first: its requests by name, and the tool's state."""

    requests: Mapping[str, Any]
    state: str | None


@dataclass(frozen=True, slots=True)
class HandedBack:
    """The worker ends: nothing has failed."""


@dataclass(frozen=True, slots=True)
class Lost:
    """The process that ran the attempt has died."""

    reason: str


Ending = Done | Waits | WaitsForRoom | Asks | HandedBack | Lost | AttemptDecision
_DECISIONS: dict[str, type[Fail]] = {"fail": Fail, "discard": Discard, "cancel": Cancel}


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
    ctx.single, ctx.attempt, ctx.snoozes = True, claim.attempt, claim.snoozes
    return ctx


def ending_of(ctx: Context, result: Result) -> Ending:
    """Return the end of an attempt by its result."""
    error, follows = result.error, ctx.follows
    if result.status == "pending":
        details = result.details or {}
        return WaitsForRoom(details["room"]) if "room" in details else Waits(str(details.get("approval")))
    if error is None:
        return Done(to_json_text(result.as_dict()))
    if isinstance(error, InputRequired) and ctx.client is not None and error.details.get("requests"):
        return Asks(error.details["requests"], error.details.get("state"))
    if isinstance(error, RateLimited):
        return SnoozeFor(float(error.details.get("retry_after_s") or 1.0), error.message)
    if follows is None and isinstance(error, StateUnavailable) and error.retryable:
        return SnoozeFor(1.0, error.message)
    if isinstance(follows, RetryAfter):
        return RetryAfter(follows.seconds, error)
    if isinstance(follows, SnoozeFor):
        return SnoozeFor(follows.seconds, error.message)
    return Fail(error) if follows is None else type(follows)(error)


def as_json(ending: Ending) -> dict[str, Any]:
    """Return the JSON form."""
    match ending:
        case Done(result):
            return {"end": "done", "result": result.decode()}
        case Waits(approval):
            return {"end": "waits", "approval": approval}
        case WaitsForRoom(asker):
            return {"end": "waits_for_room", "asker": asker}
        case Asks(requests, state):
            return {"end": "asks", "requests": dict(requests), "state": state}
        case RetryAfter(seconds, error):
            return {"end": "retry", "seconds": seconds, "error": None if error is None else error.as_dict()}
        case SnoozeFor(seconds, reason):
            return {"end": "snooze", "seconds": seconds, "reason": reason}
        case HandedBack():
            return {"end": "handed_back"}
        case Lost(reason):
            return {"end": "lost", "reason": reason}
    name = next(name for name, kind in _DECISIONS.items() if type(ending) is kind)
    return {"end": name, "error": ending.error.as_dict()}


def from_json(data: Mapping[str, Any]) -> Ending:
    """Return what `as_json` has written."""
    error = None if data.get("error") is None else ToolcribError.from_dict(data["error"])
    match data["end"]:
        case "done":
            return Done(data["result"].encode())
        case "waits":
            return Waits(data["approval"])
        case "waits_for_room":
            return WaitsForRoom(data["asker"])
        case "asks":
            return Asks(data["requests"], data["state"])
        case "retry":
            return RetryAfter(data["seconds"], error)
        case "snooze":
            return SnoozeFor(data["seconds"], data["reason"])
        case "handed_back":
            return HandedBack()
        case "lost":
            return Lost(data["reason"])
        case name:
            assert error is not None
            return _DECISIONS[name](error)


def record(calls: DurableCalls, claim: ClaimedCall, ending: Ending) -> bool:
    """Record the end of an attempt; False if the worker no longer has the call."""
    match ending:
        case Done(result):
            return calls.finish(claim, result)
        case Waits(approval):
            return calls.wait_for_approval(claim, approval)
        case WaitsForRoom(asker):
            return calls.wait_for_room(claim, asker)
        case Asks(requests, state):
            return calls.wait_for_answers(claim, requests, state)
        case HandedBack():
            return calls.hand_back(claim)
        case Lost(reason):
            return calls.lose(claim, reason)
    return calls.decide(claim, ending)
