"""Audit: a line before a call runs, and one when it ended, was refused, waits, or got an earlier result."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from toolcrib.core.context import Context
from toolcrib.errors import DeniedError, InvalidInput, RateLimited, ToolcribError, UnavailableError
from toolcrib.guard import AuditLog, encode_field, encode_fields
from toolcrib.project.control.secrets import SecretsStep
from toolcrib.spec import Result

_LONGEST_LIST = 512
"""Characters of a list that only the end of a call has."""
_NOT_ENFORCED = ("missing", "unprotected", "replaced", "exceeded")
"""Parts of the enforcement report that are written down where they say something."""


class CallAudit:
    """Writes the calls of one project into its audit log, with secrets masked."""

    def __init__(self, log: AuditLog, secrets: SecretsStep) -> None:
        self._log = log
        self._secrets = secrets

    def ensure(self, _ctx: Context) -> None:
        """Refuse the call if the log cannot be written: `AuditUnavailable`."""
        self._log.ensure()

    def start(self, ctx: Context) -> None:
        """Write TOOL_STARTED, or refuse the call: `AuditUnavailable`. The last step before the tool runs."""
        asked = self._encode(ctx)
        ids = "" if ctx.call_id is None and ctx.permit is None else _ids(ctx)
        number = self._log.start(f"{asked}{encode_field('caller', ctx.caller)}{ids}")
        ctx.start_line = number, asked, ids

    def record(self, ctx: Context, result: Result) -> None:
        """Write one line: TOOL_EXECUTED, TOOL_REFUSED, TOOL_WAITS or TOOL_REPLAYED."""
        refused, caller, error = was_refused(ctx, result), encode_field("caller", ctx.caller), result.error
        status = "success" if result.status == "ok" else "refused" if refused else result.status
        code = "" if error is None else _code(error, refused)
        ended = f" status={status}{code}{caller} ms={result.duration_ms:.3f}{_facts(ctx, result)}"
        event = _event(ctx, result, refused)
        if ctx.start_line is None:
            self._log.append(event, self._encode(ctx) + ended)
        else:
            # The arguments are not encoded and masked again: the end repeats what the start wrote.
            start, asked, _ = ctx.start_line
            self._log.append(event, f"{asked}{ended} start={start}", start=start)

    def _encode(self, ctx: Context) -> str:
        """Return name and arguments as they are written, with secrets masked."""
        fields = {"name": ctx.tool, "params": _params(ctx.arguments)}
        body, redactor = encode_fields(fields), self._secrets.redactor
        # A field that is too long is cut to its size, digest and beginning: the rest of it is not seen here.
        if redactor is not None and (" cut=" in body or not redactor.clears(body)):
            body = encode_fields(redactor.redact(fields))
        return body


def was_refused(ctx: Context, result: Result) -> bool:
    """Return True if nothing of the tool ran: it was denied, could not start, or its input did not fit."""
    error = result.error
    if error is None:
        return False
    if ctx.started == 0:
        return True
    # It ran in a sandbox, and was refused a host there or ended from outside.
    if "enforcement" in error.details or error.details.get("started"):
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


def _ids(ctx: Context) -> str:
    fields = {} if ctx.call_id is None else {"call": ctx.call_id}
    if ctx.permit is not None:
        fields["approval"] = ctx.permit.approval_id
    return encode_fields(fields)


def _code(error: ToolcribError, refused: bool) -> str:
    mechanism = error.details.get("mechanism")
    named = {"mechanism": mechanism} if refused and isinstance(mechanism, str) else {}
    return encode_fields({"code": error.code, **named})


def _facts(ctx: Context, result: Result) -> str:
    """Return the call's id, sandbox and approval as they are written."""
    details, permit = result.details if result.error is None else result.error.details, ctx.permit
    if not details and permit is None:
        if ctx.start_line is not None:
            return ctx.start_line[2]
        return "" if ctx.call_id is None else _ids(ctx)
    fields: dict[str, Any] = {} if ctx.call_id is None else {"call": ctx.call_id}
    if details and isinstance(sandbox := details.get("enforcement"), dict):
        fields["sandbox"] = sandbox.get("level")
        fields.update(
            {f"sandbox_{name}": _short(sandbox[name]) for name in _NOT_ENFORCED if sandbox.get(name)}
        )
    if permit is not None:
        fields.update(approval=permit.approval_id, approver=permit.approver, edited=permit.edited)
    elif ctx.started == 0 and details and isinstance(approval := details.get("approval"), str):
        fields["approval"] = approval
    return encode_fields(fields)


def _short(found: list[Any]) -> list[Any] | int:
    """Return a list, or the number of its items: the end of a call must fit into the room reserved for it."""
    return found if len(str(found)) <= _LONGEST_LIST else len(found)


def _params(arguments: Any) -> Any:
    """Return arguments as they are written down; before they are checked they can be anything."""
    if isinstance(arguments, dict):
        return arguments
    if isinstance(arguments, bytes):
        return arguments.decode(errors="replace")
    return dict(arguments) if isinstance(arguments, Mapping) else arguments
