"""`toolcrib search`."""

from __future__ import annotations

import click

from toolcrib.cli.caller import caller_of
from toolcrib.cli.options import project_options
from toolcrib.cli.output import print_note
from toolcrib.cli.table import brief, print_listing


@click.command("search")
@click.argument("query", nargs=-1, required=True)
@project_options
@click.option("--tag", "tags", multiple=True, help="Only tools with this tag, or one of several. Repeatable.")
@click.option(
    "--kind", "kinds", multiple=True, help="Only tools of this kind, or one of several. Repeatable."
)
@click.option(
    "--limit", type=click.IntRange(1, 256), default=25, show_default=True, help="Show at most so many."
)
@click.option("--page", metavar="TOKEN", help="Show the next page: the `next` of the page before.")
def command(
    query: tuple[str, ...],
    root: str | None,
    as_json: bool,
    tags: tuple[str, ...],
    kinds: tuple[str, ...],
    limit: int,
    page: str | None,
) -> int:
    """Find tools by name, tags, description and argument names.

    Exit 3 if no tool matches.
    """
    from toolcrib.project import Project

    project = Project.open(root)
    caller, identity = caller_of(project)
    found = project.search(
        " ".join(query), tags=tags, kinds=kinds, limit=limit, page=page, caller=caller, identity=identity
    )
    print_listing(
        as_json,
        found,
        ("NAME", "KIND", "MATCH", "DESCRIPTION"),
        [
            (hit["name"], hit["kind"], f"{hit['match']}, {hit['field']}", brief(hit["description"]))
            for hit in found["hits"]
        ],
        empty="No tool matches. To see all tools: toolcrib list",
    )
    if found["next"] is not None and not as_json:
        print_note(f"{found['total']} tools match. The next page: --page {found['next']}")
    return 0 if found["hits"] else 3
