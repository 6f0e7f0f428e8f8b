"""`toolcrib lock`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from toolcrib.cli.confirm import require_person
from toolcrib.cli.options import open_project, project_options
from toolcrib.cli.output import count, print_diagnostics, print_json, print_note, print_result, printable
from toolcrib.errors import ManifestError, NotFoundError

if TYPE_CHECKING:
    from toolcrib.project import Project
    from toolcrib.project.integrity.lock import Lock


@click.command("lock")
@project_options
@click.option("--check", is_flag=True, help="Change nothing; exit 1 if a tool differs from its pin.")
def command(root: str | None, as_json: bool, check: bool) -> int:
    """Pin all tools, agents and workflows, or check the pins.

    The pins in toolcrib.lock cover the manifest, the files beside it and the program that it runs, the files
    of agents and workflows, and the code inside the project that the settings start. What differs from its
    pin does not run. To unpin all, delete the file.
    """
    from toolcrib.project.integrity.lock import pin_digest, write_lock

    if not check:
        require_person("locks")
    project = open_project(root)
    now = _pins(project)
    if check:
        return _check(project, now, as_json)
    path = project.pins.path
    write_lock(path, now)
    if as_json:
        print_json({"path": str(path), "tools": {name: pin_digest(pin) for name, pin in now.tools.items()}})
    else:
        print_note(f"Pinned {_counted(now)} in {path}.")
    return 0


def _pins(project: Project) -> Lock:
    """Return the pins of everything as it is now. Raises ManifestError if a tool does not load."""
    tools = [*project.catalog.every(stored=False), *project.agents.reviewed(), *project.workflows.reviewed()]
    errors = project.errors
    if errors:
        print_diagnostics(errors)
        raise ManifestError(
            f"nothing was pinned: {count(len(errors), 'error')} in manifests", hint="Fix them: toolcrib lint"
        )
    return project.pins.now(tools)


def _counted(lock: Lock) -> str:
    """Return how much is pinned: `2 tools`, `2 tools, 1 agent`."""
    kinds = [name.partition(":")[0] for name in lock.tools if name.startswith(("agent:", "workflow:"))]
    files = [count(kinds.count(kind), kind) for kind in dict.fromkeys(kinds)]
    return ", ".join([count(len(lock.tools) - len(kinds), "tool"), *files])


def _check(project: Project, now: Lock, as_json: bool) -> int:
    from toolcrib.project.integrity.lock import read_lock

    pinned = read_lock(project.pins.path)
    if pinned is None:
        raise NotFoundError(f"there is no {project.pins.path}", hint="Create it: toolcrib lock")
    drift = pinned.drift(now)
    if as_json:
        print_json({"drift": [{"tool": one.tool, "changed": list(one.changed)} for one in drift]})
    else:
        for one in drift:
            print_result(printable(str(one)))
        if not drift:
            print_note(f"All {_counted(now)} match their pins.")
    return 1 if drift else 0
