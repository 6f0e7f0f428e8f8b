"""`toolcrib search`."""

from __future__ import annotations

from typing import Any

import click

from toolcrib.cli.commands.bundles.chosen import data_option, document_of
from toolcrib.cli.commands.look.filters import filter_options, open_catalogue, wish_of
from toolcrib.cli.options import FileCommand, project_options
from toolcrib.cli.output import print_note
from toolcrib.cli.table import DESCRIPTION, print_listing


@click.command("search", cls=FileCommand)
@click.argument("query", nargs=-1, required=True)
@project_options
@filter_options
@data_option
@click.option(
    "--limit", type=click.IntRange(1, 256), default=25, show_default=True, help="Show at most this many."
)
@click.option("--page", metavar="TOKEN", help="Show the next page: the `next` of the page before.")
def command(
    query: tuple[str, ...],
    root: str | None,
    as_json: bool,
    data: str | None,
    limit: int,
    page: str | None,
    **filters: Any,
) -> int:
    """Find tools by name, tags, description and argument names.

    These are all tools of the project and of your bundles; outside of a project those of bundles. Exit 3 if
    no tool matches.
    """
    project, catalogue = open_catalogue(root, data)
    wish, words = wish_of(catalogue, project, **filters), " ".join(query)
    found = catalogue.search(words, wish, limit=limit, page=page)
    counts = catalogue.facets(words, wish)._asdict() if as_json else {}
    counts.pop("total", None)
    match = "MATCH", lambda hit: f"{hit['match']}, {hit['field']}"
    every = "list" if project is not None else "bundle list"
    print_listing(
        as_json,
        "hits",
        document_of(found.tools),
        ("NAME", "KIND", match, DESCRIPTION),
        empty=f"No tool matches. To see all tools: toolcrib {every}",
        total=found.total,
        facets=counts,
        next=found.next,
    )
    if found.next is not None and not as_json:
        print_note(f"{found.total} tools match. The next page: --page {found.next}")
    return 0 if found.tools else 3
