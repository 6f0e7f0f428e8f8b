"""`toolcrib test`."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import click

from toolcrib.cli.output import json_option, note, printable, root_option, say, tell_diagnostics, write_json

if TYPE_CHECKING:
    from toolcrib.manifest import Diagnostic
    from toolcrib.project.examples import Tried

__all__ = ["command"]

_MARKS = {"passed": "ok     ", "failed": "FAILED ", "skipped": "skipped"}


@click.command("test")
@click.argument("names", nargs=-1)
@root_option
@json_option
@click.option("--live", is_flag=True, help="Also run tools that reach the network.")
def command(names: tuple[str, ...], root: str | None, as_json: bool, live: bool) -> int:
    """Run the examples of the tools' manifests and compare with what they say comes out.

    `...` in an example's expected_output stands for anything. Tools that reach the network, need a person's
    approval or a secret that is missing are skipped with the reason. Exit 1 when an example fails; without
    NAMES exit 4 when a manifest does not load.
    """
    from toolcrib.errors import InvalidError
    from toolcrib.project import Project
    from toolcrib.project.examples import try_examples

    async def tried() -> tuple[list[Tried], list[Diagnostic]]:
        async with Project.open(root) as project:
            broken = [] if names else [finding for finding in project.diagnostics if finding.is_error]
            return [one async for one in try_examples(project, names, live=live)], broken

    found, broken = asyncio.run(tried())
    counts = {kind: sum(one.outcome == kind for one in found) for kind in _MARKS}
    if as_json:
        told = [finding.as_dict() for finding in broken]
        write_json({"examples": [one.as_dict() for one in found], **counts, "diagnostics": told})
    else:
        for one in found:
            say(printable(f"{_MARKS[one.outcome]} {one.tool}[{one.number}] {one.description}".rstrip()))
            for line in one.told.splitlines():
                note(printable(f"        {line}"))
        tell_diagnostics(broken)
        note(", ".join(f"{count} {kind}" for kind, count in counts.items()))
    return 1 if counts["failed"] else InvalidError.exit_code if broken else 0
