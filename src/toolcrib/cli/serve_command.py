"""`toolcrib serve`."""

from __future__ import annotations

import os

import click

from toolcrib.cli.output import note, root_option, tell_lowered

__all__ = ["command"]


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
    from toolcrib.project import Project
    from toolcrib.serve import serve_stdio

    token = os.environ.pop("TOOLCRIB_TOKEN", None)
    async with Project.open(root) as project:
        identity = None if token is None else Tokens(project.vault).verify(token)
        tell_lowered(project)
        for diagnostic in project.diagnostics:
            if diagnostic.is_error:
                note(diagnostic.render())
        if project.servers is not None:
            project.servers.start()
        return await serve_stdio(project, version=__version__, identity=identity)
