"""`toolcrib review`."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

import click

from toolcrib.cli.caller import given_token
from toolcrib.cli.confirm import Channel, at_terminal, decide, names_of, require_person
from toolcrib.cli.options import open_project, project_options, yes_option
from toolcrib.cli.output import print_error, print_json, print_note, print_result
from toolcrib.errors import ApprovalRequired, ToolcribError, UsageError

if TYPE_CHECKING:
    from toolcrib.project import Project
    from toolcrib.project.control.first_use import ReviewSheet
    from toolcrib.spec import Tool

_LOOK_S = 0.3
_ABOUT = "tools"


@click.command("review")
@click.argument("names", nargs=-1, metavar="[NAME]…")
@project_options
@click.option("--all", "everything", is_flag=True, help="Show every tool, not only those to review.")
@click.option("--watch", is_flag=True, help="Then accept each change that is saved, until Ctrl-C.")
@yes_option
def command(
    names: tuple[str, ...], root: str | None, as_json: bool, everything: bool, watch: bool, yes: bool
) -> int:
    """Review new and changed tools, agents and workflows.

    Shows the digest of each, its permissions and its changes since the last review, then asks once for all of
    them. The answer is stored for them exactly as they are.

    NAME is a tool, `agent:NAME` or `workflow:NAME`. Without one it shows those of the project that need a
    review: they write, reach outside the project, or were created by an agent. With --json and without --yes
    they are only shown.
    """
    if names and everything:
        raise UsageError("give names, or --all")
    if watch and (as_json or everything):
        raise UsageError("--watch shows changes to a person; it has no --json and no --all")
    if yes:
        require_person(_ABOUT)
    project = open_project(root)
    sheets, exit_code = _sheets(project, names, everything=everything)
    if not as_json:
        for number, sheet in enumerate(sheets):
            print_result("\n".join([*([""] if number else []), *sheet.lines()]))
    waiting = [sheet for sheet in sheets if sheet.review.status != "reviewed"]
    codes = {sheet.tool.name: list(sheet.code()) for sheet in waiting} if as_json else {}
    accepted = bool(waiting) and (yes or not as_json)
    if accepted:
        channel = decide(f"Mark {names_of(waiting)} as reviewed?", _ABOUT, yes=yes)
        accepted = channel is not None
        _accept(project, waiting, channel)
    if as_json:
        shown = [
            {
                **one.as_dict(),
                "code": codes.get(one.tool.name, []),
                "accepted": accepted and one.tool.name in codes,
            }
            for one in sheets
        ]
        print_json({"tools": shown})
    elif not sheets and not exit_code:
        print_note("No tool of the project needs a review.")
    if watch and (accepted or not waiting):
        return _watch(root, names)
    return exit_code


def _accept(project: Project, sheets: Sequence[ReviewSheet], channel: Channel | None) -> None:
    """Record these reviews, which a person has accepted in this way; None: did not accept."""
    from toolcrib.state import user_name

    for sheet in sheets if channel is not None else ():
        project.review(sheet.tool, user_name(), sheet.digest, channel=channel or "")
        print_note(f"reviewed: {sheet.tool.name}")


def ask_for_reviews(project: Project, names: Sequence[str]) -> None:
    """Ask at the terminal, once, for the reviews that the examples of these tools, or of all, wait for."""
    _ask(project, lambda tool: bool(tool.examples) and (not names or tool.name in names), "run the examples")


def ask_for_files(project: Project) -> None:
    """Ask at the terminal, once, for the reviews that agents and workflows wait for."""
    _ask(project, lambda tool: tool.kind in ("agent", "workflow"), "continue")


def _ask(project: Project, which: Callable[[Tool], bool], then: str) -> None:
    if given_token() is not None or not at_terminal() or not project.acceptance.given:
        return
    sheets = [sheet for sheet in project.first_use.sheets()[0] if sheet.waits and which(sheet.tool)]
    for sheet in sheets:
        print_note("\n".join(sheet.lines()))
    if sheets:
        question = f"Mark {names_of(sheets)} as reviewed, and {then}?"
        _accept(project, sheets, decide(question, _ABOUT))


def _watch(root: str | None, names: Sequence[str]) -> int:
    """Accept what the person saves while this runs. Tools that agents make meanwhile are left to a review."""
    require_person(_ABOUT)
    if not at_terminal():
        raise ApprovalRequired("there is no terminal to watch at", hint="Run the command at a terminal.")
    print_note("Changes that are saved now count as reviewed. Stop with Ctrl-C.")
    try:
        while True:
            time.sleep(_LOOK_S)
            project = open_project(root)
            with suppress(ToolcribError):  # A file is being written; it is looked at again.
                sheets, _ = _sheets(project, names, everything=False, report=False)
                for sheet in sheets:
                    if sheet.waits and sheet.creator is None:
                        print_note("\n".join(sheet.lines()))
                        _accept(project, [sheet], "terminal")
            asyncio.run(project.aclose())
    except KeyboardInterrupt:
        print_note("Changes need a review again.")
        return 0


def _sheets(
    project: Project, names: Sequence[str], *, everything: bool, report: bool = True
) -> tuple[list[ReviewSheet], int]:
    """Return the tools to show, and the exit code of those that cannot be shown."""
    if names:
        files = [*project.agents.reviewed(), *project.workflows.reviewed()]
        known = {one.name: one for one in files}
        return [project.first_use.sheet(known.get(name) or project.get(name)) for name in names], 0
    sheets, errors = project.first_use.sheets()
    codes = [print_error(error) for error in errors] if report else []
    return [sheet for sheet in sheets if everything or sheet.waits], max(codes, default=0)
