"""Requests for approval, and the decisions of people about them. Pure data."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import field, replace
from typing import Any, Literal, get_args

import orjson

from toolcrib.errors import ApprovalDenied, InvalidInput
from toolcrib.spec.moment import written
from toolcrib.spec.record import json_form, record

GrantScope = Literal["once", "session", "arguments", "rule"]
GRANT_SCOPES: tuple[GrantScope, ...] = get_args(GrantScope)
"""The scope of an approval, always for this caller and this version of the tool. `once`: one call with these
arguments. `session`: calls in this session for which the same rule asks. `arguments`: every call with these
arguments. `rule`: every call for which the same rule asks."""

ApprovalStatus = Literal["pending", "approved", "denied", "used", "expired", "void"]
STATUSES: tuple[ApprovalStatus, ...] = get_args(ApprovalStatus)
"""`used`: its one call was made. `void`: its tool has changed, its call was cancelled, or it was revoked."""

_MAX_ARGUMENTS = 1_048_576
_MAX_NAME = 500
_MAX_REASON = 4_000
_MAX_TOUCHES = 200


@record
class Ask:
    """A call that needs approval, exactly as it is about to run."""

    tool: str
    bundle: str
    tool_digest: str
    arguments: bytes
    """Canonical JSON of the checked arguments: the bytes that will run."""
    caller: str
    owner: str
    session_id: str | None
    reason: str
    """The reason for asking, as the manifest or the rule states it."""
    rule: str
    """The rule that asks; empty if scope `rule` is not available."""
    touches: tuple[str, ...]
    """The things that the call may access, in words."""
    call_id: str | None
    token: str | None = None
    """Name of the caller's token."""
    durable: bool = False
    """True if later attempts of this call, by its id, run by the same approval."""

    @property
    def arguments_digest(self) -> str:
        """SHA-256 of the arguments."""
        return digest_of(self.arguments)

    @property
    def asker(self) -> str:
        """The caller as one text, as `asker_of` returns it."""
        return asker_of(self.caller, self.owner, self.token)

    @property
    def question(self) -> str:
        """Digest of the request: the same call by the same caller has the same one, in any session."""
        parts = (self.tool, self.bundle, self.tool_digest, self.arguments_digest, self.asker, self.rule)
        return digest_of(json.dumps(parts).encode())

    def checked(self) -> Ask:
        """Return the same with long texts cut; `InvalidInput` for what must not be cut."""
        if len(self.arguments) > _MAX_ARGUMENTS:
            raise InvalidInput(
                f"the arguments have {len(self.arguments):,} bytes, more than a person can be asked about",
                hint=f"At most {_MAX_ARGUMENTS:,} bytes can wait for approval; pass a file instead.",
            )
        names = (self.tool, self.bundle, self.caller, self.owner, self.rule)
        for name in (*names, self.session_id or "", self.token or "", self.call_id or ""):
            if len(name) > _MAX_NAME or not _is_storable(name):
                raise InvalidInput(
                    f"a name of {len(name):,} characters cannot be stored: {name[:40]!r}",
                    hint=f"Names of callers, sessions and rules have at most {_MAX_NAME} characters.",
                )
        touches = tuple(cut(line, _MAX_NAME) for line in self.touches[:_MAX_TOUCHES])
        return replace(self, reason=cut(self.reason, _MAX_REASON), touches=touches)


@record
class Approval:
    """A request for approval and its status. Times are seconds since the epoch."""

    id: str
    """A UUID version 7."""
    tool: str
    bundle: str
    tool_digest: str
    arguments: bytes
    """The arguments of the request."""
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
    status: ApprovalStatus = "pending"
    scope: GrantScope | None = None
    decided_by: str | None = None
    decided_at: float | None = None
    edited: bytes | None = None
    """Arguments that run instead, if the person who approved has changed them."""
    note: str = ""
    """The comment of the person who decided."""

    @property
    def arguments_digest(self) -> str:
        """SHA-256 of the arguments of the request."""
        return digest_of(self.arguments)

    @property
    def seal(self) -> str:
        """Digest of everything that a person decides about; pass on the one of what was shown."""
        parts = (self.id, self.tool, self.bundle, self.tool_digest, self.arguments_digest, self.caller)
        more = (self.owner, self.token, self.session_id, self.rule, self.reason, *self.touches)
        return digest_of(json.dumps([*parts, *more]).encode())

    def as_dict(self) -> dict[str, Any]:
        """Return the JSON form; times as RFC 3339. Arguments are parsed; secrets in them are not masked."""
        return {**json_form(self), "argumentsDigest": self.arguments_digest, "seal": self.seal}


