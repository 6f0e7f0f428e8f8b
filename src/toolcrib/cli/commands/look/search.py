"""`toolcrib search`."""

from __future__ import annotations

import click

from toolcrib.cli.output import json_option, note, root_option, write_json

__all__ = ["command"]


@click.command("search")
@click.argument("query", nargs=-1, required=True)
@root_option
@json_option
@click.option("--tag", "tags", multiple=True, help="Only tools with this tag (repeatable: any of them).")
@click.option("--kind", "kinds", multiple=True, help="Only tools of this kind (repeatable: any of them).")
@click.option("--limit", type=click.IntRange(1, 256), default=25, show_default=True, help="Hits at most.")
@click.option("--page", metavar="TOKEN", help="Go on behind an earlier page: its `next`.")
def command(
    query: tuple[str, ...],
    root: str | None,
    as_json: bool,
    tags: tuple[str, ...],
    kinds: tuple[str, ...],
    limit: int,
    page: str | None,
) -> int:
    """Find tools by name, tags, description and argument names; exit 3 where there is none."""
    from toolcrib.cli.table import brief, print_table
    from toolcrib.project import Project

    project = Project.open(root)
    found = project.search(" ".join(query), tags=tags, kinds=kinds, limit=limit, page=page)
    if as_json:
        write_json(found)
    elif found["hits"]:
        rows = [
            (hit["name"], hit["kind"], f"{hit['match']}, {hit['field']}", brief(hit["description"]))
            for hit in found["hits"]
        ]
        print_table(("NAME", "KIND", "MATCH", "DESCRIPTION"), rows)
        if found["next"] is not None:
            note(f"{found['total']} in all; the next page: --page {found['next']}")
    else:
        note("no tool fits; `toolcrib list` shows all")
    return 0 if found["hits"] else 3
