"""Approval: a call that needs a person waits for one, is refused, or comes back as pending."""

from __future__ import annotations

from collections.abc import Awaitable, Mapping, Sequence
from typing import Any

from toolcrib.core.context import Context
from toolcrib.core.controls import Proceed, needs_approval
from toolcrib.errors import ApprovalRequired, RateLimited
from toolcrib.guard import Approval, Ask, AuditLog, Permit, canonical
from toolcrib.project.control.checks import AccessControl, ApprovedCode
from toolcrib.project.control.first_use import FIRST_USE, FirstUse
from toolcrib.project.control.store import DecisionStore
from toolcrib.spec import Result
from toolcrib.spec.record import record
from toolcrib.spec.tools.tool import HINT_ASKED, may_touch
from toolcrib.state import ask, user_name

OWN = "approval.required"
"""The name of the rule by which a tool itself needs approval."""
_OF_THE_CALL = ("once", "arguments")
"""Scopes of an approval of this very call, by a person who was shown its arguments."""


@record
class Question:
    """One reason why a person must approve a call."""

    rule: str
    """The rule that asks. A person may approve every call that this rule asks about."""
    reason: str


class ApprovalStep:
    """Lets a call through once a person has answered every question about it."""

    def __init__(
        self,
        access: AccessControl,
        first_use: FirstUse,
        store: DecisionStore,
        code: ApprovedCode,
        log: AuditLog,
    ) -> None:
        self._access, self._first_use = access, first_use
        self._store, self._code, self._log = store, code, log

    def __call__(self, proceed: Proceed) -> Proceed:
        """Put this step before the rest of the path."""

        def step(ctx: Context) -> Awaitable[Result]:
            # A plain function: most calls have no questions, and pay only for the look-ups and no coroutine.
            questions = self.questions(ctx)
            if not questions:
                return proceed(ctx)
            if ctx.approved_by is not None:
                self._code.require_approved(ctx)
                # The line is written before the tool runs: if the log fails, the approved call does not run.
                who = {"approver": ctx.approved_by, "caller": ctx.caller, "channel": ctx.approval_channel}
                self._log.record("TOOL_APPROVED", name=ctx.tool, **who)
                return proceed(ctx)
            return self._ask(ctx, questions, proceed)

        return step

    def questions(self, ctx: Context) -> list[Question]:
        """Return what to ask about a call whose arguments are checked, in this order.

        The first use of a tool comes before the call itself. Raises `PolicyDenied`.
        """
        decision, own = ctx.decision or self._access.judge(ctx), ctx.bound.approval_reason
        review, made = self._first_use.questions(ctx, self._code.digest)
        questions = [] if review is None else [Question(FIRST_USE, review)]
        if decision is not None and decision.effect == "ask" and decision.rule is not None:
            questions.append(Question(decision.rule.name, decision.why))
        elif decision is not None and decision.effect == "ask" and own is None:
            questions.append(Question("policy.default", decision.why))
        elif own is not None or made is not None:
            questions.append(Question(OWN, own or made or ""))
        return questions

    def allows(self, ctx: Context) -> bool:
        """Return True if there are questions about a call, and earlier decisions approve them all."""
        questions = self.questions(ctx)
        for question in questions:
            found = self._store.approvals.about(self._asked(ctx, question))
            if not found or any(grant.answer == "denied" for grant in found):
                return False
            # As in `_ask`: this person has seen the arguments, so one answer is enough for all questions.
            if found[0].scope in _OF_THE_CALL:
                return True
        return bool(questions)

    async def _ask(self, ctx: Context, questions: Sequence[Question], proceed: Proceed) -> Result:
        """Ask until everything is answered; whoever has approved this very call is asked no more."""
        for question in questions:
            if ctx.permit is None or ctx.permit.scope not in _OF_THE_CALL:
                pending = await self._answered(ctx, question)
                if pending is not None:
                    return pending
        if ctx.permit is not None and ctx.permit.edited:
            self.questions(ctx)  # The policy must not deny the arguments that the person put in.
        return await proceed(ctx)

    async def _answered(self, ctx: Context, question: Question) -> Result | None:
        """Wait for the approval; return a `pending` result to a caller who does not want to wait.

        A durable call for which too many others wait already is asked about once there is `room`.
        """
        approvals = self._store.approvals
        asked = self._asked(ctx, question)
        while True:
            try:
                # Again after each wait: only this uses up an approval; another call may be faster.
                answer = await ask(self._store.state, lambda: approvals.seek(asked))
            except RateLimited:
                if not ctx.single:
                    raise
                return Result("pending", details={"room": asked.asker}, call_id=ctx.identify())
            if isinstance(answer, Permit):
                if answer.edited:
                    # A person put these in; the schema applies to them as to the caller's.
                    ctx.arguments = ctx.bound.arguments.check(answer.arguments)
                ctx.permit = answer
                return None
            if ctx.wait != "raise":
                ctx.waits(answer.id, answer.reason)
            if ctx.wait == "pending":
                return Result("pending", details=_details(answer), call_id=ctx.identify())
            if ctx.wait == "raise":
                raise _refusal(ctx, answer)
            decided = await approvals.wait(answer.id)
            if decided.status in ("expired", "void"):
                raise _refusal(ctx, decided)
            # Days may have passed: what was asked about must be what runs.
            self._code.require_same(ctx)

    def _asked(self, ctx: Context, question: Question) -> Ask:
        assert isinstance(ctx.arguments, Mapping)
        tool, identity = ctx.bound.tool, ctx.identity
        return Ask(
            tool=tool.name,
            bundle=tool.bundle,
            tool_digest=self._code.digest(ctx).digest,
            arguments=canonical(dict(ctx.arguments)),
            caller=ctx.caller,
            owner=user_name() if identity is None else identity.owner,
            session_id=ctx.session_id,
            reason=question.reason,
            rule=question.rule,
            touches=tuple(may_touch(tool)),
            call_id=ctx.identify(),
            token=None if identity is None else identity.name,
            durable=ctx.single,
        )


def _refusal(ctx: Context, approval: Approval) -> ApprovalRequired:
    error = needs_approval(ctx.bound, approval.reason, HINT_ASKED)
    error.details.update(_details(approval))
    if approval.status in ("expired", "void"):
        why = "nobody decided in time" if approval.status == "expired" else "the tool has changed meanwhile"
        error.message = f"{approval.tool} was not approved: {why}"
        error.hint = "Make the call again to ask again."
    return error


def _details(approval: Approval) -> dict[str, Any]:
    found = approval.as_dict()
    return {"approval": approval.id, **{name: found[name] for name in ("status", "reason", "expires_at")}}
