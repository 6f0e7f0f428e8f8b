"""The reasons why a person must approve a call."""

from __future__ import annotations

from toolcrib.core.context import Context
from toolcrib.project.control.access import AccessControl
from toolcrib.project.control.code import ApprovedCode
from toolcrib.project.control.first_use import FIRST_USE, FirstUse
from toolcrib.spec.record import record

OWN = "approval.required"
"""The name of the rule by which a tool itself needs approval."""


@record
class Question:
    """One reason why a person must approve a call."""

    rule: str
    """The rule that asks. A person may approve every call that this rule asks about."""
    reason: str


class ApprovalQuestions:
    """Finds out what a person must be asked before a call."""

    def __init__(self, access: AccessControl, first_use: FirstUse, code: ApprovedCode) -> None:
        self._access = access
        self._code = code
        self._first_use = first_use

    def of(self, ctx: Context) -> list[Question]:
        """Return what to ask about a call whose arguments are checked, in this order.

        The first use of a tool comes before the call itself. Raises `PolicyDenied`.
        """
        decision, own = self._access.judge(ctx), ctx.bound.approval_reason
        review, made = self._first_use.questions(
            ctx.bound.tool, ctx.caller, ctx.identity, lambda: self._code.digest(ctx)
        )
        questions = [] if review is None else [Question(FIRST_USE, review)]
        if decision is not None and decision.effect == "ask" and decision.rule is not None:
            questions.append(Question(decision.rule.name, decision.why))
        elif decision is not None and decision.effect == "ask" and own is None:
            questions.append(Question("policy.default", decision.why))
        elif own is not None or made is not None:
            questions.append(Question(OWN, own or made or ""))
        return questions
