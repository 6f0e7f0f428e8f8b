"""`toolcrib approvals`."""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import click

from toolcrib.cli.arguments import parse_arguments
from toolcrib.cli.commands.decide.approval_lines import (
    SCOPES,
    SHOWN,
    content_lines,
    cut,
    lines_of_approval,
    narrower_choices,
    narrower_rule,
    short_arguments,
)
from toolcrib.cli.commands.decide.everywhere import documents, one_of, projects_of, sheets_of, where_of
from toolcrib.cli.commands.decide.policy import write_rule
from toolcrib.cli.confirm import Channel, choose, decide, page, print_missing_secrets, require_person
from toolcrib.cli.options import (
    id_or_last,
    open_project,
    page_options,
    project_options,
    require_id,
    root_option,
    yes_option,
)
from toolcrib.cli.output import one_line, print_change, print_json, print_note, print_result, print_shown
from toolcrib.cli.table import print_entries, print_listing
from toolcrib.errors import ApprovalRequired, ConflictError, NotFoundError, UsageError
from toolcrib.schema import decode_object

if TYPE_CHECKING:
    from toolcrib.project import Project
    from toolcrib.project.control.approvals import ApprovalService, ApprovalSheet

_LOOK_S = 0.5
_COLUMNS = ("ID", "STATUS", "TOOL", "CALLER", ("ASKED", "askedAt"), ("ARGUMENTS", short_arguments))
_MOST_DENIED = 500
_STATUSES = ("pending", "approved", "denied", "used", "expired", "void", "all")

chosen_option = id_or_last("call that waits", "approvals")


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
@page_options("approval")
def list_command(root: str | None, as_json: bool, status: str, limit: int, before: str | None) -> None:
    """List calls that wait for a person, the newest first.

    Outside of a project these are the calls of all your projects.
    """
    projects, everywhere = projects_of(root)
    found = sheets_of(projects, None if status == "all" else status, limit, before)
    print_listing(
        as_json,
        "approvals",
        documents(found),
        (*_COLUMNS, "PROJECT") if everywhere else _COLUMNS,
        empty="Nothing waits for approval." if status == "pending" else "There are no such approvals.",
        limit=limit,
    )


@command.command("show")
@project_options
@chosen_option
def show_command(root: str | None, as_json: bool, chosen: str | None) -> None:
    """Show one call, and the decision about it.

    ID may be the beginning of an id, if no other begins so.
    """
    project, approval = _one(root, chosen)
    service = project.approval_service
    sheet = service.show(approval)
    facts = service.facts(sheet)
    lines = [*_looked_at(project, sheet, facts), *facts.get("untrusted", ())]
    document = {**documents([(project, sheet)])[0], "facts": facts}
    print_shown(as_json, document, "\n".join(lines))


@command.command("approve")
@project_options
@chosen_option
@click.option(
    "--scope",
    type=click.Choice(["once", "session", "arguments", "rule"]),
    default="once",
    help="Once (default), for this session, or always: for these arguments, or with any (rule).",
)
@click.option(
    "--edit", "edits", multiple=True, metavar="KEY=TEXT|KEY:=JSON", help="Change an argument. Repeatable."
)
@click.option("--arguments", metavar="@FILE", help="Replace the arguments with those in a JSON file.")
@click.option("--reason", default="", help="The reason, stored with the decision.")
@yes_option
def approve_command(
    root: str | None,
    as_json: bool,
    chosen: str | None,
    scope: Any,
    edits: tuple[str, ...],
    arguments: str | None,
    reason: str,
    yes: bool,
) -> None:
    """Approve a call. Shows it, then asks.

    It shows the arguments whole, page by page if they are long, and the command line or request as it would
    run. ID may be the beginning of an id, if no other begins so.
    """
    from toolcrib.state import user_name

    project, approval = _one(root, chosen)
    if edits or arguments is not None:  # The schema of the tool applies to them, so its code has to run.
        project = open_project(project.place.target)
    service = project.approval_service
    changed = _changed_arguments(service, approval, edits, arguments)
    sheet = service.show(approval, changed)
    waits = sheet.approval.status == "pending"
    if waits:
        _print_whole(project, sheet, yes=yes)
        if sheet.tool is not None:
            print_missing_secrets(project, sheet.tool)
    if waits and scope == "rule":
        channel: Channel = "flag" if yes else "terminal"
        scope = _always(project, sheet, yes=yes, as_json=as_json)
    else:
        channel = _require_yes(project, sheet, f"Approve it{SCOPES.get(scope, '')}?", yes=yes)
    # The seal covers all that was shown: if it changes until the decision, that is refused.
    seal = sheet.approval.seal
    done = service.approve(approval, user_name(), scope, changed, reason, seal=seal, channel=channel)
    note = f"approved{SCOPES.get(done.approval.scope or '', '')}: {one_line(done.approval.tool)}"
    print_change(as_json, done.document, note)


