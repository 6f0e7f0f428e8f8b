"""Approvals as a person meets them: list, show, approve, deny and revoke; every decision is written down.

Where the settings allow that channel, the user of the calling client is asked too.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol

from toolcrib.core.bound import plan_of
from toolcrib.errors import ConflictError, NotFoundError, ToolcribError
from toolcrib.guard import (
    Approval,
    ApprovalStatus,
    AuditLog,
    Grant,
    GrantScope,
    Trusted,
    canonical,
    doubts_about,
    shown,
)
from toolcrib.guard.approvals.approvals import Approvals, may_decide
from toolcrib.guard.audit.search import AuditQuery, AuditReader
from toolcrib.manifest.kinds import is_served
from toolcrib.project.config.policy import check_channel
from toolcrib.project.config.settings import Config
from toolcrib.project.control.steps import OWN
from toolcrib.project.trust.trust import TRUST, ProjectTrust
from toolcrib.schema import ArgumentCheck
from toolcrib.spec import Caller, Tool
from toolcrib.spec.moment import written
from toolcrib.spec.record import record

_MOST_RUNS = 1_000
_COMPARED = 500
"""Approvals of each status among which the last one of a tool is looked for."""
_MOST_SETTLED = 500
_DENIED_S = 600.0
"""Seconds that a denial counts, unless the user chose not to be asked again."""
_MAX_TEXT = 4_000
"""Characters of arguments, and of code, that are shown in a question; a longer one is for the terminal."""


@record
class ApprovalSheet:
    """One approval as it is shown to a person."""

    approval: Approval
    tool: Tool | None
    """The tool as it is now; None if there is none of that name any more."""
    document: dict[str, Any]
    """JSON form with secrets masked. Its `seal` is what `ApprovalService.approve` and `deny` take."""
    changed: Mapping[str, Any] | None = None
    """The arguments that would run instead, if it was asked for with some."""


class ApprovalService:
    """The approvals of one project, for every interface.

    `find` returns a tool by name (or raises NotFoundError, ManifestError), `mask` masks secrets in a JSON
    value. The settings say through which channels a person may approve; every channel may deny. `wake` lets
    the stored calls go on that wait for what was decided.
    """

    def __init__(
        self,
        approvals: Approvals,
        find: Callable[[str], Tool],
        trust: ProjectTrust,
        audit: AuditLog,
        mask: Callable[[Any], Any],
        config: Config,
        wake: Callable[[], object] = lambda: None,
    ) -> None:
        self.approvals, self._wake = approvals, wake
        self._find, self._trust = find, trust
        self._audit, self._mask, self._config = audit, mask, config

    def list(
        self, status: ApprovalStatus | None = None, limit: int = 100, *, before: str | None = None
    ) -> Sequence[ApprovalSheet]:
        """Return approvals, the newest first. For the next page, `before` is the id of the last one."""
        found = self.approvals.list(status, limit, before=before)
        return [self._sheet(approval, None) for approval in found]

    def grants(self, limit: int = 500, before: str | None = None) -> Sequence[Grant]:
        """Return the decisions that are in force, the newest first; pages as those of `list`."""
        found = self.approvals.grants(limit, before=before)
        return [replace(grant, note=self._mask(grant.note)) for grant in found]

    def show(self, id: str, changed: Mapping[str, Any] | None = None) -> ApprovalSheet:  # noqa: A002 - the field's name
        """Return one approval; with `changed`, as it would run with these arguments instead (`InvalidInput`).

        An approval for a tool that has changed since becomes void.
        """
        approval = self.approvals.find(id)
        tool = self._tool(approval)
        if approval.status in ("pending", "approved"):
            try:
                same = self._is_same(approval, tool)
            except ToolcribError:  # Its digest cannot be computed now; `approve` will insist on it.
                same = True
            approval = approval if same else self.void(approval.id)
        sheet = self._sheet(approval, tool)
        if changed is None or tool is None:
            return sheet
        checked = _checked(tool, changed)
        sheet.document["edited"] = self._mask(checked)
        return replace(sheet, changed=checked)

    def facts(self, sheet: ApprovalSheet) -> dict[str, Any]:
        """Return what else a person should know of a call, as JSON with secrets masked.

        `description`, `madeBy`, `trusted`, `reasonBy`, and `doubts` about a reason that an agent wrote.
        `would` is the command line, request or other block as it would run; None where that cannot be said.
        `ran` counts up to 1,000 calls in the audit log, `lastRan` is the time of the last. `untrusted` are
        lines about the manifest and the code that would run, its steps included, where nobody has trusted
        them. `lastApproved` is the call of the tool that was approved last. Empty if there is no tool of
        that name any more.
        """
        approval, tool = sheet.approval, sheet.tool
        if tool is None:
            return {}
        arguments = approval.as_dict()["arguments"] if sheet.changed is None else sheet.changed
        would = None
        with suppress(ToolcribError):
            would = plan_of(tool, dict(arguments)).get("would")
        creator, last = self._trust.maker(tool), self._trust.last(tool)
        runs, last_ran = _runs(tool.name, self._audit.path)
        own_words = creator is not None and approval.rule == OWN and approval.reason == tool.approval.reason
        facts = {
            "description": tool.description,
            **({"translations": tool.translations} if tool.translations else {}),
            "would": would,
            "madeBy": _maker(tool, creator),
            "trusted": None if last is None else {"by": last.by, "at": written(last.at)},
            "ran": runs,
            "lastRan": last_ran,
            "reasonBy": f"the agent {creator}" if own_words else None,
            "doubts": doubts_about(approval.reason) if own_words else [],
            "untrusted": list(self._untrusted(approval, tool)),
            "lastApproved": self._last_approved(approval),
        }
        masked: dict[str, Any] = self._mask(facts)
        return masked

    def question(self, sheet: ApprovalSheet) -> str | None:
        """Return all that a person must know to decide, as lines of text; None if that is too long."""
        asked, document = sheet.approval, sheet.document
        arguments = json.dumps(document["arguments"], ensure_ascii=False)
        if len(arguments) > _MAX_TEXT:
            return None
        facts = self.facts(sheet)
        by = f" ({facts['reasonBy']} wrote this reason)" if facts.get("reasonBy") else ""
        lines = [f"{asked.tool} needs approval: {document['reason']}{by}", f"arguments: {arguments}"]
        if facts:
            lines.append(f"description: {facts['description']}")
            lines.append(f"made by {facts['madeBy']}, ran {facts['ran']} times")
            code = [f"would run: {json.dumps(facts['would'], ensure_ascii=False)}"] if facts["would"] else []
            code += facts["untrusted"]
            if sum(map(len, code)) > _MAX_TEXT:
                return None
            lines += code
        lines += [f"may touch: {line}" for line in asked.touches]
        # No text of a caller or a manifest may look like a further line of the question.
        return "\n".join(shown(line).replace("\n", "\\n").replace("\t", "\\t") for line in lines)

    def _last_approved(self, approval: Approval) -> dict[str, Any] | None:
        """Return the call of this tool that was approved last, as it ran."""
        found = [*self.approvals.list("approved", _COMPARED), *self.approvals.list("used", _COMPARED)]
        same = [one for one in found if (one.tool, one.bundle) == (approval.tool, approval.bundle)]
        last = max((one for one in same if one.id != approval.id), key=lambda one: one.id, default=None)
        if last is None:
            return None
        document = last.as_dict()
        ran = document["arguments"] if document["edited"] is None else document["edited"]
        return {"arguments": ran, "by": last.decided_by, "at": document["decidedAt"]}

    def _untrusted(self, approval: Approval, tool: Tool) -> Iterator[str]:
        if tool.source is None or approval.status != "pending":
            return
        sheet = self._trust.sheet(tool)
        calls = any(part.startswith("step/") for part in sheet.digest.parts)
        if (calls or approval.rule == TRUST) and sheet.status != "trusted":
            yield from sheet.lines()

    def approve(
        self,
        id: str,  # noqa: A002 - the field's name
        by: str,
        scope: GrantScope = "once",
        arguments: Mapping[str, Any] | None = None,
        note: str = "",
        until: float | None = None,
        *,
        seal: str | None = None,
        decider: Caller | None = None,
        channel: str = "program",
    ) -> ApprovalSheet:
        """Approve a call. `arguments` run instead of those asked for, once they match the tool's schema.

        Raises as `Approvals.approve` does; InvalidInput for arguments that do not match; ConflictError if
        the tool has changed since the call, which ends the approval; DeniedError if `decider` may not decide,
        or the project does not accept approvals through this `channel`.
        """
        # Only here: `deny` and `revoke` take every channel, because they never let a call run.
        check_channel(channel, self._config.approval_channels)
        approval = self.approvals.find(id)
        may_decide(approval, decider, person=by, self_approval=self._config.self_approval)
        tool = self._tool(approval)
        if approval.status == "pending" and not self._is_same(approval, tool):
            self.void(approval.id)
            raise ConflictError(
                f"{approval.tool} has changed since this call asked for approval, so it cannot be approved",
                hint="Make the call again: it then asks about the tool as it is now.",
                details={"approval": approval.id},
            )
        if arguments is not None and tool is None:
            raise ConflictError(f"{approval.tool} is not known here, so its arguments cannot be changed")
        edited = None if arguments is None or tool is None else canonical(_checked(tool, arguments))
        # Unchanged arguments are not an edit: an edit can only be approved once, and is written down as one.
        if edited == approval.arguments:
            edited = None
        done = self.approvals.approve(id, by, scope, edited, note, until, seal=seal)
        self._note_approved(done, by, channel, scope=scope, note=note, tool=tool)
        self._wake()
        return self._sheet(done, tool)

    def deny(
        self,
        id: str,  # noqa: A002 - the field's name
        by: str,
        note: str = "",
        hold_s: float | None = None,
        *,
        seal: str | None = None,
        decider: Caller | None = None,
        channel: str = "program",
    ) -> ApprovalSheet:
        """Deny a call; its caller gets `note`. Raises as `Approvals.deny` does, and DeniedError."""
        approval = self.approvals.find(id)
        may_decide(approval, decider, person=by, self_approval=self._config.self_approval)
        # Not taken back if the log cannot be written, as an approval is: a denial lets nothing run.
        done = self.approvals.deny(id, by, note, hold_s, seal=seal)
        self._record("TOOL_DENIED", done, approver=by, channel=channel, note=note)
        self._wake()
        return self._sheet(done, None)

    def revoke(self, id: str, by: str, *, channel: str = "program") -> Grant:  # noqa: A002 - the field's name
        """Take back a decision that is in force."""
        grant = self.approvals.revoke(id)
        # The approval of this rule was stored as trust too (`approve`): the tool would still run by that.
        if grant.rule == TRUST and grant.scope == "rule":
            self._trust.forget(grant.tool, grant.bundle, by, grant.tool_digest)
        fields = {"name": grant.tool, "approval": id, "approver": by, "channel": channel}
        self._audit.record("APPROVAL_REVOKED", **fields, answer=grant.answer, scope=grant.scope)
        return grant

    def settle(self, rows: Sequence[Trusted], by: str, channel: str, revoked: Collection[str] = ()) -> None:
        """Answer the calls that wait for trust in these: those about this version go on, others are void.

        Those of a server's tool that still waits are left as they are. Approvals that trust gave in a
        subject of `revoked`, or in any if that is `all`, end too if no call has used them.
        """
        for sheet in self.list("approved", _MOST_SETTLED) if revoked else ():
            one = sheet.approval
            given = {"all", f"tool:{one.tool}", f"server:{one.bundle}"}
            if one.rule == TRUST and given.intersection(revoked):
                self.void(one.id, "its trust was revoked")
        subjects = {(row.subject, row.bundle): row.digest for row in rows}
        servers = {row.subject for row in rows}
        for sheet in self.list("pending", _MOST_SETTLED):
            one = sheet.approval
            digest = subjects.get((f"tool:{one.tool}", one.bundle))
            if digest is None and f"server:{one.bundle}" in servers:
                tool = self._tool(one)
                is_trusted = tool is not None and not self._trust.sheet(tool).waits
                digest = self._trust.digest_of(tool) if tool is not None and is_trusted else None
            if one.rule != TRUST or digest is None:
                continue
            if digest != one.tool_digest:
                self.void(one.id)
                continue
            with suppress(ConflictError, NotFoundError):  # Another process has decided it meanwhile.
                self._note_approved(self.approvals.approve(one.id, by), by, channel, scope="once")
        self._wake()

    def _note_approved(
        self, done: Approval, by: str, channel: str, *, tool: Tool | None = None, **more: Any
    ) -> None:
        try:
            self._record("TOOL_APPROVED", done, approver=by, channel=channel, **more)
            if tool is not None and done.rule == TRUST and done.scope == "rule":
                self._trust.trust(tool, done.decided_by or "", done.tool_digest, channel=channel)
        except ToolcribError:
            self.approvals.void(done.id)  # A decision that cannot be written down does not count.
            raise

    def refuse(self, id: str, channel: str, why: str) -> None:  # noqa: A002 - the field's name
        """Write down that an answer does not count."""
        self._audit.record("APPROVAL_REFUSED", approval=id, channel=channel, reason=self._mask(why))

    def void(self, id: str, why: str = "the tool has changed") -> Approval:  # noqa: A002 - the field's name
        """End an approval, and write down why."""
        approval = self.approvals.void(id)
        self._record("APPROVAL_VOID", approval, reason=why)
        return approval

    def _tool(self, approval: Approval) -> Tool | None:
        try:
            tool = self._find(approval.tool)
        except ToolcribError:
            return None
        # The name may lead to a tool of another bundle by now: no approval passes to that one.
        return tool if tool.bundle == approval.bundle else None

    def _is_same(self, approval: Approval, tool: Tool | None) -> bool:
        """Return True if the tool is still the one that was to be called."""
        if tool is not None:
            return self._trust.digest_of(tool) == approval.tool_digest
        try:
            self._find(approval.tool)
        except NotFoundError:
            return True  # A function of another process's program: its next call compares what was approved.
        except ToolcribError:
            pass
        return False

    def _sheet(self, approval: Approval, tool: Tool | None) -> ApprovalSheet:
        document = approval.as_dict()
        for name in ("arguments", "edited", "reason", "note"):
            document[name] = self._mask(document[name])
        return ApprovalSheet(approval, tool, document)

    def _record(self, event: str, approval: Approval, **more: Any) -> None:
        """Write one line of the audit log about an approval."""
        fields: dict[str, Any] = {
            "name": approval.tool,
            "approval": approval.id,
            "caller": approval.caller,
            "arguments_sha256": approval.arguments_digest,
            **{name: self._mask(value) for name, value in more.items() if value != ""},
        }
        if event == "TOOL_APPROVED":
            fields["edited"] = approval.edited is not None
            if approval.edited is not None:
                fields["params"] = self._mask(approval.as_dict()["edited"])
        self._audit.record(event, **fields)


def _checked(tool: Tool, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return changed arguments as they will run: checked by the schema, defaults filled in."""
    return ArgumentCheck(tool.input_schema).check(arguments)


