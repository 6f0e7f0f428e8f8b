"""Approval by the client's user: `elicitation/create` in sessions, `input_required` in 2026-07-28.

It is used only if the project allows this channel, because a client may also answer by itself.
"""

from __future__ import annotations

from typing import Any, Literal, Protocol

from toolcrib.spec import Result
from toolcrib.spec.record import record

Mode = Literal["form", "url"]
_KEY = "toolcrib/approval"
"""The name of the one question in a result that requires input."""
_FORM = {
    "type": "object",
    "properties": {
        "approve": {"type": "boolean", "title": "Run it once", "description": "Yes runs this call, once."},
        "reason": {"type": "string", "title": "Reason", "description": "The reason that the caller gets."},
        "dont_ask_again": {
            "type": "boolean",
            "title": "Don't ask again",
            "description": "A denial counts as long as the call would have waited, not 10 minutes.",
        },
    },
    "required": ["approve"],
}


@record
class UserAnswer:
    """The answer of the client's user."""

    approved: bool
    reason: str = ""
    dont_ask_again: bool = False


class Approver(Protocol):
    """Lets a client's user decide on approvals."""

    def question(self, approval: str) -> str | None:
        """Return the question about an approval; None if this user may not decide on it."""

    def decide(self, approval: str, client: str, answer: UserAnswer) -> None:
        """Take the answer of this client's user. An answer that does not count changes nothing."""


@record
class ApprovalQuestion:
    """A question to the client's user about an approval."""

    approval: str
    text: str
    url: str | None = None
    """The page that asks; None for a form."""

    def request(self) -> dict[str, Any]:
        """Return method and parameters of the question."""
        params: dict[str, Any] = {"mode": "form", "message": self.text, "requestedSchema": _FORM}
        if self.url is not None:
            # The page shows the whole question, so the client need not.
            why = self.text.partition("\n")[0]
            params = {"mode": "url", "message": why, "url": self.url, "elicitationId": self.approval}
        return {"method": "elicitation/create", "params": params}

    def input_requests(self) -> dict[str, Any]:
        """Return the `inputRequests` of 2026-07-28 that ask the question."""
        return {_KEY: self.request()}


def waiting_for(result: Result) -> str | None:
    """Return the id of the approval that a call waits for; None if it waits for none."""
    details = (result.error.details if result.error is not None else result.details) or {}
    approval = details.get("approval")
    return approval if details.get("status") == "pending" and isinstance(approval, str) else None


def question_about(approver: Approver | None, result: Result) -> ApprovalQuestion | None:
    """Return the question about the approval that a call waits for; None if there is none to ask."""
    approval = waiting_for(result)
    if approver is None or approval is None:
        return None
    text = approver.question(approval)
    return None if text is None else ApprovalQuestion(approval, text)


def mode_of(capabilities: Any) -> Mode | None:
    """Return the mode in which a client can ask its user, best a form; None if it cannot."""
    offered = capabilities.get("elicitation") if isinstance(capabilities, dict) else None
    if not isinstance(offered, dict):
        return None
    # MCP 2025-11-25: an empty object means forms, the only mode of earlier versions.
    return "form" if not offered or "form" in offered else "url" if "url" in offered else None


def opens_page(answers: Any) -> bool:
    """Return True if the user goes to the page that a call which is made again has asked to open."""
    answer = answers.get(_KEY) if isinstance(answers, dict) else None
    return accepts(answer)


def accepts(value: Any) -> bool:
    """Return True if an `ElicitResult` is not a refusal."""
    return isinstance(value, dict) and value.get("action") == "accept"


def take_answer(approver: Approver, approval: Any, answers: Any, caller: str) -> None:
    """Take the user's answer from a call that is made again after `input_required`."""
    if isinstance(approval, str) and isinstance(answers, dict):
        answer = read_answer(answers.get(_KEY))
        if answer is not None:
            approver.decide(approval, caller, answer)


def read_answer(value: Any) -> UserAnswer | None:
    """Return the answer in an `ElicitResult`; None if the user has not decided, or it is malformed."""
    if not isinstance(value, dict):
        return None
    content = value.get("content")
    content = content if isinstance(content, dict) else {}
    reason = content.get("reason")
    reason = reason if isinstance(reason, str) else ""
    if value.get("action") == "decline":
        return UserAnswer(False, reason)
    approved = content.get("approve")
    # `cancel` is not a denial: the user closed the question without a decision, so the approval stays open.
    if value.get("action") != "accept" or not isinstance(approved, bool):
        return None
    return UserAnswer(approved, reason, content.get("dont_ask_again") is True)
