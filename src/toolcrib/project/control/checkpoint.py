"""What a call may have to wait for before its tool runs: the first call of its key, a person, its turn."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import orjson

from toolcrib.core.context import Context
from toolcrib.core.pipeline import Bound, needs_approval
from toolcrib.errors import ApprovalRequired
from toolcrib.guard import Approval, Ask, Lease, Permit, canonical
from toolcrib.project.control.store import Store
from toolcrib.spec import Limits, Result, Tool
from toolcrib.spec.words import may_touch
from toolcrib.state import user_name

_OF_THE_CALL = ("once", "arguments")
"""Scopes of a yes to a call with these arguments, by a person who was shown them."""

__all__ = ["Checkpoint", "Held", "Question"]


@dataclass(frozen=True, slots=True)
class Question:
    """Why a person must agree to a call."""

    rule: str
    """Which rule asks: a person may agree for good to what it asks about."""
    reason: str


@dataclass(slots=True)
class Held:
    """What one call waits for and holds, from its admission until it is recorded."""

    question: Question | None = None
    rated: bool = False
    then: Question | None = None
    """What is asked as well, unless the answer to the first question was about this very call."""
    permit: Permit | None = None
    lease: Lease | None = None
    key: str | None = None
    """The idempotency key, while this call is the first one with it."""
    replayed: bool = False
    """Its result is that of an earlier call; nothing was run."""


class Checkpoint:
    """Lets calls through, one project's. `digest_of` gives the digest of a tool as it is now.

    `limits` are the project's own, for tools that state none.
    """

    def __init__(self, store: Store, digest_of: Callable[[Tool], str], limits: Limits) -> None:
        self._store = store
        self._digest_of = digest_of
        self._limits = limits
        self._all_rated = limits.rated

    def rated(self, tool: Tool) -> bool:
        """Whether it is limited how often this tool is called."""
        return self._all_rated or tool.limits.rated

    async def enter(self, bound: Bound, ctx: Context) -> Result | None:
        """Wait until the call may run; the result of one that is not to run, or not yet.

        Raises `ApprovalRequired`, `ApprovalDenied`, `RateLimited`, `IdempotencyConflict`.
        """
        held: Held = ctx.held
        tool = bound.tool
        if ctx.idempotency_key is not None:
            recorded = await self._first(tool, ctx, ctx.idempotency_key)
            if recorded is not None:
                held.replayed = True
                return recorded
            held.key = ctx.idempotency_key
        for question in (held.question, held.then):
            if question is None or (held.permit is not None and held.permit.scope in _OF_THE_CALL):
                continue
            if (waiting := await self._agreed(bound, ctx, question)) is not None:
                return waiting
        if held.rated:
            held.lease = self._turn(tool)
        return None

    def leave(self, ctx: Context, result: Result, *, ran: bool) -> None:
        """Let go of what the call held; where the tool ran, its result is that of its key from now on."""
        held: Held = ctx.held
        if held.lease is not None:
            held.lease.release()
        if held.key is None:
            return
        if ran:
            self._store.recorded.finish(held.key, ctx.caller, orjson.dumps(result.as_dict()))
        else:
            self._store.recorded.abandon(held.key, ctx.caller)

    async def _first(self, tool: Tool, ctx: Context, key: str) -> Result | None:
        """The result of the first call with this key; None where this one is the first."""
        recorded = await self._store.recorded.wait(
            key,
            tool=tool.name,
            caller=ctx.caller,
            tool_digest="",
            arguments=canonical(dict(_checked(ctx))),
            repeatable=bool(tool.annotations.idempotent or tool.annotations.read_only),
            timeout_s=ctx.limit_ms / 1000,
        )
        return None if recorded is None else Result.from_dict(orjson.loads(recorded))

    async def _agreed(self, bound: Bound, ctx: Context, question: Question) -> Result | None:
        """Have a person agree; a `pending` result for a caller who does not want to wait."""
        approvals = self._store.approvals
        ask = self._ask(bound.tool, ctx, question)
        while True:
            answer = approvals.seek(ask)
            if isinstance(answer, Permit):
                if answer.edited:
                    ctx.arguments = bound.arguments.check(answer.arguments)
                ctx.held.permit = answer
                return None
            if ctx.wait == "pending":
                return Result("pending", details=_waits(answer), call_id=ctx.identify())
            if ctx.wait == "raise":
                raise self._refusal(bound, answer)
            decided = await approvals.wait(answer.id)
            if decided.status in ("expired", "void"):
                raise self._refusal(bound, decided)

    def _ask(self, tool: Tool, ctx: Context, question: Question) -> Ask:
        identity = ctx.identity
        return Ask(
            tool=tool.name,
            bundle=tool.bundle,
            tool_digest=self._digest_of(tool),
            arguments=canonical(dict(_checked(ctx))),
            caller=ctx.caller,
            owner=user_name() if identity is None else identity.owner,
            session_id=ctx.session_id,
            reason=question.reason,
            rule=question.rule,
            touches=tuple(may_touch(tool)),
            call_id=ctx.identify(),
            token=None if identity is None else identity.name,
        )

    @staticmethod
    def _refusal(bound: Bound, approval: Approval) -> ApprovalRequired:
        error = needs_approval(bound, approval.reason)
        error.details.update(_waits(approval))
        error.hint = f"{error.hint}; or agree to this call: toolcrib approvals approve {approval.id}"
        if approval.status in ("expired", "void"):
            why = "nobody decided in time" if approval.status == "expired" else "the tool changed meanwhile"
            error.message = f"{approval.tool} was not approved: {why}"
            error.hint = "Make the call again to ask again."
        return error

    def _turn(self, tool: Tool) -> Lease:
        own, others = tool.limits, self._limits
        return self._store.rates.acquire(
            tool.name,
            per_minute=_least(own.calls_per_minute, others.calls_per_minute),
            min_interval_ms=own.min_interval_ms,
            concurrency=_least(own.concurrent_calls, others.concurrent_calls),
        )


def _checked(ctx: Context) -> Mapping[str, Any]:
    assert isinstance(ctx.arguments, Mapping)
    return ctx.arguments


def _waits(approval: Approval) -> dict[str, Any]:
    told = approval.as_dict()
    return {"approval": approval.id, "reason": approval.reason, "expires_at": told["expires_at"]}


def _least(*limits: int | None) -> int | None:
    stated = [limit for limit in limits if limit is not None]
    return min(stated) if stated else None
