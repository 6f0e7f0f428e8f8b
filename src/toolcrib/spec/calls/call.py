"""A call, its events and its result: Call goes in, an executor returns an Outcome, a Result goes out."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import Any, Literal, Protocol

from toolcrib.errors import ApprovalRequired, ToolcribError
from toolcrib.spec.calls.caller import Caller
from toolcrib.spec.calls.client import CallClient
from toolcrib.spec.record import camel, record


@dataclass(slots=True)  # Not frozen: that would triple the time to make one.
class CallEvent:
    """One event of one call, with secrets masked. Only `chunk` contains anything of the call's value."""

    kind: Literal["started", "progress", "chunk", "approval", "ended"]
    call_id: str
    tool: str
    caller: str
    attempt: int = 1
    """Number of the attempt, from 1. The chunks of an attempt that failed are void."""
    done: float | None = None
    """Of `progress`: the part that the tool has done, on a scale up to `total`."""
    total: float | None = None
    """The end of that scale, if it is known."""
    message: str = ""
    """Of `progress`: its message. Of `approval`: the reason why a person must decide."""
    text: str = ""
    """Of `chunk`: the next part of the tool's output."""
    approval: str | None = None
    """Of `approval`: the id of the approval that the call waits for."""
    status: Literal["ok", "error", "pending", "cancelled"] | None = None
    """Of `ended`: the status of the call."""
    code: str | None = None
    """The error code of a call that ended with an error."""
    duration_ms: float | None = None
    missed: int = 0
    """Number of events before this one that were dropped, because the subscriber was too slow."""

    @property
    def size(self) -> int:
        """The characters of its texts."""
        return len(self.text) + len(self.message)

    def as_dict(self) -> dict[str, Any]:
        """Return the JSON form, without fields that have their default."""
        found = ((field, getattr(self, field.name)) for field in fields(self))
        return camel({field.name: value for field, value in found if value != field.default})


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


@dataclass(eq=False, slots=True)
class Call:
    """One call as an interface makes it. `arguments` is a JSON object, or its JSON text not parsed yet."""

    tool: str
    arguments: Mapping[str, Any] | bytes | str
    caller: str = "local"
    """Name of the caller: `local`, `cli`, `mcp:<client name>`, …"""
    variables: dict[str, Any] | None = None
    run_id: str | None = None
    session_id: str | None = None
    approved_by: str | None = None
    """The person who approved this one call, if any."""
    call_id: str | None = None
    timeout_ms: int | None = None
    """Limit of one attempt as the caller asks for it; the smallest of all limits applies."""
    on_event: Callable[[CallEvent], None] | None = None
    """Called on the event loop with each event of the call: its progress, chunks of its output, its end."""
    identity: Caller | None = None
    """The caller's token and its rights; None for this machine's own user, who may do everything."""
    wait: Literal["raise", "block", "pending"] = "raise"
    """If a person must decide first: fail, wait for the decision, or return a `pending` result."""
    idempotency_key: str | None = None
    """Calls with the same key run once; later ones get the recorded result of the first."""
    approval_channel: str = "program"
    """The way in which `approved_by` decided: `terminal`, `flag` (`--approve`) or `program`."""
    approved_digest: str | None = None
    """The digest of the tool that `approved_by` was shown; None: whatever it is when the call is made."""
    client: CallClient | None = None
    """The MCP client that called, for tools that ask it; None if there is none to ask."""
    dry_run: bool = False
    """Nothing is run: the value of the result is the plan of the call."""
    trace: str | None = None
    """The span that the call is below, as W3C's `traceparent`, where another process made it."""

    def inner(self, tool: str, arguments: Mapping[str, Any] | bytes | str) -> Call:
        """Return a call that this one makes: for the same caller, run and MCP client.

        A person who approved this call has not approved that one. If it must wait for a decision, it fails
        where this call does not wait: only one call can be left pending.
        """
        return Call(
            tool,
            arguments,
            self.caller,
            self.variables,
            self.run_id,
            self.session_id,
            identity=self.identity,
            wait="block" if self.wait == "block" else "raise",
            client=self.client,
        )