@record
class Permit:
    """Permission to run one call, with these arguments and no others."""

    approver: str
    scope: GrantScope
    approval_id: str
    arguments: bytes
    edited: bool = False
    mac: str | None = field(default=None, compare=False, repr=False)
    """The MAC of the decision, if this call has used it up: with it, `Approvals.give_back` undoes that."""


@record
class Grant:
    """A decision as it is stored in the user's own folder."""

    id: str
    """The id of the approval that it decides."""
    answer: Literal["approved", "denied"]
    state: Literal["live", "used", "expired", "void", "revoked"]
    scope: GrantScope
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

    def status(self, now: float) -> ApprovalStatus:
        """Return the status of the approval that it decides."""
        if self.answer == "denied":
            return "denied"
        if self.state == "live":
            return "approved" if self.ends_at is None or now < self.ends_at else "expired"
        return "void" if self.state == "revoked" else self.state

    def denial(self) -> ApprovalDenied:
        """Return the error that says who denied the call, and why."""
        until = written(self.ends_at)
        why = f": {self.note}" if self.note else ""
        return ApprovalDenied(
            f"{self.decided_by} did not approve this call of {self.tool}{why}",
            hint=f"The same call gets this answer until {until}, unless it is revoked.",
            details={
                "approval": self.id,
                "approver": self.decided_by,
                "reason": self.note,
                "decidedAt": written(self.decided_at),
                "until": until,
            },
        )

    def as_dict(self) -> dict[str, Any]:
        """Return the JSON form; times as RFC 3339."""
        return json_form(self)


def canonical(arguments: Mapping[str, Any]) -> bytes:
    """Return checked arguments as the one JSON text that is digested: sorted keys, no blanks."""
    return orjson.dumps(arguments, option=orjson.OPT_SORT_KEYS)


def asker_of(caller: str, owner: str, token: str | None) -> str:
    """Return one text for a caller, its owner and its token that no other caller has."""
    return json.dumps([caller, owner, token])


def digest_of(data: bytes) -> str:
    """Return the SHA-256 in hexadecimal."""
    return hashlib.sha256(data).hexdigest()


def cut(text: str, length: int) -> str:
    """Return a text that is shown, not compared, as Unicode without NUL of at most this many characters."""
    short = text if len(text) <= length else f"{text[:length]}…"
    return short.replace("\0", "\\0").encode(errors="backslashreplace").decode()


def _is_storable(text: str) -> bool:
    """Return False for a text with half of a surrogate pair or NUL, which not every database takes."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return "\0" not in text


_LONGEST = 200
_WORDS = {
    "claims that it is safe": "safe|harmless|risk-free|no risk|read-only|trusted|routine",
    "claims that somebody has agreed": "approved|authorised|authorized|reviewed|allowed|confirmed|already",
    "tells you what to do": "please|must|just|simply|approve|accept|press|click|ignore|always|no need",
    "presses for time": "urgent|urgently|immediately|asap|quickly|hurry|now",
}
_LABELS = "tool|digest|reason|rule|asked by|made by|may touch|expires|arguments|would run"
_found = {what: re.compile(rf"\b({words})\b", re.IGNORECASE) for what, words in _WORDS.items()} | {
    "names an address": re.compile(r"(https?://|www\.|@)\S+", re.IGNORECASE),
    "looks like a line of this screen": re.compile(rf"(?m)^\s*({_LABELS})\s*:", re.IGNORECASE),
}


def doubts_about(reason: str) -> list[str]:
    """Return what a person should notice about a reason that an agent has written; empty if nothing."""
    doubts = [what for what, pattern in _found.items() if pattern.search(reason)]
    if len(reason) > _LONGEST:
        doubts.append("is long")
    if not all(char.isprintable() for char in reason):
        doubts.append("has characters that do not show")
    return doubts
