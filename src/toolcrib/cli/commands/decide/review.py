"""`toolcrib review`."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import click

from toolcrib.cli.output import json_option, note, printable, root_option, say, tell_error, write_json

if TYPE_CHECKING:
    from toolcrib.project import Project
    from toolcrib.project.control.first_use import ReviewSheet

__all__ = ["command", "lines_of"]


@click.command("review")
@click.argument("names", nargs=-1, metavar="[NAME]…")
@root_option
@json_option
@click.option("--all", "everything", is_flag=True, help="Every tool, not only those that wait for a review.")
@click.option("--yes", is_flag=True, help="Count them as reviewed, without a question.")
def command(names: tuple[str, ...], root: str | None, as_json: bool, everything: bool, yes: bool) -> int:
    """Look at tools before their first use: digest, what each may touch, what has changed since then.
    Asks, and keeps the answer for the tool exactly as it is.

    Without a NAME it shows the tools that wait for it: those that reach beyond the project, and those that an
    agent made.
    """
    from toolcrib.errors import UsageError
    from toolcrib.project import Project
    from toolcrib.state import user_name

    if names and everything:
        raise UsageError("give names, or --all")
    project = Project.open(root)
    sheets, failed = _sheets(project, names, everything=everything)
    seen: list[ReviewSheet] = []
    for number, sheet in enumerate(sheets):
        if not as_json:
            say("\n".join([*([""] if number else []), *lines_of(sheet)]))
        waits = sheet.standing.status != "reviewed"
        if waits and (yes or (not as_json and _agreed(sheet))):
            project.review(sheet.tool, user_name(), sheet.digest)
            seen.append(sheet)
            note(printable(f"reviewed: {sheet.tool.name}"))
    if as_json:
        done = {id(sheet) for sheet in seen}
        write_json({"tools": [{**sheet.as_dict(), "accepted": id(sheet) in done} for sheet in sheets]})
    elif not sheets and not failed:
        note("No tool waits for a review.")
    return failed


def _sheets(project: Project, names: Sequence[str], *, everything: bool) -> tuple[list[ReviewSheet], int]:
    """The tools to look at, and the exit code of what could not be looked at."""
    from toolcrib.errors import ToolcribError

    first_use, failed = project.first_use, 0
    tools = [project.get(name) for name in names] if names else list(project.tools())
    sheets = []
    for tool in tools:
        if tool.source is None:
            continue
        try:
            sheet = first_use.sheet(tool)
        except ToolcribError as error:
            failed = tell_error(error)
            continue
        waits = sheet.standing.status != "reviewed" and (sheet.creator is not None or sheet.beyond)
        if names or everything or waits:
            sheets.append(sheet)
    return sheets, failed


def lines_of(sheet: ReviewSheet) -> Iterator[str]:
    """A tool as it is shown to a person who reviews it; nothing in it steers a terminal."""
    from toolcrib.guard import shown

    tool, standing = sheet.tool, sheet.standing
    told = {"new": "not reviewed yet", "changed": "changed since its last review", "reviewed": "reviewed"}
    yield f"{shown(tool.name)}: {told[standing.status]}"
    if sheet.creator is not None:
        yield f"  made by the agent {shown(sheet.creator)}"
    yield f"  digest: {sheet.digest.digest}"
    for line in sheet.touches:
        yield f"  may touch: {_flat(line)}"
    if standing.last is not None and standing.status == "changed":
        yield f"  last reviewed by {shown(standing.last.by)}: {standing.last.digest}"
        yield f"  other than then: {_flat(', '.join(sheet.changed))}"
    if standing.status != "reviewed":
        yield from (f"  {line}" for line in standing.diff(tool).split("\n") if line)


def _flat(text: str) -> str:
    from toolcrib.guard import shown

    return shown(text).replace("\n", "\\n")


def _agreed(sheet: ReviewSheet) -> bool:
    """The person's answer; `ApprovalRequired` where nobody can be asked."""
    from toolcrib.cli.approval import forget_typed
    from toolcrib.errors import ApprovalRequired

    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise ApprovalRequired(
            "nobody is here to be asked, so nothing was counted as reviewed",
            hint="Run it in a terminal, or say --yes if you have seen what is shown.",
        )
    forget_typed()
    note(printable(f"Count {sheet.tool.name} as reviewed? [y/N] "), nl=False)
    return sys.stdin.readline().strip().lower() in ("y", "yes")
