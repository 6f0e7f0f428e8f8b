"""What a project adds around each call: policy, approval, secrets, turns, and a line in the audit log."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from toolcrib.core.context import Context
from toolcrib.core.pipeline import Bound, needs_approval
from toolcrib.errors import (
    DeniedError,
    InvalidInput,
    RateLimited,
    SecretMissing,
    ToolcribError,
    UnavailableError,
)
from toolcrib.guard import (
    AuditLog,
    Decision,
    EnvironmentSecrets,
    MaskingFilter,
    Policy,
    Redactor,
    encode_fields,
    require_scope,
    resolve,
)
from toolcrib.project.control.checkpoint import Checkpoint, Held, Question
from toolcrib.project.control.first_use import FirstUse
from toolcrib.project.lock import Pins
from toolcrib.spec import Call, Caller, Result, SecretSource, Tool

__all__ = ["ProjectGate"]

_REMEMBERED = 4
"""Values of one secret that are masked: what it is, and what it was."""
_NO_SECRETS: Mapping[str, str] = {}
_NOT_HELD = ("missing", "unprotected", "replaced", "exceeded")
"""What the enforcement report says beyond the level, written down where there is something to say."""
_OWN = "approval.required"
"""The name of the rule by which a manifest itself asks for approval."""


class ProjectGate:
    """The gate of one project. Without a checkpoint nothing can wait: what needs approval is refused."""

    def __init__(
        self,
        audit: AuditLog,
        secrets: SecretSource | None = None,
        *,
        policy: Policy | None = None,
        checkpoint: Checkpoint | None = None,
        first_use: FirstUse | None = None,
        pins: Pins | None = None,
    ) -> None:
        self._audit = audit
        self._source = secrets or EnvironmentSecrets()
        self._policy = policy
        self._checkpoint = checkpoint
        self._first_use = first_use
        self._pins = pins
        self._known: dict[str, tuple[str, ...]] = {}
        self._redactor: Redactor | None = None
        self._logs = MaskingFilter(self.redact)

    def know(self, tools: Iterable[Tool]) -> None:
        """Mask the secrets that these tools declare from now on, whoever's output they turn up in."""
        self.know_names(secret.name for tool in tools for secret in tool.permissions.secrets)

    def know_names(self, names: Iterable[str]) -> None:
        """Mask these secrets from now on."""
        for name in names:
            try:
                value = self._source.get(name)
            except SecretMissing:  # Told when the tool is called.
                continue
            if value:
                self._learn({name: value})

    def _learn(self, secrets: Mapping[str, str]) -> None:
        new = {name: value for name, value in secrets.items() if value not in self._known.get(name, ())}
        if new:
            for name, value in new.items():
                # What it was before may still turn up.
                self._known[name] = (value, *self._known.get(name, ()))[:_REMEMBERED]
            self._redactor = Redactor(self._known)
            self._logs.install()

    def close(self) -> None:
        """Leave the loggers as they were."""
        self._logs.remove()

    def _secrets(self, bound: Bound, ctx: Context) -> Mapping[str, str]:
        permissions, secrets = bound.tool.permissions, _NO_SECRETS
        if permissions.secrets:
            secrets = resolve(permissions, self._source)
            self._learn(secrets)
        ctx.redactor = self._redactor
        return secrets

    def visible(self, tool: Tool, caller: str, identity: Caller | None) -> bool:
        """Whether this caller may see the tool."""
        if self._policy is not None:
            return self._policy.visible(tool, caller, identity)
        return identity is None or (identity.may("read") and identity.covers(tool.name))

    def hides(self, identity: Caller | None) -> bool:
        """Whether there may be tools that this caller does not see."""
        return self._policy is not None or identity is not None

    def authorise(self, bound: Bound, ctx: Context) -> None:
        """Refuse what the caller's token, or the policy, does not allow whatever the arguments."""
        if self._policy is not None:
            ctx.decided = self._policy.admit(bound.tool, ctx.caller, ctx.identity)
        elif ctx.identity is not None:
            require_scope(ctx.identity, "invoke", bound.tool)

    def admit(self, bound: Bound, ctx: Context) -> Mapping[str, str] | None:
        """The secrets the tool declares; None where the call has something to wait for.

        A missing secret stops the call, and so does an unwritable log.
        """
        self._audit.ensure()
        question, first = self.question(bound, ctx), None
        if bound.tool.source is not None or bound.tool.kind == "mcp":  # else the program brings it itself
            if self._pins is not None:
                self._pins.require(bound.tool)
            first = self._unseen(bound, ctx)
        if (question is not None or first is not None) and ctx.approved_by is not None:
            self._audit.record("TOOL_APPROVED", name=bound.name, approver=ctx.approved_by, caller=ctx.caller)
            question = first = None
        first, then = (question, None) if first is None else (first, question)
        checkpoint = self._checkpoint
        if checkpoint is None:
            if first is not None:
                raise needs_approval(bound, first.reason)
            return self._secrets(bound, ctx)
        rated = checkpoint.rated(bound.tool)
        if first is None:
            secrets = self._secrets(bound, ctx)
            if not rated and ctx.idempotency_key is None:
                return secrets
        ctx.held = Held(first, rated, then=then)
        return None

    def question(self, bound: Bound, ctx: Context) -> Question | None:
        """Why a person must agree to this call, whose arguments are checked; None when nobody must.

        Raises `PolicyDenied` where the policy refuses these arguments.
        """
        if self._policy is not None:
            assert isinstance(ctx.arguments, Mapping)
            decision: Decision = ctx.decided or self._policy.judge(bound.tool, ctx.caller, ctx.arguments)
            if decision.effect == "ask" and decision.rule is not None:
                return Question(decision.rule.name, decision.why)
            if decision.effect == "ask" and bound.approval_reason is None:
                return Question("policy.default", decision.why)
        if bound.approval_reason is not None:
            return Question(_OWN, bound.approval_reason)
        first_use = self._first_use if bound.tool.source is not None else None
        if first_use is not None and (forced := first_use.forced(bound.tool)) is not None:
            return Question(_OWN, forced)
        return None

    def _unseen(self, bound: Bound, ctx: Context) -> Question | None:
        if self._first_use is None:
            return None
        return self._first_use.question(bound.tool, ctx.caller, ctx.identity)

    def may_ask(self, tool: Tool, reason: str | None, caller: str) -> str | None:
        """Why a person may have to agree to some call of a tool; None where to no call of it."""
        if self._policy is not None:
            decision = self._policy.decide(tool, caller, None)
            if decision.effect == "ask":
                return decision.why
        return reason

    async def enter(self, bound: Bound, ctx: Context) -> Result | None:
        """Wait for a person, for the call's turn, for the first call with its key."""
        assert self._checkpoint is not None
        early = await self._checkpoint.enter(bound, ctx)
        permit = ctx.held.permit
        if early is None:
            if permit is not None and permit.edited:
                self.question(bound, ctx)  # What a person has put in must not be denied either.
            ctx.secrets = self._secrets(bound, ctx)
        return early

    def record(self, bound: Bound | None, ctx: Context, result: Result) -> None:
        """One line: TOOL_EXECUTED for a call that ran, TOOL_REFUSED for one that was not let run.

        TOOL_WAITS for one that waits for a person, TOOL_REPLAYED for the result of an earlier call.
        """
        error, details, held = result.error, result.details, ctx.held
        refused = error is not None and _refused(ctx, error)
        if held is not None and self._checkpoint is not None:
            self._checkpoint.leave(ctx, result, ran=not refused and result.status != "pending")
        arguments = ctx.arguments if ctx.arguments.__class__ is dict else _plain(ctx.arguments)
        # A name that is no tool's could be anything.
        name = ctx.tool if bound is not None else self.redact(ctx.tool)
        status = "success" if result.status == "ok" else "refused" if refused else result.status
        fields: dict[str, Any] = {"name": name, "params": arguments, "status": status}
        event = "TOOL_EXECUTED"
        if error is not None:
            event = "TOOL_REFUSED" if refused else event
            fields["code"], details = error.code, error.details
            if refused and isinstance(mechanism := details.get("mechanism"), str):
                fields["mechanism"] = mechanism
        fields["caller"] = ctx.caller
        fields["ms"] = int(result.duration_ms * 1000) / 1000
        if ctx.call_id is not None:
            fields["call"] = ctx.call_id
        if details and isinstance(sandbox := details.get("enforcement"), dict):
            fields["sandbox"] = sandbox.get("level")
            fields.update({f"sandbox_{name}": sandbox[name] for name in _NOT_HELD if sandbox.get(name)})
        if held is not None:
            event = _event(held, result, event)
            fields.update(_more(held, details))
        body, redactor = encode_fields(fields), self._redactor
        # What is too long for a line is cut there to its size, digest and beginning: the rest is not seen.
        if redactor is not None and (" cut=" in body or not redactor.clears(body)):
            fields["params"] = redactor.redact(arguments)
            body = encode_fields(fields)
        self._audit.append(event, body)

    def redact(self, value: Any) -> Any:
        """The value with every known secret masked."""
        return value if self._redactor is None else self._redactor.redact(value)


