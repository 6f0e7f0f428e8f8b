"""The steps that a project adds to the path of every call, put together in their order.

Those that may wait are here: idempotency, approval and rates. Those that refuse a call are in `checks`, and
those that mask and keep what is in a call are in `records`.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import orjson

from toolcrib.core.context import Context
from toolcrib.core.controls import Controls, Proceed, needs_approval
from toolcrib.core.decision import RetryAfter, SnoozeFor
from toolcrib.core.results import Mask, mask_result
from toolcrib.errors import ApprovalRequired, Cancelled, NotTrusted, RateLimited
from toolcrib.guard import Approval, Ask, AuditLog, Permit, canonical
from toolcrib.guard.folders import HiddenFolders
from toolcrib.manifest.touches import may_touch
from toolcrib.project.control.checks import AccessControl, ApprovedCode
from toolcrib.project.control.records import CallAudit, KeptOutputs, SecretsStep, was_refused
from toolcrib.project.control.store import DecisionStore
from toolcrib.project.integrity.fingerprints import Fingerprints
from toolcrib.project.integrity.lock import Pins
from toolcrib.project.setup import Setup
from toolcrib.project.trust.trust import TRUST, ProjectTrust
from toolcrib.spec import Call, Limits, Result, Tool
from toolcrib.spec.record import record
from toolcrib.spec.tools.tool import HINT_ASKED
from toolcrib.state import ask, cache_home, take, user_name

OWN = "approval.required"
"""The name of the rule by which a tool itself needs approval."""
_OF_THE_CALL = ("once", "arguments")
"""Scopes of an approval of this very call, by a person who was shown its arguments."""


class ProjectSteps:
    """The steps of one project. `controls` is what its call path takes.

    `parts` returns the tools that a tool calls, `find` the tool of a name.
    """

    def __init__(
        self,
        setup: Setup,
        store: DecisionStore,
        parts: Callable[[Tool], Sequence[Tool]],
        find: Callable[[str], Tool],
    ) -> None:
        self.store = store
        config, log, root = setup.config, setup.audit, setup.place.root
        self.fingerprints = fingerprints = Fingerprints(root, parts)
        fingerprint = fingerprints.of
        # The lock of a project above a file pins nothing of the file.
        lock = root if setup.place.file is None else setup.place.home
        self.pins = pins = Pins(lock, fingerprint, config.started)
        code = ApprovedCode(fingerprint, setup.snapshots, pins)
        limits = Limits(calls_per_minute=config.calls_per_minute, concurrent_calls=config.concurrency)
        vault, home = setup.vault, os.environ.get("HOME")
        self.folders = HiddenFolders(
            {root: ".", vault.data: "…", cache_home(): "…", Path(home) if home else None: "~"}
        )
        self.access = AccessControl(config.policy, store.tokens, store.switches)
        self.secrets = SecretsStep(setup.secrets)
        mask = self.secrets.mask
        self.trust = trust = ProjectTrust(setup, fingerprints, find, pins, mask)
        self.plan: Callable[[Call], dict[str, Any]] = lambda _: {}
        """Returns the plan of a dry run."""
        self.count: Callable[[Context, Result], None] = lambda _ctx, _result: None
        """Counts a call that has ended."""
        self._audit = audit = CallAudit(log, self.secrets, trust.ledger)
        self.outputs = KeptOutputs(setup.vault)
        command = f"toolcrib approvals approve --last{setup.place.option}"
        last = command if "cli" in config.approval_channels else ""
        self.approval = ApprovalStep(self.access, trust, store, code, log, self.secrets, last)
        self.controls = Controls(
            visible=self.access.visible,
            authorise=(self.access.authorise, trust.require_project),
            require=(audit.ensure, code.require_pinned),
            # The first one is outermost. A repeated key gets its result without a question; a call that is
            # not approved gets no secrets and counts for no rate; `code` looks again after all that waits.
            approve=(
                IdempotencyStep(store, self.access, mask),
                self.approval,
                self.secrets,
                RateStep(store, limits),
                code,
            ),
            plan=lambda ctx: self.plan(ctx),  # noqa: PLW0108 - set below
            start=audit.start,
            mask=mask,
            hide=self.folders.hide,
            keep=self.outputs.keep,
            record=self._record,
        )

    def _record(self, ctx: Context, result: Result) -> None:
        self.count(ctx, result)
        self._audit.record(ctx, result)


class IdempotencyStep:
    """Keeps the masked result of the first call with a key. A call that did not run leaves the key free."""

    def __init__(self, store: DecisionStore, access: AccessControl, mask: Mask) -> None:
        self._store, self._access, self._mask = store, access, mask

    def __call__(self, proceed: Proceed) -> Proceed:
        """Put this step before the rest of the path."""

        def step(ctx: Context) -> Awaitable[Result]:
            key = ctx.idempotency_key
            return proceed(ctx) if key is None else self._once(ctx, key, proceed)

        return step

    async def _once(self, ctx: Context, key: str, proceed: Proceed) -> Result:
        self._access.judge(ctx)  # A call that is denied now does not get an earlier result either.
        earlier = await self._earlier(ctx, key)
        if earlier is not None:
            ctx.replayed = True
            return earlier
        try:
            result = await proceed(ctx)
        except Exception:
            await self._end(ctx, key, None)
            raise
        except asyncio.CancelledError:
            # A call that has begun may have acted already, so its key stays used. A durable one is handed on
            # with it.
            await self._end(ctx, key, ctx.failed(Cancelled()) if ctx.started and not ctx.single else None)
            raise
        await self._end(ctx, key, result)
        return result

    async def _earlier(self, ctx: Context, key: str) -> Result | None:
        """Return the result of the first call with this key; None if this call is the first."""
        assert isinstance(ctx.arguments, Mapping)
        tool = ctx.bound.tool
        recorded = await self._store.recorded.wait(
            key,
            tool=tool.name,
            caller=ctx.caller,
            arguments=canonical(dict(ctx.arguments)),
            repeatable=bool(tool.annotations.idempotent or tool.annotations.read_only),
            # A caller waits for the first call at most as long as a call of its own may take.
            timeout_s=ctx.limit_ms / 1000,
            # The next attempt of a durable call takes over the key of an attempt whose process died.
            call=ctx.call_id if ctx.single else None,
        )
        return None if recorded is None else Result.from_dict(orjson.loads(recorded))

    async def _end(self, ctx: Context, key: str, result: Result | None) -> None:
        """Keep the result of a call that ran; give the key back otherwise."""
        # It has not ended: the next attempt comes with the same key.
        again = isinstance(ctx.follows, RetryAfter | SnoozeFor)
        if result is None or again or result.status == "pending" or was_refused(ctx, result):
            end: Callable[[], object] = partial(self._store.recorded.abandon, key, ctx.caller)
        else:
            # Masked before it is stored: the path masks results only later, and the database keeps this one.
            mask_result(result, self._mask)
            whole = orjson.dumps(result.as_record())
            end = partial(self._store.recorded.finish, key, ctx.caller, whole)
        await ask(self._store.state, end)


class RateStep:
    """Refuses a call that comes too soon. `limits` are the project's own, for all its tools."""

    def __init__(self, store: DecisionStore, limits: Limits) -> None:
        self._store, self._limits = store, limits

    def __call__(self, proceed: Proceed) -> Proceed:
        """Put this step before the rest of the path."""
        every_tool = self._limits.are_rates

        def step(ctx: Context) -> Awaitable[Result]:
            is_limited = every_tool or ctx.bound.is_rated
            return self._limited(ctx, ctx.bound.limits, proceed) if is_limited else proceed(ctx)

        return step

    async def _limited(self, ctx: Context, own: Limits, proceed: Proceed) -> Result:
        acquire = partial(
            self._store.rates.acquire,
            ctx.tool,
            per_minute=_smaller(own.calls_per_minute, self._limits.calls_per_minute),
            min_interval_ms=own.min_interval_ms,
            concurrency=_smaller(own.concurrent_calls, self._limits.concurrent_calls),
        )
        lease = await take(self._store.state, acquire, lambda lease: lease.release())
        try:
            return await proceed(ctx)
        finally:
            await ask(self._store.state, lease.release)


