"""`toolcrib` alone: where one stands, and the next command."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from toolcrib.cli.options import open_project
from toolcrib.cli.output import count, cut_names, one_line, print_note, print_result
from toolcrib.errors import ProjectNotFound

if TYPE_CHECKING:
    from toolcrib.project import Project

_MOST = 500


def show_here(root: str | None) -> None:
    """Print what the project has and what waits in it, and the command to type next."""
    try:
        project = open_project(root, load=False)
    except ProjectNotFound:
        print_result(f"There is no project in {Path.cwd()} or above it.")
        steps = ["toolcrib init --examples"]
    else:
        steps = list(_steps(project))
    print_result(f"Next: {steps[0]}")
    print_note("All commands: toolcrib --help")


def _steps(project: Project) -> Iterator[str]:
    """Print a line for each thing that waits, and yield the commands for them, the first one first."""
    place = project.place
    names = [name for name, _ in project.described()]
    tools = "" if place.file is not None else f": {count(len(names), 'tool')}"
    print_result(f"{one_line(str(place.path))}{tools}")
    from toolcrib.project.reports import waiting_in

    if waiting := waiting_in(project):
        print_result(f"{len(waiting)} wait for trust: {cut_names(waiting)}")
        yield place.trust
    if files := {error.path for error in project.errors}:
        print_result(f"{count(len(files), 'file')} with errors")
        yield "toolcrib lint"
    if project.has_state:  # To look must not make a database.
        yield from _calls(project)
    if place.file is not None:
        yield f"toolcrib list {one_line(place.target)}"
    elif not names:
        yield "toolcrib new NAME"
    else:
        yield f"toolcrib run {one_line(names[0])}, or for an agent host: toolcrib connect HOST"


def _calls(project: Project) -> Iterator[str]:
    place = project.place
    if asked := len(project.approval_service.list("pending", _MOST)):
        print_result(f"{count(asked, 'call')} {'waits' if asked == 1 else 'wait'} for approval")
        yield f"toolcrib approvals list{place.option}"
    if unserved := project.calls.status()["unserved"]:
        print_result(f"No worker runs the calls of {cut_names(unserved)}")
        yield f"toolcrib worker{place.option}"
