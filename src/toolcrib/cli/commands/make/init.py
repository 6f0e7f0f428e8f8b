"""`toolcrib init`."""

from __future__ import annotations

import click

from toolcrib.cli.options import json_option
from toolcrib.cli.output import print_json, print_note
from toolcrib.errors import AuditUnavailable, StateUnavailable


@click.command("init")
@click.argument("folder", type=click.Path(file_okay=False), default=".")
@click.option(
    "--examples", "with_examples", is_flag=True, help="Add tools: repo_scan, repo_stats, web_search."
)
@json_option
def command(folder: str, with_examples: bool, as_json: bool) -> None:
    """Create a project in FOLDER (default: here).

    Existing files are not changed.
    """
    from toolcrib.guard import SETTINGS, Ledger
    from toolcrib.project.authoring.starter import make, trust
    from toolcrib.project.root import project_above
    from toolcrib.state import Vault, user_name

    made = make(folder, examples=with_examples)
    try:
        trust(made, user_name())
    except (AuditUnavailable, StateUnavailable) as error:  # The new project works without it.
        print_note(f"warning: the new files could not be marked as trusted: {error.message}")
    if as_json:
        print_json({"root": str(made.root), "created": [str(path) for path in made.created]})
        return
    for path in made.created:
        print_note(f"created {path}")
    if not made.created:
        print_note(f"{made.root} is a project already; nothing was changed.")
    if made.new and (around := project_above(made.root)):
        print_note(f"{around} is a project too: in this folder, commands now use the new one.")
    if not made.new and Ledger(Vault(made.root)).last(SETTINGS) is None:
        print_note("Its tools and settings were there before. To see and accept them: toolcrib trust")
    print_note(
        "Next: `toolcrib list`, then `toolcrib run NAME`, or `toolcrib serve --stdio` for an MCP client."
    )
