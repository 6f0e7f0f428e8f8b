"""Where a person decides: approvals listed, shown, agreed to and refused, and every decision written down."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from toolcrib.errors import ConflictError, ToolcribError
from toolcrib.guard import Approval, Approvals, Grant, Scope, Status, canonical, may_decide
from toolcrib.project.config.policy import check_channel
from toolcrib.project.config.settings import Config
from toolcrib.spec import Caller, Tool

__all__ = ["Desk", "Sheet"]


@dataclass(frozen=True, slots=True)
class Sheet:
    """One approval as a person is shown it."""

    approval: Approval
    tool: Tool | None
    """The tool as it is now; None where there is none of that name any more."""
    document: dict[str, Any]
    """JSON form with secrets masked. `seal` in it is what `Desk.approve` and `Desk.deny` take."""


class Desk:
    """The approvals of a project as a person meets them, at whatever door.

    `tool_of` gives a tool by name (or raises NotFoundError, ManifestError), `digest_of` its digest as it is
    now, `audit` writes one event (`AuditLog.record`), `redact` masks secrets in a JSON value. `agreed` is
    told of each yes and its tool, `revoked` of each decision that is taken back. `config` says by which ways
    a person may agree here; a no is taken by any.
    """

    def __init__(
        self,
        approvals: Approvals,
        tool_of: Callable[[str], Tool],
        digest_of: Callable[[Tool], str],
        audit: Callable[..., None],
        redact: Callable[[Any], Any],
        *,
        config: Config | None = None,
        agreed: Callable[[Approval, Tool], None] | None = None,
        revoked: Callable[[Grant], None] | None = None,
    ) -> None:
        self.approvals = approvals
        self._tool_of = tool_of
        self._digest_of = digest_of
        self._audit = audit
        self._redact = redact
        config = config or Config()
        self._self_approval = config.self_approval
        self._channels = config.approval_channels
        self._agreed = agreed
        self._revoked = revoked

    def list(
        self, status: Status | None = None, limit: int = 100, *, before: str | None = None
    ) -> Sequence[Sheet]:
        """Approvals, the newest first; go on with `before` the last one's id."""
        found = self.approvals.list(status, limit, before=before)
        return [self._sheet(approval, None) for approval in found]

    def grants(self) -> Sequence[Grant]:
        """Every yes and no that holds now."""
        return self.approvals.grants()

    def show(self, id: str, changed: Mapping[str, Any] | None = None) -> Sheet:  # noqa: A002 - the field's name
        """One approval; with `changed`, as it would run with these arguments instead (`InvalidInput`).

        One that waits for a tool that has changed since is void from now on.
        """
        approval = self.approvals.find(id)
        tool = self._tool(approval)
        if approval.status in ("pending", "approved"):
            try:
                same = self._same(approval, tool)
            except ToolcribError:  # It cannot be told now; to agree to it, it must be.
                same = True
            approval = approval if same else self.void(approval.id)
        sheet = self._sheet(approval, tool)
        if changed is not None and tool is not None:
            sheet.document["edited"] = self._redact(_fitted(tool, changed))
        return sheet

    def approve(
        self,
        id: str,  # noqa: A002 - the field's name
        by: str,
        scope: Scope = "once",
        arguments: Mapping[str, Any] | None = None,
        note: str = "",
        until: float | None = None,
        *,
        seal: str | None = None,
        decider: Caller | None = None,
        channel: str = "cli",
    ) -> Sheet:
        """Agree. `arguments` run instead of those asked for, once they fit the tool's schema.

        Raises as `Approvals.approve` does; InvalidInput for arguments that do not fit; ConflictError where
        the tool has changed since it was asked for, which ends the approval; DeniedError where `decider` may
        not, or the project does not take a yes by this `channel`.
        """
        check_channel(channel, self._channels)
        approval = self.approvals.find(id)
        may_decide(approval, decider, person=by, self_approval=self._self_approval)
        tool = self._tool(approval)
        if approval.status == "pending" and not self._same(approval, tool):
            self.void(approval.id)
            raise ConflictError(
                f"{approval.tool} has changed since this call asked for approval, so it cannot be approved",
                hint="The call has to be made again: then it asks about the tool as it is now.",
                details={"approval": approval.id},
            )
        changed = None if arguments is None or tool is None else canonical(_fitted(tool, arguments))
        if changed == approval.arguments:
            changed = None
        done = self.approvals.approve(id, by, scope, changed, note, until, seal=seal)
        try:
            self._write("TOOL_APPROVED", done, approver=by, channel=channel, scope=scope, note=note)
            if self._agreed is not None and tool is not None:
                self._agreed(done, tool)
        except ToolcribError:
            self.approvals.void(id)  # What cannot be written down is not agreed to.
            raise
        return self._sheet(done, tool)

    def deny(
        self,
        id: str,  # noqa: A002 - the field's name
        by: str,
        note: str = "",
        *,
        seal: str | None = None,
        decider: Caller | None = None,
        channel: str = "cli",
    ) -> Sheet:
        """Refuse; the caller is told `note`. Raises as `Approvals.deny` does, and DeniedError."""
        approval = self.approvals.find(id)
        may_decide(approval, decider, person=by, self_approval=self._self_approval)
        done = self.approvals.deny(id, by, note, seal=seal)
        self._write("TOOL_DENIED", done, approver=by, channel=channel, note=note)
        return self._sheet(done, None)

    def revoke(self, id: str, by: str) -> Grant:  # noqa: A002 - the field's name
        """Take back a yes or a no that holds."""
        grant = self.approvals.revoke(id)
        if self._revoked is not None:
            self._revoked(grant)
        answer, scope = grant.answer, grant.scope
        self._audit("APPROVAL_REVOKED", name=grant.tool, approval=id, approver=by, answer=answer, scope=scope)
        return grant

    def void(self, id: str) -> Approval:  # noqa: A002 - the field's name
        """End one whose tool has changed, and write that down."""
        approval = self.approvals.void(id)
        self._write("APPROVAL_VOID", approval, reason="the tool has changed")
        return approval

    def _tool(self, approval: Approval) -> Tool | None:
        try:
            tool = self._tool_of(approval.tool)
        except ToolcribError:
            return None
        return tool if tool.bundle == approval.bundle else None

    def _same(self, approval: Approval, tool: Tool | None) -> bool:
        """Whether the tool is still what the call was about."""
        return tool is not None and self._digest_of(tool) == approval.tool_digest

    def _sheet(self, approval: Approval, tool: Tool | None) -> Sheet:
        document = approval.as_dict()
        for name in ("arguments", "edited", "reason", "note"):
            document[name] = self._redact(document[name])
        return Sheet(approval, tool, document)

    def _write(self, event: str, approval: Approval, **more: Any) -> None:
        """One line of the audit log: which approval, whose call, and what runs where that was changed."""
        fields: dict[str, Any] = {
            "name": approval.tool,
            "approval": approval.id,
            "caller": approval.caller,
            "arguments_sha256": approval.arguments_digest,
            **{name: self._redact(value) for name, value in more.items() if value != ""},
        }
        if event == "TOOL_APPROVED":
            fields["edited"] = approval.edited is not None
            if approval.edited is not None:
                fields["params"] = self._redact(approval.as_dict()["edited"])
        self._audit(event, **fields)


def _fitted(tool: Tool, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Changed arguments as they will run: held to the schema, defaults filled in."""
    from toolcrib.schema import ArgumentCheck

    return ArgumentCheck(tool.input_schema).check(arguments)
