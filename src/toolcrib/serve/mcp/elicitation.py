"""A person asked through the client: `elicitation/create` in sessions, `input_required` in 2026-07-28.

Only where the project allows that channel: a client shows the question to its user, or answers by itself.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from toolcrib.serve.mcp.wire import RequestId, to_json
from toolcrib.spec import Result

__all__ = ["ASKED", "Answer", "Asker", "Questions", "answer_in", "is_offered", "request", "waits_for"]

ASKED = "toolcrib/approval"
"""The name of the one question in a result that needs input."""
_FORM = {
    "type": "object",
    "properties": {
        "approve": {"type": "boolean", "title": "Run it once", "description": "Yes runs this call, once."},
        "reason": {"type": "string", "title": "Reason", "description": "What the caller is told."},
    },
    "required": ["approve"],
}


@dataclass(frozen=True, slots=True)
class Answer:
    """What the client's user said."""

    yes: bool
    reason: str = ""


class Asker(Protocol):
    """What a project lets a client ask its user."""

    def question(self, approval: str) -> str | None:
        """What to ask about an approval that waits; None where this channel may not decide on it."""

    def decide(self, approval: str, client: str, answer: Answer) -> None:
        """The answer of the user of this client. One that does not count is passed over: the call says so."""


def waits_for(result: Result) -> str | None:
    """The approval that a refused call waits for."""
    error = result.error
    if error is None or error.code != "approval_required":
        return None
    approval = error.details.get("approval")
    return approval if isinstance(approval, str) else None


def is_offered(capabilities: Any) -> bool:
    """Whether a client can show its user a form."""
    offered = capabilities.get("elicitation") if isinstance(capabilities, dict) else None
    return isinstance(offered, dict) and (not offered or "form" in offered)


def request(question: str) -> dict[str, Any]:
    """Method and parameters of the question."""
    return {
        "method": "elicitation/create",
        "params": {"mode": "form", "message": question, "requestedSchema": _FORM},
    }


def answer_in(value: Any) -> Answer | None:
    """The answer in an `ElicitResult`; None where the user has not made a choice, or what came is none."""
    if not isinstance(value, dict):
        return None
    content = value.get("content")
    reason = content.get("reason", "") if isinstance(content, dict) else ""
    reason = reason if isinstance(reason, str) else ""
    if value.get("action") == "decline":
        return Answer(False, reason)
    if value.get("action") != "accept" or not isinstance(content, dict):
        return None
    approve = content.get("approve")
    return Answer(approve, reason) if isinstance(approve, bool) else None


class Questions:
    """Questions sent to a session's client that have not been answered."""

    def __init__(self, send: Callable[[bytes], None]) -> None:
        self._send = send
        self._open: dict[RequestId, asyncio.Future[Any]] = {}
        self._sent = 0

    async def ask(self, question: str) -> Answer | None:
        """Ask, and wait for the answer. Cancelled with the call it is for; the client is told then."""
        self._sent += 1
        name = f"toolcrib-{self._sent}"
        told = self._open[name] = asyncio.get_running_loop().create_future()
        try:
            self._send(to_json({"jsonrpc": "2.0", "id": name, **request(question)}))
            return answer_in(await told)
        except asyncio.CancelledError:
            params = {"requestId": name, "reason": "the call was cancelled"}
            self._send(to_json({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": params}))
            raise
        finally:
            del self._open[name]

    def receive(self, message: dict[str, Any]) -> None:
        """A client's answer; one to a question that is not open is passed over."""
        name = message.get("id")
        waiting = self._open.get(name) if isinstance(name, str) else None
        if waiting is not None and not waiting.done():
            waiting.set_result(message.get("result"))
