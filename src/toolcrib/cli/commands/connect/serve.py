"""`toolcrib serve`."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Iterable
from functools import partial
from typing import TYPE_CHECKING

import click

from toolcrib.cli.options import root_option
from toolcrib.cli.output import print_diagnostics, print_note, print_warnings

if TYPE_CHECKING:
    from toolcrib.manifest import Diagnostic
    from toolcrib.project import Change

_MOST_NAMES = 20


@click.command("serve")
@root_option
@click.option("--stdio", is_flag=True, help="Serve on standard input and output.")
def command(root: str | None, stdio: bool) -> None:
    """Serve the project's tools over MCP.

    Ends when the client disconnects. With a token in TOOLCRIB_TOKEN the client sees and calls what the token
    allows; without one, every tool.
    """
    if not stdio:
        raise click.UsageError("add --stdio: it is the only way to serve")
    from toolcrib.serve import run_stdio

    run_stdio(_serve(root))


async def _serve(root: str | None) -> int:
    from toolcrib import __version__
    from toolcrib.guard import Tokens
    from toolcrib.project import McpCatalog, Project
    from toolcrib.serve import serve_stdio

    token = os.environ.pop("TOOLCRIB_TOKEN", None)
    async with Project.open(root) as project:
        verify = None if token is None else partial(Tokens(project.vault).verify, token)
        identity = None if verify is None else verify()
        print_warnings(project)
        _print_errors(project.errors)
        if project.servers is not None:
            project.servers.start()
        watching = asyncio.create_task(project.watch(_print_change))
        try:
            return await serve_stdio(
                McpCatalog(project),
                version=__version__,
                identity=identity,
                verify=verify,
                approver=project.elicitation,
            )
        finally:
            watching.cancel()


def _print_errors(found: Iterable[Diagnostic]) -> None:
    """Print errors of manifests; lines of files only on a terminal, because an agent may read a log."""
    print_diagnostics(found if sys.stderr.isatty() else [one.without_line() for one in found])


def _print_change(change: Change) -> None:
    for verb, names in (
        ("added", change.added),
        ("changed", change.changed),
        ("removed", change.removed),
        ("fixed", change.fixed),
    ):
        if names:
            shown = ", ".join(names[:_MOST_NAMES]) + (", …" if len(names) > _MOST_NAMES else "")
            print_note(f"tools {verb}: {shown}")
    _print_errors(change.broken)
    for warning in change.warnings:
        print_note(f"warning: {warning}")