@command.command("deny")
@click.argument("ids", nargs=-1, metavar="[ID]…")
@project_options
@click.option("--last", is_flag=True, help="The newest call that waits, in place of an ID.")
@click.option("--all", "everything", is_flag=True, help="Deny every call that waits.")
@click.option("--tool", help="With --all: only calls of this tool.")
@click.option("--caller", help="With --all: only calls by this caller.")
@click.option("--reason", default="", help="The reason; the caller sees it.")
@yes_option
def deny_command(
    ids: tuple[str, ...],
    root: str | None,
    as_json: bool,
    last: bool,
    everything: bool,
    tool: str | None,
    caller: str | None,
    reason: str,
    yes: bool,
) -> None:
    """Deny calls. Shows them, then asks once.

    ID may be the beginning of an id, if no other begins so. --all denies at most 500 at a time.
    """
    if (tool is not None or caller is not None) and not everything:
        raise UsageError("--tool and --caller narrow --all", hint="Add --all.")
    if everything and (ids or last):
        raise UsageError("give ids, --last, or --all")
    projects, everywhere = projects_of(root)
    if everything:
        found = [
            (project, one)
            for project, one in sheets_of(projects, "pending", _MOST_DENIED)
            if tool in (None, one.approval.tool) and caller in (None, one.approval.caller)
        ]
        if not found:
            return print_change(as_json, {"approvals": []}, "Nothing waits for approval.")
        if not as_json:
            print_entries(documents(found), (*_COLUMNS, "PROJECT") if everywhere else _COLUMNS)
    else:
        require_id(bool(ids), last, "approvals")
        named = [one_of(projects, one) for one in ids or (None,)]
        found = [(project, project.approval_service.show(one)) for project, one in named]
        for project, sheet in found:
            if sheet.approval.status == "pending":
                print_note("\n".join(_looked_at(project, sheet, project.approval_service.facts(sheet))))
    for project, _ in found:
        require_person("approve", where=project.place.path)
    question = "Deny it?" if len(found) == 1 else f"Deny these {len(found)} calls?"
    channel = _require_yes(*found[0], question, yes=yes)
    denied, failed = _denied(found, reason, channel)
    if as_json:
        print_json({"approvals": denied})
    if failed is not None:
        raise failed
    return None


def _denied(
    found: Sequence[tuple[Project, ApprovalSheet]], reason: str, channel: Channel
) -> tuple[list[dict[str, Any]], ConflictError | None]:
    """Deny these calls; return what was decided, and why the last one was not that somebody else decided."""
    from toolcrib.state import user_name

    denied, failed = [], None
    for project, sheet in found:
        service, seal = project.approval_service, sheet.approval.seal
        try:
            done = service.deny(sheet.approval.id, user_name(), reason, seal=seal, channel=channel)
        except ConflictError as error:
            if failed is not None:
                print_note(f"not denied: {failed.message}")
            failed = error
            continue
        denied.append(done.document)
        until = done.document["expiresAt"]
        print_note(f"denied: {one_line(done.approval.tool)}; the same call gets this answer until {until}")
    return denied, failed


@command.command("watch")
@root_option
def watch_command(root: str | None) -> None:
    """Show each call that begins to wait, until Ctrl-C.

    The terminal's bell rings. Where the program `notify-send` exists, there is a desktop notice too.
    """
    import subprocess

    service, notify = open_project(root, load=False).approval_service, shutil.which("notify-send")
    seen: set[str] = set()
    print_note("Calls that begin to wait are shown here. Stop with Ctrl-C.")
    try:
        while True:
            new = [one for one in service.list("pending", _MOST_DENIED) if one.approval.id not in seen]
            seen |= {one.approval.id for one in new}
            for sheet in reversed(new):
                facts = (sheet.document[key] for key in ("id", "tool", "caller"))
                print_result("  ".join((*facts, short_arguments(sheet.document))))
                print_note(f"  {one_line(sheet.document['reason'])}")
            if new and sys.stderr.isatty():
                click.echo("\a", err=True, nl=False)
            if new and notify is not None:
                text = one_line(f"{new[0].approval.tool} waits for approval")
                subprocess.run([notify, "--", "Toolcrib", text], check=False, timeout=10)
            sys.stdout.flush()
            time.sleep(_LOOK_S)
    except KeyboardInterrupt:
        print_note("stopped")