def _smaller(*limits: int | None) -> int | None:
    return min((limit for limit in limits if limit is not None), default=None)


@record
class Question:
    """One reason why a person must approve a call."""

    rule: str
    """The rule that asks. A person may approve every call that this rule asks about."""
    reason: str


class ApprovalStep:
    """Lets a call through once a person has answered every question about it.

    `last` is the command that approves the newest call that waits; empty where the project takes no approval
    on the command line.
    """

    def __init__(
        self,
        access: AccessControl,
        trust: ProjectTrust,
        store: DecisionStore,
        code: ApprovedCode,
        log: AuditLog,
        secrets: SecretsStep,
        last: str,
    ) -> None:
        self._access, self._trust = access, trust
        self._store, self._code, self._log = store, code, log
        self._secrets, self._last = secrets, last

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

        Trust in the tool comes before the call itself. Raises `PolicyDenied`.
        """
        decision, own = ctx.decision or self._access.judge(ctx), ctx.bound.approval_reason
        trust, made = self._trust.questions(ctx, self._code.digest)
        questions = [] if trust is None else [Question(TRUST, trust)]
        if decision is not None and decision.effect == "ask" and decision.rule is not None:
            questions.append(Question(decision.rule.asks_as, decision.why))
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
        try:
            result = await proceed(ctx)
        except RateLimited:  # of `RateStep`; what a tool or a middleware raises is in the result
            await self._give_back(ctx)
            raise
        if isinstance(result.error, RateLimited) and not ctx.reported:  # No attempt has begun.
            await self._give_back(ctx)
        return result

    async def _give_back(self, ctx: Context) -> None:
        """Leave the approval of a call that did not run for the next call."""
        if ctx.permit is not None:
            await ask(self._store.state, partial(self._store.approvals.give_back, ctx.permit))

    async def _answered(self, ctx: Context, question: Question) -> Result | None:
        """Wait for the approval; return a `pending` result to a caller who does not want to wait.

        A durable call for which too many others wait already is asked about once there is `room`.
        """
        approvals = self._store.approvals
        asked = self._asked(ctx, question)
        while True:
            await self._require_able(ctx, question, asked)
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
            if ctx.wait == "pending" or ctx.may_be_stored:
                return Result("pending", details=self._details(ctx, answer), call_id=ctx.identify())
            if ctx.wait == "raise":
                raise self._refusal(ctx, answer)
            decided = await approvals.wait(answer.id)
            if decided.status in ("expired", "void"):
                raise self._refusal(ctx, decided)
            # Days may have passed: what was asked about must be what runs.
            self._code.require_same(ctx)

    async def _require_able(self, ctx: Context, question: Question, asked: Ask) -> None:
        """Refuse a call that could not run if it were approved, or that is for another machine.

        A stored call asks nobody for trust: another worker may have the tool as it is trusted.
        """
        may_be_elsewhere = ctx.single and question.rule == TRUST
        if not (may_be_elsewhere or ctx.bound.tool.permissions.secrets):
            return
        found = await ask(self._store.state, lambda: self._store.approvals.about(asked))
        if may_be_elsewhere and not found:
            raise NotTrusted(question.reason, hint=f"To accept it: toolcrib trust {ctx.tool}")
        # Else the call that is refused for its missing secret would have used up the approval.
        if found and all(grant.answer == "approved" for grant in found):
            self._secrets.require(ctx.bound.tool)

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

    def _refusal(self, ctx: Context, approval: Approval) -> ApprovalRequired:
        details = self._details(ctx, approval)
        error = needs_approval(ctx.bound, approval.reason, details.pop("hint", HINT_ASKED))
        error.details.update(details)
        if approval.rule == TRUST:
            error.message = f"{approval.tool} waits for trust: {approval.reason}"
        if approval.status in ("expired", "void"):
            late = approval.status == "expired"
            why = "nobody decided in time" if late else "its tool has changed, or it was cancelled"
            error.message = f"{approval.tool} was not approved: {why}"
            error.hint = "Make the call again to ask again."
        return error

    def _details(self, ctx: Context, approval: Approval) -> dict[str, Any]:
        found = approval.as_dict()
        details = {
            "approval": approval.id,
            **{name: found[name] for name in ("status", "reason", "expiresAt")},
        }
        if approval.rule == TRUST:
            details["hint"] = f"A person has to accept it: toolcrib trust {approval.tool}"
        elif self._last and ctx.caller == "cli" and ctx.identity is None:  # All others may be models.
            details["hint"] = f"Approve it: {self._last}. Then make the same call again."
        return details
