"""`toolcrib lock`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from toolcrib.cli.output import json_option, note, printable, root_option, say, tell_diagnostics, write_json

if TYPE_CHECKING:
    from toolcrib.project import Project
    from toolcrib.project.lock import Lock

__all__ = ["command"]


@click.command("lock")
@root_option
@json_option
@click.option("--check", is_flag=True, help="Change nothing; exit 1 where a tool is not as it is pinned.")
def command(root: str | None, as_json: bool, check: bool) -> int:
    """Pin every tool as it is now in toolcrib.lock: its manifest, the files beside it, what it runs.

    While there is a lock, a tool that is not as it is pinned does not run. Remove the file to pin nothing.
    """
    from toolcrib.project import Project
    from toolcrib.project.lock import write_lock

    project = Project.open(root)
    now = _now(project)
    if check:
        return _check(project, now, as_json)
    write_lock(project.pins.path, now)
    if as_json:
        write_json(
            {"path": str(project.pins.path), "tools": {name: p.digest for name, p in now.tools.items()}}
        )
    else:
        note(printable(f"{len(now.tools)} tools are pinned in {project.pins.path}"))
    return 0


def _now(project: Project) -> Lock:
    """The pins of all tools as they are now. Raises ManifestError where one of them does not load."""
    from toolcrib.errors import ManifestError

    tools = project.tools()
    wrong = project.errors
    if wrong:
        tell_diagnostics(wrong)
        raise ManifestError(
            f"{len(wrong)} errors in manifests, so not every tool can be pinned",
            hint="Mend them: toolcrib lint",
        )
    return project.pins.now(tools)


def _check(project: Project, now: Lock, as_json: bool) -> int:
    from toolcrib.errors import NotFoundError
    from toolcrib.project.lock import read_lock

    pinned = read_lock(project.pins.path)
    if pinned is None:
        raise NotFoundError(f"there is no {project.pins.path}", hint="Write it: toolcrib lock")
    drift = pinned.drift(now.tools, now.bundles)
    if as_json:
        write_json({"drift": [{"tool": one.tool, "changed": list(one.changed)} for one in drift]})
    else:
        for one in drift:
            say(printable(str(one)))
        if not drift:
            note(f"{len(now.tools)} tools are as they are pinned")
    return 1 if drift else 0