@command.command("grants")
@project_options
def grants_command(root: str | None, as_json: bool) -> None:
    """List the decisions that are valid now.

    They say what runs, and what is refused, without another question.
    """
    grants = open_project(root, load=False).approval_service.grants()
    print_listing(
        as_json,
        "grants",
        [one.as_dict() for one in grants],
        ("ID", "ANSWER", "SCOPE", "TOOL", "CALLER", ("BY", "decidedBy"), "NOTE"),
        empty="There are no decisions.",
    )


@command.command("revoke")
@click.argument("id")
@project_options
def revoke_command(id: str, root: str | None, as_json: bool) -> None:  # noqa: A002 - the name in the usage
    """Revoke a decision; the next such call asks again."""
    from toolcrib.state import user_name

    require_person("approve")
    service = open_project(root, load=False).approval_service
    with suppress(NotFoundError):  # Decisions outlive the calls that asked for them.
        id = service.approvals.resolve(id)  # noqa: A001 - the name in the usage
    grant = service.revoke(id, user_name(), channel="flag")
    note = f"revoked: {one_line(grant.tool)}, {grant.answer}{SCOPES.get(grant.scope, '')}"
    print_change(as_json, grant.as_dict(), note)


def _one(root: str | None, beginning: str | None) -> tuple[Project, str]:
    """Return the call that is meant: its project and its id."""
    return one_of(projects_of(root)[0], beginning)


def _looked_at(project: Project, sheet: ApprovalSheet, facts: Mapping[str, Any]) -> Iterator[str]:
    """Yield the lines of a call; content that is too long for a screen is cut."""
    yield from lines_of_approval(sheet, facts, where_of(project))
    yield from map(cut, content_lines(sheet, facts))


def _print_whole(project: Project, sheet: ApprovalSheet, *, yes: bool) -> None:
    """Show all of a call: first what is too long for a screen, page by page, so that the rest stays there."""
    facts = project.approval_service.facts(sheet)
    content = list(content_lines(sheet, facts))
    for line in content:
        if len(line) > SHOWN:
            page(line, wait=not yes)
    for line in facts.get("untrusted", ()):
        print_note(line)
    for line in lines_of_approval(sheet, facts, where_of(project)):
        print_note(line)
    for line in content:
        print_note(line if len(line) <= SHOWN else f"{line[:12]} {len(line):,} characters, shown above")


def _changed_arguments(
    service: ApprovalService, approval: str, edits: Sequence[str], file: str | None
) -> dict[str, Any] | None:
    """Return the arguments that `--edit` and `--arguments` ask for; None if they change nothing."""
    if not edits and file is None:
        return None
    if file is not None and not file.startswith("@"):
        raise UsageError(f"--arguments {file!r} names no file", hint="Write --arguments @file.json")
    if any(word.startswith("@") or word == "-" for word in edits):
        raise UsageError("--edit takes KEY=TEXT or KEY:=JSON", hint="For a file write --arguments @file.json")
    sheet = service.show(approval)
    changed = parse_arguments(edits, None if sheet.tool is None else sheet.tool.input_schema)
    if file is not None:
        return {**parse_arguments([file]), **changed}
    return {**decode_object(sheet.approval.arguments), **changed}


def _always(project: Project, sheet: ApprovalSheet, *, yes: bool, as_json: bool) -> str:
    """Ask if the person allows any arguments, or chooses something narrower; return the scope."""
    from toolcrib.project.trust.trust import TRUST

    rule = narrower_rule(sheet)
    print_note("\n".join(narrower_choices(rule)))
    keys = "ya" if rule is None else "yap"
    if sheet.approval.rule == TRUST:  # Then the answer trusts the tool.
        require_person("trust", where=project.place.path)
    key = choose(f"Approve it{SCOPES['rule']}?", keys, "approve", yes=yes, where=project.place.path)
    if key is None:
        raise ApprovalRequired("nothing was decided: the call still waits")
    if key == "p":
        assert rule is not None
        write_rule(project, rule, channel="terminal", as_json=as_json)
    return {"y": "rule", "a": "arguments", "p": "once"}[key]


def _require_yes(project: Project, sheet: ApprovalSheet, question: str, *, yes: bool) -> Channel:
    """Ask about a call that waits, and return how the person answered.

    A call that is decided already is refused by the service.
    """
    if sheet.approval.status != "pending":
        return "flag"
    channel = decide(question, "approve", yes=yes, where=project.place.path)
    if channel is None:
        raise ApprovalRequired("nothing was decided: the call still waits")
    return channel
