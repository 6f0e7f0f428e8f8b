"""What a project adds around each call: secrets resolved and masked, every call written to the audit log."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from toolcrib.context import Context
from toolcrib.errors import (
    DeniedError,
    InvalidInput,
    InvalidToken,
    PolicyDenied,
    ToolcribError,
    UnavailableError,
)
from toolcrib.guard import AuditLog, EnvironmentSecrets, Redactor, resolve
from toolcrib.pipeline import Bound, needs_approval
from toolcrib.spec import Call, Result, SecretSource, Tool

__all__ = ["ProjectGate"]

_NOT_HELD = ("missing", "unprotected", "exceeded")
"""What the enforcement report says beyond the level, written down where there is something to say."""
_NO_SECRETS: Mapping[str, str] = {}


class ProjectGate:
    """The gate of one project."""

    def __init__(self, audit: AuditLog, secrets: SecretSource | None = None) -> None:
        self._audit = audit
        self._source = secrets or EnvironmentSecrets()
        self._known: dict[str, str] = {}
        self._redactor: Redactor | None = None

    def know(self, tools: Iterable[Tool]) -> None:
        """Mask the secrets that these tools declare from now on, whoever's output they turn up in."""
        for tool in tools:
            for secret in tool.permissions.secrets:
                value = self._source.get(secret.name)
                if value:
                    self._learn({secret.name: value})

    def _learn(self, secrets: Mapping[str, str]) -> None:
        if any(self._known.get(name) != value for name, value in secrets.items()):
            self._known.update(secrets)
            self._redactor = Redactor(self._known)

    def authorise(self, bound: Bound, ctx: Context) -> None:
        """Refuse what the caller's token does not allow."""
        identity = ctx.identity
        if identity is None:
            return
        if not identity.may("invoke"):
            raise InvalidToken(f"the token of {identity.name} does not allow calls")
        if not identity.covers(bound.name):
            raise PolicyDenied(f"the token of {identity.name} does not cover {bound.name}")

    def admit(self, bound: Bound, ctx: Context) -> Mapping[str, str] | None:
        """The secrets the tool declares. A missing one stops the call, and so does an unwritable log."""
        self._audit.ensure()
        if bound.approval_reason is not None:
            if ctx.approved_by is None:
                raise needs_approval(bound, bound.approval_reason)
            self._audit.record("TOOL_APPROVED", name=bound.name, approver=ctx.approved_by, caller=ctx.caller)
        permissions = bound.tool.permissions
        if not permissions.secrets:
            return _NO_SECRETS
        secrets = resolve(permissions, self._source)
        self._learn(secrets)
        return secrets

    async def enter(self, bound: Bound, ctx: Context) -> Result | None:
        """Nothing is waited for yet."""

    def record(self, bound: Bound | None, call: Call, result: Result) -> None:
        """One line: TOOL_EXECUTED for a call that ran, TOOL_REFUSED for one that was not let run."""
        arguments = call.arguments if call.arguments.__class__ is dict else _plain(call.arguments)
        if self._redactor is not None:
            arguments = self._redactor.redact(arguments)
        # The log itself cuts what is too long for a line, and tells its size, digest and beginning.
        # A name that is no tool's could be anything.
        name = call.tool if bound is not None else self.redact(call.tool)
        fields: dict[str, Any] = {"name": name, "params": arguments}
        error, details = result.error, result.details
        if error is None:
            event, fields["status"] = "TOOL_EXECUTED", "success"
        else:
            refused = _refused(call, error)
            event, fields["status"] = ("TOOL_REFUSED", "refused") if refused else ("TOOL_EXECUTED", "error")
            fields["code"], details = error.code, error.details
        fields["caller"] = call.caller
        fields["ms"] = round(result.duration_ms, 3)
        if call.call_id is not None:
            fields["call"] = call.call_id
        if details and isinstance(held := details.get("enforcement"), dict):
            fields["sandbox"] = held.get("level")
            fields.update({f"sandbox_{name}": held[name] for name in _NOT_HELD if held.get(name)})
        self._audit.record(event, **fields)

    def redact(self, value: Any) -> Any:
        """The value with every known secret masked."""
        return value if self._redactor is None else self._redactor.redact(value)


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
    if "enforcement" in error.details:  # A process of it ran, and met what it was denied.
        return False
    return isinstance(error, (DeniedError, UnavailableError))
