"""What is asked of a person, what waits for one, and what one has allowed. Pure data."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal, get_args

from toolcrib.errors import ApprovalDenied, InvalidInput
from toolcrib.spec.moment import written

__all__ = [
    "SCOPES",
    "STATUSES",
    "Approval",
    "Ask",
    "Grant",
    "Permit",
    "Scope",
    "Status",
    "canonical",
    "cut",
    "digest_of",
]

Scope = Literal["once", "session", "arguments", "rule"]
SCOPES: tuple[Scope, ...] = get_args(Scope)
"""How far a yes reaches, always for this caller and this very tool, down to its digest. `once`: one call with
these arguments. `session`: while this session lasts and the same rule asks. `arguments`: always with these
arguments. `rule`: always when the same rule asks."""

Status = Literal["pending", "approved", "denied", "used", "expired", "void"]
STATUSES: tuple[Status, ...] = get_args(Status)
"""`used`: its one call was made. `void`: the tool has changed since, or the yes was taken back."""

_MAX_ARGUMENTS = 1_048_576
_MAX_NAME = 500
_MAX_REASON = 4_000
_MAX_TOUCHES = 200


@dataclass(frozen=True, slots=True)
class Ask:
    """One call that needs a person, as it stands when it is about to run."""

    tool: str
    bundle: str
    tool_digest: str
    arguments: bytes
    """Canonical JSON of the normalised arguments: the bytes that will run."""
    caller: str
    owner: str
    session_id: str | None
    reason: str
    """Why a person must agree, as the manifest says it."""
    rule: str
    """Which rule asks; empty where scope `rule` is not to be had."""
    touches: tuple[str, ...]
    """What the call may touch, in words."""
    call_id: str | None
    token: str | None = None
    """Name of the token that the caller showed."""

    @property
    def arguments_digest(self) -> str:
        """SHA-256 of the arguments."""
        return digest_of(self.arguments)

    @property
    def asker(self) -> str:
        """Who asks, as one text that no other asker has."""
        return _joined(self.caller, self.owner, self.token)

    @property
    def question(self) -> str:
        """Digest of what is asked: the same call by the same caller is the same question, in any session."""
        parts = (self.tool, self.bundle, self.tool_digest, self.arguments_digest, self.asker, self.rule)
        return digest_of(_joined(*parts).encode())

    def checked(self) -> Ask:
        """The same, its texts cut to what is kept; `InvalidInput` for what may not be cut."""
        if len(self.arguments) > _MAX_ARGUMENTS:
            raise InvalidInput(
                f"the arguments are {len(self.arguments):,} bytes, more than a person can be asked about",
                hint=f"At most {_MAX_ARGUMENTS:,} bytes can wait for approval; pass a file instead.",
            )
        names = (self.tool, self.bundle, self.caller, self.owner, self.rule)
        for name in (*names, self.session_id or "", self.token or "", self.call_id or ""):
            if len(name) > _MAX_NAME or not _is_unicode(name):
                raise InvalidInput(
                    f"a name of {len(name):,} characters cannot be kept: {name[:40]!r}",
                    hint=f"Callers, sessions and rules have names of at most {_MAX_NAME} characters.",
                )
        touches = tuple(cut(line, _MAX_NAME) for line in self.touches[:_MAX_TOUCHES])
        return replace(self, reason=cut(self.reason, _MAX_REASON), touches=touches)


@dataclass(frozen=True, slots=True)
class Approval:
    """What was asked, and how it stands. Times are seconds since the epoch."""

    id: str
    """A UUID version 7."""
    tool: str
    bundle: str
    tool_digest: str
    arguments: bytes
    """As they were asked for."""
    caller: str
    owner: str
    token: str | None
    session_id: str | None
    rule: str
    reason: str
    touches: tuple[str, ...]
    call_id: str | None
    asked_at: float
    expires_at: float
    status: Status = "pending"
    scope: Scope | None = None
    decided_by: str | None = None
    decided_at: float | None = None
    edited: bytes | None = None
    """What runs instead of `arguments`, where the person who agreed has changed them."""
    note: str = ""
    """What the person said to it."""

    @property
    def arguments_digest(self) -> str:
        """SHA-256 of the arguments as asked for."""
        return digest_of(self.arguments)

    @property
    def seal(self) -> str:
        """Digest of all that a person agrees to: give back the one of what was shown."""
        parts = (self.id, self.tool, self.bundle, self.tool_digest, self.arguments_digest, self.caller)
        more = (self.owner, self.token, self.session_id, self.rule, self.reason, *self.touches)
        return digest_of(_joined(*parts, *more).encode())

    def as_dict(self) -> dict[str, Any]:
        """JSON form; times as RFC 3339. Arguments are parsed; secrets in them are not masked."""
        return {
            "id": self.id,
            "status": self.status,
            "tool": self.tool,
            "bundle": self.bundle,
            "tool_digest": self.tool_digest,
            "arguments": _parsed(self.arguments),
            "arguments_digest": self.arguments_digest,
            "edited": None if self.edited is None else _parsed(self.edited),
            "caller": self.caller,
            "owner": self.owner,
            "token": self.token,
            "session_id": self.session_id,
            "rule": self.rule,
            "reason": self.reason,
            "touches": list(self.touches),
            "call_id": self.call_id,
            "asked_at": written(self.asked_at),
            "expires_at": written(self.expires_at),
            "scope": self.scope,
            "decided_by": self.decided_by,
            "decided_at": written(self.decided_at),
            "note": self.note,
            "seal": self.seal,
        }


@dataclass(frozen=True, slots=True)
class Permit:
    """A call may run, with these arguments and no others."""

    approver: str
    scope: Scope
    approval_id: str
    arguments: bytes
    edited: bool = False


@dataclass(frozen=True, slots=True)
class Grant:
    """A decision as it is kept in the user's own folder."""

    id: str
    """The id of the approval that it decides."""
    answer: Literal["approved", "denied"]
    state: Literal["live", "used", "expired", "void", "revoked"]
    scope: Scope
    tool: str
    bundle: str
    tool_digest: str
    arguments_digest: str
    caller: str
    session_id: str | None
    rule: str
    edited: bytes | None
    decided_by: str
    decided_at: float
    ends_at: float | None
    note: str

    def status(self, now: float) -> Status:
        """How the approval that it decides stands."""
        if self.answer == "denied":
            return "denied"
        if self.state == "live":
            return "approved" if self.ends_at is None or now < self.ends_at else "expired"
        return "void" if self.state == "revoked" else self.state

    def denial(self) -> ApprovalDenied:
        """The error that tells who said no, and why."""
        until = written(self.ends_at)
        return ApprovalDenied(
            f"{self.decided_by} did not approve this call of {self.tool}"
            + (f": {self.note}" if self.note else ""),
            hint=f"The same call gets this answer until {until}, unless it is taken back.",
            details={
                "approval": self.id,
                "approver": self.decided_by,
                "reason": self.note,
                "decided_at": written(self.decided_at),
                "until": until,
            },
        )

    def as_dict(self) -> dict[str, Any]:
        """JSON form; times as RFC 3339."""
        return {
            "id": self.id,
            "answer": self.answer,
            "state": self.state,
            "scope": self.scope,
            "tool": self.tool,
            "bundle": self.bundle,
            "tool_digest": self.tool_digest,
            "arguments_digest": self.arguments_digest,
            "caller": self.caller,
            "session_id": self.session_id,
            "rule": self.rule,
            "edited": None if self.edited is None else _parsed(self.edited),
            "decided_by": self.decided_by,
            "decided_at": written(self.decided_at),
            "ends_at": written(self.ends_at),
            "note": self.note,
        }


def canonical(arguments: Mapping[str, Any]) -> bytes:
    """Checked arguments as the one JSON text that their digest is taken of: sorted keys, no blanks."""
    import orjson

    return orjson.dumps(arguments, option=orjson.OPT_SORT_KEYS)


def digest_of(data: bytes) -> str:
    """SHA-256 in hexadecimal."""
    return hashlib.sha256(data).hexdigest()


def cut(text: str, length: int) -> str:
    """A text that is told, not compared: Unicode, and no longer than so many characters."""
    short = text if len(text) <= length else f"{text[:length]}…"
    return short.encode(errors="backslashreplace").decode()


def _joined(*parts: str | None) -> str:
    """Texts as one, such that no other texts give the same."""
    return json.dumps(parts)


def _is_unicode(text: str) -> bool:
    """Whether the text holds no half of a surrogate pair, which no database takes."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _parsed(arguments: bytes) -> Any:
    try:
        return json.loads(arguments)
    except ValueError:
        return arguments.decode(errors="replace")
