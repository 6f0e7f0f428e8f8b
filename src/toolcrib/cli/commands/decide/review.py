"""`toolcrib review`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import click

from toolcrib.cli.confirm import confirm
from toolcrib.cli.options import project_options, yes_option
from toolcrib.cli.output import print_error, print_json, print_note, print_result
from toolcrib.errors import ToolcribError, UsageError

if TYPE_CHECKING:
    from toolcrib.project import Project
    from toolcrib.project.control.first_use import ReviewSheet

__all__ = ["command", "lines_of"]

_STATUS = {"new": "not reviewed yet", "changed": "changed since its last review", "reviewed": "reviewed"}


@click.command("review")
@click.argument("names", nargs=-1, metavar="[NAME]…")
@project_options
@click.option("--all", "everything", is_flag=True, help="Show every tool, not only those to review.")
@yes_option
def command(names: tuple[str, ...], root: str | None, as_json: bool, everything: bool, yes: bool) -> int:
    """Review tools before their first use.

    Shows the digest of a tool, its permissions and its changes since the last review, then asks. The answer
    is stored for the tool exactly as it is.

    Without a NAME it shows the tools that need a review: those that reach outside the project, and those that
    an agent created. With --json and without --yes the tools are only shown.
    """
    from toolcrib.project import Project
    from toolcrib.state import user_name

    if names and everything:
        raise UsageError("give names, or --all")
    project = Project.open(root)
    sheets, exit_code = _sheets(project, names, everything=everything)
    accepted: list[ReviewSheet] = []
    for number, sheet in enumerate(sheets):
        if not as_json:
            print_result("\n".join([*([""] if number else []), *lines_of(sheet)]))
        if sheet.standing.status == "reviewed":
            continue
        if yes or (not as_json and confirm(f"Mark {sheet.tool.name} as reviewed?")):
            project.review(sheet.tool, user_name(), sheet.digest)
            accepted.append(sheet)
            print_note(f"reviewed: {sheet.tool.name}")
    if as_json:
        print_json({"tools": [{**sheet.as_dict(), "accepted": sheet in accepted} for sheet in sheets]})
    elif not sheets and not exit_code:
        print_note("No tool needs a review.")
    return exit_code


def _sheets(project: Project, names: Sequence[str], *, everything: bool) -> tuple[list[ReviewSheet], int]:
    """Return the tools to show, and the exit code of those that cannot be shown."""
    sheets, exit_code = [], 0
    for tool in [project.get(name) for name in names] if names else project.tools():
        if tool.source is None:
            continue
        try:
            sheet = project.first_use.sheet(tool)
        except ToolcribError as error:
            exit_code = print_error(error)
            continue
        needed = sheet.standing.status != "reviewed" and (sheet.creator is not None or sheet.beyond)
        if names or everything or needed:
            sheets.append(sheet)
    return sheets, exit_code


def lines_of(sheet: ReviewSheet) -> Iterator[str]:
    """Yield the lines about a tool for the person who reviews it, without control characters."""
    from toolcrib.guard import shown

    def flat(text: str) -> str:
        return shown(text).replace("\n", "\\n")

    tool, review = sheet.tool, sheet.standing
    yield f"{shown(tool.name)}: {_STATUS[review.status]}"
    if sheet.creator is not None:
        yield f"  created by the agent {shown(sheet.creator)}"
    yield f"  digest: {sheet.digest.digest}"
    for line in sheet.touches:
        yield f"  may touch: {flat(line)}"
    if review.last is not None and review.status == "changed":
        yield f"  last reviewed by {shown(review.last.by)}: {review.last.digest}"
        yield f"  changed since then: {flat(', '.join(sheet.changed))}"
    if review.status != "reviewed":
        yield from (f"  {line}" for line in review.diff(tool).split("\n") if line)
