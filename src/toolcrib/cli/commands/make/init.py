"""`toolcrib init`."""

from __future__ import annotations

import click

from toolcrib.cli.output import json_option, note, printable, write_json

__all__ = ["command"]


@click.command("init")
@click.argument("folder", type=click.Path(file_okay=False), default=".")
@click.option("--examples", is_flag=True, help="Add example tools: repo_scan, repo_stats, web_search.")
@json_option
def command(folder: str, examples: bool, as_json: bool) -> None:
    """Make FOLDER (default: here) a project. What is there already is left as it is."""
    from toolcrib.errors import StateUnavailable
    from toolcrib.project.starter import make, review, trust
    from toolcrib.state import user_name

    made = make(folder, examples=examples)
    try:
        trust(made, user_name())
        review(made, user_name())
    except StateUnavailable as error:  # what `init` writes works without; the person is told
        note(f"what is new could not be marked as trusted and reviewed: {printable(error.message)}")
    if as_json:
        write_json({"root": str(made.root), "created": [str(path) for path in made.created]})
        return
    for path in made.created:
        note(f"created {path}")
    if not made.created:
        note(f"{made.root} is a project already; nothing was changed")
    note("Next: `toolcrib list`, then `toolcrib run NAME`, or `toolcrib serve --stdio` for an MCP client.")
