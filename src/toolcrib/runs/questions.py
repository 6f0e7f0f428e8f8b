"""The client of a durable call, and its questions to it. All of it is in the context of the stored call.

An attempt that asks ends. The call waits without a worker until all answers have come, and then its next
attempt has them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from toolcrib.spec import CallClient, RoundClient

_Facts = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Waits:
    """The end of an attempt that cannot continue: one of these must come first."""

    approval: str | None = None
    """A decision about this approval."""
    room: str | None = None
    """Decisions on other calls of this asker."""
    requests: Mapping[str, Any] = field(default_factory=dict)
    """The answers of the client to these requests, by name."""
    state: str | None = None
    """The tool's state, which it gets again with the answers."""


def facts_of(client: CallClient | None) -> _Facts | None:
    """Return the client of a call as JSON, to be stored with the call."""
    if client is None:
        return None
    return {
        "protocol": client.protocol,
        "capabilities": dict(client.capabilities),
        "answers": dict(client.responses),
        "state": client.state,
        "open": {},
        "asked": {},
    }


def client_of(context: Mapping[str, Any]) -> RoundClient | None:
    """Return the client of a stored call for its next attempt; None if there is none to ask."""
    facts = context.get("client")
    if facts is None:
        return None
    return RoundClient(facts["protocol"], facts["capabilities"], facts["answers"], facts["state"])


def add_questions(context: Mapping[str, Any], requests: Mapping[str, Any], state: str | None) -> _Facts:
    """Return the context of a call that asks. A name that was used before gets a number: no two are equal."""
    facts = dict(context["client"])
    asked, waiting = dict(facts["asked"]), {}
    for key, request in requests.items():
        asked[key] = asked.get(key, 0) + 1
        waiting[key if asked[key] == 1 else f"{key}#{asked[key]}"] = {"key": key, "request": request}
    return {**context, "client": {**facts, "state": state, "open": waiting, "asked": asked}}


def open_questions(context: Mapping[str, Any]) -> dict[str, Any]:
    """Return the requests that have no answer, by the names under which they are answered."""
    facts = context.get("client") or {"open": {}}
    return {name: one["request"] for name, one in facts["open"].items()}


def add_answers(context: Mapping[str, Any], answers: Mapping[str, Any]) -> _Facts:
    """Return the context with the answers to open questions. All others are ignored."""
    facts = dict(context["client"])
    waiting, given = dict(facts["open"]), dict(facts["answers"])
    for name in [name for name in answers if name in waiting and isinstance(answers[name], dict)]:
        given[waiting.pop(name)["key"]] = answers[name]
    return {**context, "client": {**facts, "open": waiting, "answers": given}}
