"""Audit: one line in the log for every call that ran, was refused, waits, or got an earlier result."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from toolcrib.core.context import Context
from toolcrib.errors import DeniedError, InvalidInput, RateLimited, UnavailableError
from toolcrib.guard import AuditLog, encode_fields
from toolcrib.project.control.secrets import SecretsStep
from toolcrib.spec import Result

__all__ = ["CallAudit", "was_refused"]

_NOT_ENFORCED = ("missing", "unprotected", "replaced", "exceeded")
"""Parts of the enforcement report that are written down where they say something."""


class CallAudit:
    """Writes the calls of one project into its audit log, with secrets masked."""

    def __init__(self, log: AuditLog, secrets: SecretsStep) -> None:
        self._log = log
        self._secrets = secrets

    def ensure(self, _ctx: Context) -> None:
        """Refuse the call if it could not be written down: `AuditUnavailable`."""
        self._log.ensure()

    def record(self, ctx: Context, result: Result) -> None:
        """Write one line: TOOL_EXECUTED, TOOL_REFUSED, TOOL_WAITS or TOOL_REPLAYED."""
        refused = was_refused(ctx, result)
        fields = _fields(ctx, result, refused)
        body, redactor = encode_fields(fields), self._secrets.redactor
        # A field that is too long is cut to its size, digest and beginning: the rest of it is not seen here.
        if redactor is not None and (" cut=" in body or not redactor.clears(body)):
            for name in ("name", "params"):
                fields[name] = redactor.redact(fields[name])
            body = encode_fields(fields)
        self._log.append(_event(ctx, result, refused), body)


def was_refused(ctx: Context, result: Result) -> bool:
    """Return True if nothing of the tool ran: it was denied, could not start, or its input did not fit."""
    error = result.error
    if error is None:
        return False
    if ctx.started == 0:
        return True
    if "enforcement" in error.details:  # It ran in a sandbox, and was refused a host there.
        return False
    if isinstance(error, InvalidInput):  # Found while its request was put together, unless the tool says so.
        return error.details.get("raised_by") != "tool"
    return isinstance(error, (DeniedError, RateLimited, UnavailableError))


def _event(ctx: Context, result: Result, refused: bool) -> str:
    if ctx.replayed:
        return "TOOL_REPLAYED"
    if result.status == "pending":
        return "TOOL_WAITS"
    return "TOOL_REFUSED" if refused else "TOOL_EXECUTED"


def _fields(ctx: Context, result: Result, refused: bool) -> dict[str, Any]:
    error, details = result.error, result.details
    status = "success" if result.status == "ok" else "refused" if refused else result.status
    fields: dict[str, Any] = {"name": ctx.tool, "params": _params(ctx.arguments), "status": status}
    if error is not None:
        fields["code"], details = error.code, error.details
        if refused and isinstance(mechanism := details.get("mechanism"), str):
            fields["mechanism"] = mechanism
    fields["caller"] = ctx.caller
    fields["ms"] = int(result.duration_ms * 1000) / 1000
    if ctx.call_id is not None:
        fields["call"] = ctx.call_id
    if details and isinstance(sandbox := details.get("enforcement"), dict):
        fields["sandbox"] = sandbox.get("level")
        fields.update({f"sandbox_{name}": sandbox[name] for name in _NOT_ENFORCED if sandbox.get(name)})
    if (permit := ctx.permit) is not None:
        fields.update(approval=permit.approval_id, approver=permit.approver, edited=permit.edited)
    elif ctx.started == 0 and details and isinstance(approval := details.get("approval"), str):
        fields["approval"] = approval
    return fields


def _params(arguments: Any) -> Any:
    """Return arguments as they are written down; before they are checked they can be anything."""
    if isinstance(arguments, dict):
        return arguments
    if isinstance(arguments, bytes):
        return arguments.decode(errors="replace")
    return dict(arguments) if isinstance(arguments, Mapping) else arguments