# Call, Outcome and Result are made once per call, so they are not frozen: a frozen dataclass sets each field
# through object.__setattr__, which triples the cost of making one.


@dataclass(slots=True)
class Outcome:
    """The outcome of one attempt that succeeded."""

    value: Any = None
    warnings: tuple[str, ...] = ()
    details: dict[str, Any] | None = None
    """Facts for `Result.details`: HTTP status, exit code, cuts, the enforcement report."""
    blocks: tuple[dict[str, Any], ...] = ()
    """Content beside the value: MCP's content blocks."""

    def masked(self, mask: Callable[[Any], Any]) -> Outcome:
        """Return the outcome with each part masked."""
        warnings, blocks = (tuple(mask(list(part))) for part in (self.warnings, self.blocks))
        return Outcome(mask(self.value), warnings, mask(self.details), blocks)


@dataclass(slots=True)
class Result:
    """The result of a call, the same at every interface."""

    status: Literal["ok", "error", "pending"]
    value: Any = None
    error: ToolcribError | None = None
    warnings: tuple[str, ...] = ()
    details: dict[str, Any] | None = None
    """Facts of the last attempt: HTTP status, exit code, cuts, the enforcement report."""
    duration_ms: float = 0.0
    attempts: int = 1
    snoozes: int = 0
    call_id: str | None = None
    blocks: tuple[dict[str, Any], ...] = ()
    """MCP's content blocks, if the result is more than a value."""
    text_limit: int | None = None
    """Bytes of the text that a model sees, if the tool has a limit of its own."""

    @property
    def ok(self) -> bool:
        """True if the tool ran and returned a value."""
        return self.status == "ok"

    def unwrap(self) -> Any:
        """Return the value, or raise the error; `ApprovalRequired` if the call waits for a person."""
        if self.error is not None:
            raise self.error
        if self.status == "pending":
            raise ApprovalRequired(details={**(self.details or {}), "callId": self.call_id})
        return self.value

    @property
    def meta(self) -> dict[str, Any]:
        """Facts about the call as JSON, without empty ones."""
        out: dict[str, Any] = {"durationMs": round(self.duration_ms, 3), "attempts": self.attempts}
        if self.snoozes:
            out["snoozes"] = self.snoozes
        if self.call_id:
            out["callId"] = self.call_id
        if self.details:
            out["details"] = self.details
        return out

    def as_dict(self) -> dict[str, Any]:
        """Return the JSON form: `status`, `value` or `error`, `warnings`, `meta`."""
        out: dict[str, Any] = {"status": self.status, **self._outcome()}
        if self.blocks:
            out["blocks"] = list(self.blocks)
        out["meta"] = self.meta
        return out

    def answer(self) -> dict[str, Any]:
        """Return the JSON that answers a call: `ok`, `value` or `error`, and what else the caller needs."""
        out: dict[str, Any] = {"ok": self.ok, **self._outcome()}
        details = self.details or {}
        if "watched" in details:
            out["watched"] = details["watched"]
        elif self.value is None and self.error is None and details:
            out["meta"] = details
        elif "tool" in details:
            out["meta"] = {"tool": details["tool"]}
        return out

    def _outcome(self) -> dict[str, Any]:
        out = {"value": self.value} if self.error is None else {"error": self.error.as_dict()}
        return {**out, "warnings": list(self.warnings)} if self.warnings else out

    def as_record(self) -> dict[str, Any]:
        """Return the JSON form to store: with the limit of its text."""
        return {**self.as_dict(), "textLimit": self.text_limit}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Result:
        """Return the result that `as_dict` or `as_record` has written."""
        meta, error = data.get("meta", {}), data.get("error")
        return cls(
            data["status"],
            data.get("value"),
            None if error is None else ToolcribError.from_dict(error),
            tuple(data.get("warnings", ())),
            meta.get("details"),
            meta.get("durationMs", 0.0),
            meta.get("attempts", 1),
            meta.get("snoozes", 0),
            meta.get("callId"),
            tuple(data.get("blocks", ())),
            data.get("textLimit"),
        )
