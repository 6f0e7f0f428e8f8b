"""`toolcrib approvals`."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import click

from toolcrib.cli.arguments import parse_arguments
from toolcrib.cli.confirm import Channel, decide, require_person
from toolcrib.cli.options import project_options, root_option, yes_option
from toolcrib.cli.output import one_line, print_json, print_note, print_result
from toolcrib.cli.table import print_listing
from toolcrib.errors import ApprovalRequired, UsageError

if TYPE_CHECKING:
    from toolcrib.project.control.approval_service import ApprovalService, ApprovalSheet

_SHOWN = 4_000
"""Characters of arguments that a person is shown; `show --json` has them all."""
_SHOWN_IN_LIST = 200
_ABOUT = "calls"
_STATUSES = ("pending", "approved", "denied", "used", "expired", "void", "all")
_SCOPES = {
    "session": " for this session",
    "arguments": " always, for these arguments",
    "rule": " always, whenever this rule asks",
}


@click.group("approvals")
def command() -> None:
    """Approve or deny calls that wait for a person.

    An approval is valid for the tool as it is now: its manifest, its files and its program.
    """


@command.command("list")
@project_options
@click.option(
    "--status", type=click.Choice(_STATUSES), default="pending", help="Only this status (default: pending)."
)
@click.option(
    "--limit", type=click.IntRange(1, 500), default=100, help="Show at most so many (default: 100)."
)
@click.option("--before", metavar="ID", help="Show the next page, after the approval ID.")
def list_command(root: str | None, as_json: bool, status: str, limit: int, before: str | None) -> None:
    """List calls that wait for a person, the newest first."""
    service = _service(root)
    sheets = service.list(None if status == "all" else status, limit, before=before)  # type: ignore[arg-type]  # click checks the choice
    print_listing(
        as_json,
        {"approvals": [sheet.document for sheet in sheets]},
        ("ID", "STATUS", "TOOL", "CALLER", "ASKED", "ARGUMENTS"),
        [_row(sheet) for sheet in sheets],
        empty="Nothing waits for approval." if status == "pending" else "There are no such approvals.",
    )
    if not as_json and len(sheets) == limit:
        print_note(f"There may be more: --before {sheets[-1].approval.id}")


@command.command("show")
@click.argument("id")
@project_options
def show_command(id: str, root: str | None, as_json: bool) -> None:  # noqa: A002 - the name in the usage
    """Show one call, and the decision about it."""
    sheet = _service(root).show(id)
    if as_json:
        print_json(sheet.document)
    else:
        print_result("\n".join(_lines(sheet)))


@command.command("approve")
@click.argument("id")
@root_option
@click.option(
    "--scope",
    type=click.Choice(["once", "session", "arguments", "rule"]),
    default="once",
    help="Approve once (default), for this session, or always: for these arguments, or for this rule.",
)
@click.option(
    "--edit", "edits", multiple=True, metavar="KEY=TEXT|KEY:=JSON", help="Change an argument. Repeatable."
)
@click.option("--arguments", metavar="@FILE", help="Replace the arguments with those in a JSON file.")
@click.option("--reason", default="", help="The reason, stored with the decision.")
@yes_option
def approve_command(
    id: str,  # noqa: A002 - the name in the usage
    root: str | None,
    scope: Any,
    edits: tuple[str, ...],
    arguments: str | None,
    reason: str,
    yes: bool,
) -> None:
    """Approve a call. Shows it, then asks."""
    from toolcrib.state import user_name

    service = _service(root)
    changed = _changed_arguments(service, id, edits, arguments)
    sheet = service.show(id, changed)
    channel = _require_yes(sheet, f"Approve it{_SCOPES.get(scope, '')}?", yes=yes)
    seal = sheet.approval.seal
    done = service.approve(id, user_name(), scope, changed, reason, seal=seal, channel=channel)
    print_note(f"approved{_SCOPES.get(done.approval.scope or '', '')}: {one_line(done.approval.tool)}")


@command.command("deny")
@click.argument("id")
@root_option
@click.option("--reason", default="", help="The reason; the caller sees it.")
@yes_option
def deny_command(id: str, root: str | None, reason: str, yes: bool) -> None:  # noqa: A002 - the name in the usage
    """Deny a call. Shows it, then asks."""
    from toolcrib.state import user_name

    service = _service(root)
    sheet = service.show(id)
    channel = _require_yes(sheet, "Deny it?", yes=yes)
    done = service.deny(id, user_name(), reason, seal=sheet.approval.seal, channel=channel)
    print_note(f"denied: {one_line(done.approval.tool)}")


@command.command("grants")
@project_options
def grants_command(root: str | None, as_json: bool) -> None:
    """List the decisions that are valid now.

    They say what runs, and what is refused, without another question.
    """
    grants = _service(root).grants()
    print_listing(
        as_json,
        {"grants": [grant.as_dict() for grant in grants]},
        ("ID", "ANSWER", "SCOPE", "TOOL", "CALLER", "DECIDED"),
        [
            (
                grant.id,
                grant.answer,
                grant.scope,
                grant.tool,
                grant.caller,
                f"by {grant.decided_by} {grant.note}",
            )
            for grant in grants
        ],
        empty="There are no decisions.",
    )


@command.command("revoke")
@click.argument("id")
@root_option
def revoke_command(id: str, root: str | None) -> None:  # noqa: A002 - the name in the usage
    """Revoke a decision; the next such call asks again."""
    from toolcrib.state import user_name

    require_person(_ABOUT)
    grant = _service(root).revoke(id, user_name(), channel="flag")
    print_note(f"revoked: {one_line(grant.tool)}, {grant.answer}{_SCOPES.get(grant.scope, '')}")


def _service(root: str | None) -> ApprovalService:
    from toolcrib.project import Project

    return Project.open(root).approval_service


def _changed_arguments(
    service: ApprovalService, approval: str, edits: Sequence[str], file: str | None
) -> dict[str, Any] | None:
    """Return the arguments that `--edit` and `--arguments` ask for; None if they change nothing."""
    from toolcrib.schema import decode_object

    if not edits and file is None:
        return None
    if file is not None and not file.startswith("@"):
        raise UsageError(f"--arguments {file!r} names no file", hint="Write --arguments @file.json")
    if any(word.startswith("@") or word == "-" for word in edits):
        raise UsageError("--edit takes KEY=TEXT or KEY:=JSON", hint="For a file write --arguments @file.json")
    if file is not None:
        return {**parse_arguments([file]), **parse_arguments(edits)}
    return {**decode_object(service.show(approval).approval.arguments), **parse_arguments(edits)}


def _require_yes(sheet: ApprovalSheet, question: str, *, yes: bool) -> Channel:
    """Show a call that waits, ask, and return how the person answered.

    A call that is decided already is refused by the service.
    """
    if sheet.approval.status != "pending":
        return "flag"
    for line in _lines(sheet):
        print_note(line)
    channel = decide(question, _ABOUT, yes=yes)
    if channel is None:
        raise ApprovalRequired("nothing was decided: the call still waits")
    return channel


def _row(sheet: ApprovalSheet) -> tuple[str, ...]:
    document = sheet.document
    text = _compact(document["arguments"])
    short = text if len(text) <= _SHOWN_IN_LIST else f"{text[:_SHOWN_IN_LIST]}…"
    return (*(document[key] for key in ("id", "status", "tool", "caller", "asked_at")), short)


def _lines(sheet: ApprovalSheet) -> Iterator[str]:
    """Yield the lines of an approval. No text in it can add a line or control the terminal."""
    from toolcrib.spec.words import may_touch

    document = sheet.document
    yield f"approval {document['id']}: {document['status']}"
    yield f"  tool:      {one_line(document['tool'])} of {one_line(document['bundle'])}"
    yield f"  digest:    {document['tool_digest']}"
    yield f"  reason:    {one_line(document['reason'])}"
    if document["rule"]:
        yield f"  rule:      {one_line(document['rule'])}"
    yield f"  asked by:  {one_line(_caller(document))} at {document['asked_at']}"
    touches = document["touches"] if sheet.tool is None else may_touch(sheet.tool)
    for line in touches:
        yield f"  may touch: {one_line(line)}"
    yield f"  expires:   {document['expires_at']}"
    if document["decided_by"] is not None:
        scope = _SCOPES.get(document["scope"] or "", "") if document["status"] != "denied" else ""
        yield f"  decided:   by {one_line(document['decided_by'])} at {document['decided_at']}{scope}"
        if document["note"]:
            yield f"  note:      {one_line(document['note'])}"
    yield from _arguments("arguments", document["arguments"])
    if document["edited"] is not None:
        yield from _arguments("run with ", document["edited"])


def _arguments(label: str, value: Any) -> Iterator[str]:
    text = _compact(value)
    yield f"  {label}: {text[:_SHOWN]}"
    if len(text) > _SHOWN:
        yield f"  … and {len(text) - _SHOWN:,} more characters; `approvals show --json` shows all"


def _caller(document: dict[str, Any]) -> str:
    parts = (
        ("", "caller"),
        ("for ", "owner"),
        ("with the token ", "token"),
        ("in session ", "session_id"),
    )
    return " ".join(f"{word}{document[key]}" for word, key in parts if document[key])


def _compact(value: Any) -> str:
    return one_line(json.dumps(value, ensure_ascii=False))
