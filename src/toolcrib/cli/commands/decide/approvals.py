"""`toolcrib approvals`."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import click

from toolcrib.cli.output import json_option, note, printable, root_option, say, write_json

if TYPE_CHECKING:
    from toolcrib.project import Project
    from toolcrib.project.control.approval_service import ApprovalService, ApprovalSheet

__all__ = ["command"]

_SHOWN = 4_000
"""Characters of arguments shown to a person; more are named, and shown by `show --json`."""
_STATUSES = ("pending", "approved", "denied", "used", "expired", "void", "all")

yes_option = click.option("--yes", is_flag=True, help="Do not ask; needed where there is no terminal.")


@click.group("approvals")
def command() -> None:
    """Decide on calls that wait for a person. An approval holds for the tool as it is now: its manifest, its
    files, its program."""


@command.command("list")
@root_option
@json_option
@click.option(
    "--status", type=click.Choice(_STATUSES), default="pending", help="Which ones (default: pending)."
)
@click.option("--limit", type=click.IntRange(1, 500), default=100, help="How many at most (default: 100).")
@click.option("--before", metavar="ID", help="Go on after this one, the last of a page.")
def list_command(root: str | None, as_json: bool, status: str, limit: int, before: str | None) -> None:
    """List calls that wait for a person, the newest first."""
    service = _project(root).approval_service
    sheets = service.list(None if status == "all" else status, limit, before=before)  # type: ignore[arg-type]  # click holds it to the choice
    if as_json:
        write_json({"approvals": [sheet.document for sheet in sheets]})
    elif not sheets:
        note("Nothing waits for approval." if status == "pending" else "There is none.")
    else:
        from toolcrib.cli.table import print_table

        print_table(
            ("ID", "STATUS", "TOOL", "CALLER", "ASKED", "ARGUMENTS"), [_row(sheet) for sheet in sheets]
        )
        if len(sheets) == limit:
            note(f"There may be more: --before {sheets[-1].approval.id}")


@command.command("show")
@click.argument("id")
@root_option
@json_option
def show_command(id: str, root: str | None, as_json: bool) -> None:  # noqa: A002 - the name in the usage
    """Show one call that waits, or waited: what it would do, and who decided what."""
    sheet = _project(root).approval_service.show(id)
    if as_json:
        write_json(sheet.document)
    else:
        say("\n".join(_lines(sheet)))


@command.command("approve")
@click.argument("id")
@root_option
@click.option(
    "--scope",
    type=click.Choice(["once", "session", "arguments", "rule"]),
    default="once",
    help="How far it reaches (default: once): this session, always these arguments, or always this rule.",
)
@click.option(
    "--edit", "edits", multiple=True, metavar="KEY=TEXT|KEY:=JSON", help="Change an argument (repeatable)."
)
@click.option("--arguments", metavar="@FILE", help="Run with the arguments in this JSON file instead.")
@click.option("--reason", default="", help="A word on why, kept with the decision.")
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
    """Let a call run that waits for a person. It shows what would run and asks."""
    service = _project(root).approval_service
    changed = _changed(service, id, edits, arguments)
    sheet = service.show(id, changed)
    if sheet.approval.status == "pending":
        _tell(_lines(sheet))
        _require_answer(f"Approve it{_reach(scope)}? [y/N] ", yes=yes)
    from toolcrib.state import user_name

    done = service.approve(id, user_name(), scope, changed, reason, seal=sheet.approval.seal)
    note(f"approved{_reach(done.approval.scope)}: {_line(done.approval.tool)}")


@command.command("deny")
@click.argument("id")
@root_option
@click.option("--reason", default="", help="Why: the caller is told.")
@yes_option
def deny_command(id: str, root: str | None, reason: str, yes: bool) -> None:  # noqa: A002 - the name in the usage
    """Refuse a call that waits for a person."""
    service = _project(root).approval_service
    sheet = service.show(id)
    if sheet.approval.status == "pending":
        _tell(_lines(sheet))
        _require_answer("Refuse it? [y/N] ", yes=yes)
    from toolcrib.state import user_name

    done = service.deny(id, user_name(), reason, seal=sheet.approval.seal)
    note(f"denied: {_line(done.approval.tool)}")


@command.command("grants")
@root_option
@json_option
def grants_command(root: str | None, as_json: bool) -> None:
    """List every decision that holds now: what may run without asking again, and what may not."""
    grants = _project(root).approval_service.grants()
    if as_json:
        write_json({"grants": [grant.as_dict() for grant in grants]})
    elif not grants:
        note("Nothing is granted.")
    else:
        from toolcrib.cli.table import print_table

        rows = [
            (
                grant.id,
                grant.answer,
                grant.scope,
                grant.tool,
                grant.caller,
                f"by {grant.decided_by} {grant.note}",
            )
            for grant in grants
        ]
        print_table(("ID", "ANSWER", "SCOPE", "TOOL", "CALLER", "DECIDED"), rows)


@command.command("revoke")
@click.argument("id")
@root_option
def revoke_command(id: str, root: str | None) -> None:  # noqa: A002 - the name in the usage
    """Take back a decision that holds; the next such call asks again."""
    from toolcrib.state import user_name

    grant = _project(root).approval_service.revoke(id, user_name())
    note(f"taken back: {_line(grant.tool)}, {grant.answer}{_reach(grant.scope)}")


def _project(root: str | None) -> Project:
    from toolcrib.project import Project

    return Project.open(root)


def _changed(
    service: ApprovalService, approval: str, edits: Sequence[str], arguments: str | None
) -> dict[str, Any] | None:
    """The arguments that run instead, as the options say; None where they stay."""
    from toolcrib.cli.arguments import parse_arguments
    from toolcrib.errors import UsageError
    from toolcrib.schema import decode_object

    if not edits and arguments is None:
        return None
    if arguments is not None and not arguments.startswith("@"):
        raise UsageError(f"--arguments {arguments!r} names no file", hint="Write --arguments @file.json")
    if any(word.startswith("@") or word == "-" for word in edits):
        raise UsageError("--edit takes KEY=TEXT or KEY:=JSON", hint="For a file write --arguments @file.json")
    if arguments is not None:
        return {**parse_arguments([arguments]), **parse_arguments(edits)}
    base = decode_object(service.show(approval).approval.arguments)
    return {**base, **parse_arguments(edits)}


def _require_answer(question: str, *, yes: bool) -> None:
    from toolcrib.cli.approval import forget_typed
    from toolcrib.errors import ApprovalRequired

    if yes:
        return
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise ApprovalRequired(
            "there is no terminal to ask at, so nothing was decided",
            hint="Decide at a terminal, or say --yes if you have seen what is asked.",
        )
    forget_typed()
    note(question, nl=False)
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        raise ApprovalRequired("nothing was decided; the call still waits")


def _reach(scope: str | None) -> str:
    return {
        "session": " for this session",
        "arguments": " always, for these arguments",
        "rule": " always, whenever this rule asks",
    }.get(scope or "", "")


def _tell(lines: Iterable[str]) -> None:
    for line in lines:
        note(line)


def _row(sheet: ApprovalSheet) -> tuple[str, ...]:
    document = sheet.document
    text = _compact(document["arguments"])
    short = text if len(text) <= 200 else f"{text[:200]}…"
    names = (document["id"], document["status"], document["tool"], document["caller"], document["asked_at"])
    return (*names, short)


def _lines(sheet: ApprovalSheet) -> Iterable[str]:
    """An approval in lines of which none can be forged by what it holds."""
    from toolcrib.spec.words import may_touch

    document = sheet.document
    yield f"approval {document['id']}: {document['status']}"
    yield f"  tool:      {_line(document['tool'])} of {_line(document['bundle'])}"
    yield f"  digest:    {document['tool_digest']}"
    yield f"  reason:    {_line(document['reason'])}"
    if document["rule"]:
        yield f"  rule:      {_line(document['rule'])}"
    yield f"  asked by:  {_line(_asker(document))} at {document['asked_at']}"
    touches = document["touches"] if sheet.tool is None else may_touch(sheet.tool)
    for line in touches:
        yield f"  may touch: {_line(line)}"
    yield f"  expires:   {document['expires_at']}"
    if document["decided_by"] is not None:
        reach = _reach(document["scope"]) if document["status"] != "denied" else ""
        yield f"  decided:   by {_line(document['decided_by'])} at {document['decided_at']}{reach}"
        if document["note"]:
            yield f"  said:      {_line(document['note'])}"
    yield from _arguments("arguments", document["arguments"])
    if document["edited"] is not None:
        yield from _arguments("run with ", document["edited"])


def _arguments(label: str, value: Any) -> Iterable[str]:
    text = _compact(value)
    yield f"  {label}: {text[:_SHOWN]}"
    if len(text) > _SHOWN:
        yield f"  … and {len(text) - _SHOWN:,} characters more, which `approvals show --json` shows"


def _asker(document: dict[str, Any]) -> str:
    said = [document["caller"]]
    said += [f"for {document['owner']}"] if document["owner"] else []
    said += [f"with the token {document['token']}"] if document["token"] else []
    said += [f"in session {document['session_id']}"] if document["session_id"] else []
    return " ".join(said)


def _compact(value: Any) -> str:
    import json

    return _line(json.dumps(value, ensure_ascii=False))


def _line(text: str) -> str:
    """A text on one line that steers no terminal."""
    return printable(text).replace("\n", "\\n").replace("\t", "\\t")
