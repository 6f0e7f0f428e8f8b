"""`toolcrib serve`."""

from __future__ import annotations

import click

from toolcrib.cli.output import note, root_option, tell_lowered

__all__ = ["command"]


@click.command("serve")
@root_option
@click.option("--stdio", is_flag=True, help="Speak MCP on standard input and output.")
def command(root: str | None, stdio: bool) -> None:
    """Serve the project's tools over MCP until the client goes away."""
    if not stdio:
        raise click.UsageError("say how to serve: --stdio")
    from toolcrib.serve import run_stdio

    run_stdio(_serve(root))


async def _serve(root: str | None) -> int:
    from toolcrib import __version__
    from toolcrib.project import Project
    from toolcrib.serve import serve_stdio

    async with Project.open(root) as project:
        tell_lowered(project)
        for diagnostic in project.diagnostics:
            if diagnostic.is_error:
                note(diagnostic.render())
        return await serve_stdio(project, version=__version__)
