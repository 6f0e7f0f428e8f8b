"""`toolcrib serve`."""

from __future__ import annotations

import asyncio
import os
from typing import TYPE_CHECKING

import click

from toolcrib.cli.output import note, printable, root_option, tell_diagnostics, tell_lowered

if TYPE_CHECKING:
    from toolcrib.project import Change

__all__ = ["command"]

_MOST_NAMES = 20


@click.command("serve")
@root_option
@click.option("--stdio", is_flag=True, help="Speak MCP on standard input and output.")
def command(root: str | None, stdio: bool) -> None:
    """Serve the project's tools over MCP until the client goes away.

    With a token in TOOLCRIB_TOKEN the client sees and calls what the token allows; without one, all of it.
    """
    if not stdio:
        raise click.UsageError("say how to serve: --stdio")
    from toolcrib.serve import run_stdio

    run_stdio(_serve(root))


async def _serve(root: str | None) -> int:
    from toolcrib import __version__
    from toolcrib.guard import Tokens
    from toolcrib.project import McpCatalog, Project
    from toolcrib.serve import serve_stdio

    token = os.environ.pop("TOOLCRIB_TOKEN", None)
    async with Project.open(root) as project:
        identity = None if token is None else Tokens(project.vault).verify(token)
        tell_lowered(project)
        for diagnostic in project.errors:
            note(diagnostic.render())
        if project.servers is not None:
            project.servers.start()
        watching = asyncio.create_task(project.watch(_tell))
        try:
            return await serve_stdio(
                McpCatalog(project), version=__version__, identity=identity, approver=project.elicitation
            )
        finally:
            watching.cancel()


def _tell(change: Change) -> None:
    """Say on standard error what has changed on disk."""
    for verb, names in (
        ("added", change.added),
        ("changed", change.changed),
        ("removed", change.removed),
        ("mended", change.mended),
    ):
        if names:
            shown = ", ".join(names[:_MOST_NAMES]) + (", …" if len(names) > _MOST_NAMES else "")
            note(printable(f"tools {verb}: {shown}"))
    tell_diagnostics(change.broken)
    for warning in change.warnings:
        note(printable(f"warning: {warning}"))