def _event(held: Held, result: Result, event: str) -> str:
    if held.replayed:
        return "TOOL_REPLAYED"
    return "TOOL_WAITS" if result.status == "pending" else event


def _more(held: Held, details: Mapping[str, Any] | None) -> dict[str, Any]:
    """Which approval a call ran by, or waits for."""
    if held.permit is not None:
        permit = held.permit
        return {"approval": permit.approval_id, "approver": permit.approver, "edited": permit.edited}
    waits = (details or {}).get("approval")
    return {"approval": waits} if isinstance(waits, str) else {}


def _plain(arguments: Any) -> Any:
    """Arguments that were never parsed, in the form that is masked and written down."""
    if isinstance(arguments, bytes):
        return arguments.decode(errors="replace")
    return dict(arguments) if isinstance(arguments, Mapping) else arguments


def _refused(call: Call, error: ToolcribError) -> bool:
    """Whether nothing of the tool has run: it was denied, could not start, or its input did not fit."""
    if not isinstance(call, Context) or call.started == 0:
        return True
    if "enforcement" in error.details:  # It ran in a sandbox, and was refused a host there.
        return False
    if isinstance(error, InvalidInput):  # Found while the request was put together, unless the tool said it.
        return error.details.get("raised_by") != "tool"
    return isinstance(error, (DeniedError, RateLimited, UnavailableError))