def _maker(tool: Tool, creator: str | None) -> str:
    if creator is not None:
        return f"the agent {creator}"
    if tool.source is not None:
        return "a person, in the file " + tool.source.path
    return f"the MCP server {tool.bundle}" if is_served(tool) else "the program that serves it"


def _runs(name: str, log: Path) -> tuple[int, str | None]:
    """Return how often a tool ran, and when last; (0, None) if the log cannot be read."""
    try:
        lines = AuditReader(log).newest(AuditQuery(tool=name, event="TOOL_EXECUTED"), _MOST_RUNS)
    except (OSError, ToolcribError):
        return 0, None
    last = lines[-1].entry if lines else None
    return len(lines), None if last is None else written(last.time.timestamp())


class ClientAnswer(Protocol):
    """The answer of a client's user."""

    @property
    def approved(self) -> bool:
        """True if the call may run."""

    @property
    def reason(self) -> str:
        """A note for the caller."""

    @property
    def dont_ask_again(self) -> bool:
        """True if a denial counts as long as the call would have waited."""


class Elicitation:
    """Asks the user of a client for approval, and passes on the answer.

    The client may answer by itself, so this is only for trusted projects whose settings allow it. The user
    decides once, on calls that this client made itself, and never on calls made with a token.
    """

    def __init__(self, service: ApprovalService) -> None:
        self._service = service

    def question(self, approval: str) -> str | None:
        """Return the question to ask; None if the client's user may not decide on this call."""
        try:
            sheet = self._service.show(approval)
        except ToolcribError:
            return None
        if sheet.approval.status != "pending" or sheet.approval.token is not None:
            return None
        text, until = self._service.question(sheet), sheet.document["expiresAt"]
        held = f'If you deny it, that counts for 10 minutes, or with "Don\'t ask again" until {until}.'
        return None if text is None else f"{text}\n{held}"

    def decide(self, approval: str, client: str, answer: ClientAnswer) -> None:
        """Take the answer. If it does not count, nothing changes: the call is refused as before."""
        try:
            # Looked up again: if the tool has changed while the user decided, this makes the approval void.
            asked = self._service.show(approval).approval
            if asked.caller != client or asked.token is not None:
                return
            who = f"user of {client}"
            if answer.approved:
                self._service.approve(approval, who, note=answer.reason, channel="elicitation")
            else:
                hold_s = None if answer.dont_ask_again else _DENIED_S
                self._service.deny(approval, who, answer.reason, hold_s, channel="elicitation")
        except ToolcribError:
            return
