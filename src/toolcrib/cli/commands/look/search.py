"""`toolcrib search`."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from toolcrib.cli.caller import caller_of, given_token
from toolcrib.cli.commands.bundles.chosen import data_option, find_bundle
from toolcrib.cli.options import FileCommand, open_project, project_options
from toolcrib.cli.output import print_note
from toolcrib.cli.table import DESCRIPTION, print_listing
from toolcrib.errors import InvalidToken, ProjectNotFound

if TYPE_CHECKING:
    from toolcrib.project import Project


@click.command("search", cls=FileCommand)
@click.argument("query", nargs=-1, required=True)
@project_options
@click.option("--tag", "tags", multiple=True, help="Only tools with this tag, or one of several. Repeatable.")
@click.option(
    "--kind", "kinds", multiple=True, help="Only tools of this kind, or one of several. Repeatable."
)
@click.option("--bundle", "bundles", multiple=True, help="Only tools of this bundle. Repeatable.")
@click.option("--disabled", is_flag=True, help="Only tools of bundles, disabled ones too.")
@data_option
@click.option(
    "--limit", type=click.IntRange(1, 256), default=25, show_default=True, help="Show at most this many."
)
@click.option("--page", metavar="TOKEN", help="Show the next page: the `next` of the page before.")
def command(
    query: tuple[str, ...],
    root: str | None,
    as_json: bool,
    bundles: tuple[str, ...],
    disabled: bool,
    data: str | None,
    **filters: Any,
) -> int:
    """Find tools by name, tags, description and argument names.

    These are the tools of the project and of your bundles; outside of a project those of bundles. Exit 3 if
    no tool matches.
    """
    # Bundles are this user's, not the project's, and a token is for one project.
    if given_token() is not None and (bundles or disabled or data):
        raise InvalidToken("--bundle, --disabled and --data are for this machine's own user, not for a token")
    folder = None if data is None else Path(data).absolute()
    project = _project(root, folder)
    words = " ".join(query)
    if project is None or bundles or disabled:
        found = _of_bundles(project, folder, words, bundles, include_disabled=disabled, **filters)
    else:
        caller, identity = caller_of(project)
        found = project.search(words, facets=as_json, caller=caller, identity=identity, **filters)
    match = "MATCH", lambda hit: f"{hit['match']}, {hit['field']}"
    every = "list" if project is not None else "bundle list"
    hits = found.pop("hits")
    print_listing(
        as_json,
        "hits",
        hits,
        ("NAME", "KIND", match, DESCRIPTION),
        empty=f"No tool matches. To see all tools: toolcrib {every}",
        **found,
    )
    if found["next"] is not None and not as_json:
        print_note(f"{found['total']} tools match. The next page: --page {found['next']}")
    return 0 if hits else 3


def _project(root: str | None, data: Path | None) -> Project | None:
    """Return the project; None if there is none here and none was named."""
    try:
        return open_project(root, data=data)
    except ProjectNotFound:
        if root is not None or os.environ.get("TOOLCRIB_ROOT") or given_token() is not None:
            raise
        return None


def _of_bundles(
    project: Project | None, data: Path | None, query: str, bundles: tuple[str, ...], **filters: Any
) -> dict[str, Any]:
    """Return the tools of bundles that match, in the form of `Project.search`, with their switches."""
    from toolcrib.project.catalog.bundles import Bundles
    from toolcrib.state import data_home

    of = Bundles.without_project(data or data_home()) if project is None else project.bundles
    ids = [find_bundle(of.store, name).id for name in bundles]
    found = of.search(query, bundles=ids, **filters)
    hits = []
    for hit in found.hits:
        name, description = of.index.described(hit.tool)
        hits.append(
            {
                "name": name,
                "kind": hit.tool.kind,
                "tags": list(hit.tool.tags),
                "match": hit.match,
                "field": hit.field,
                "description": description,
                "enabled": of.stored.listing.is_on(hit.tool),
            }
        )
    facets = {"tags": found.tags, "kinds": found.kinds}
    return {"hits": hits, "total": found.total, "facets": facets, "next": found.next}
