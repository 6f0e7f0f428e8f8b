"""The catalogue that a command reads, and the options that choose tools of it."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from toolcrib.cli.caller import caller_of, given_token
from toolcrib.cli.commands.bundles.chosen import find_bundle
from toolcrib.cli.options import open_project
from toolcrib.errors import InvalidToken, ProjectNotFound

if TYPE_CHECKING:
    from toolcrib.project import Project
    from toolcrib.project.catalog.bundles import Bundles, Wish

F = TypeVar("F", bound=Callable[..., Any])
_OPTIONS = (
    click.option("--tag", "tags", multiple=True, help="Only tools with this tag. Repeatable: any of them."),
    click.option("--kind", "kinds", multiple=True, help="Only tools of this kind. Repeatable: any of them."),
    click.option(
        "--source",
        "sources",
        multiple=True,
        type=click.Choice(["project", "file", "server", "builtin", "user"]),
        help="Only tools of this source. Repeatable: any of them.",
    ),
    click.option("--bundle", "bundles", multiple=True, help="Only tools of this bundle. Repeatable."),
    click.option("--disabled", is_flag=True, help="Disabled tools too."),
)


def filter_options(command: F) -> F:
    """Add the options that `wish_of` takes."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def wish_of(
    catalogue: Bundles, project: Project | None, *, bundles: Sequence[str], disabled: bool, **filters: Any
) -> Wish:
    """Return the conditions that the options state, for the caller of this command."""
    from toolcrib.project.catalog.bundles import Wish

    caller, identity = ("cli", None) if project is None else caller_of(project)
    ids = [find_bundle(catalogue.store, name).id for name in bundles]
    return Wish(
        bundles=ids,
        include_disabled=disabled,
        caller=caller,
        identity=identity,
        models=identity is not None,
        **filters,
    )


def open_catalogue(root: str | None, data: str | None) -> tuple[Project | None, Bundles]:
    """Return the project and its catalogue; outside of a project, if none is named, the user's records."""
    from toolcrib.project.catalog.outside import bundles_outside
    from toolcrib.state import data_home

    if given_token() is not None and data is not None:
        raise InvalidToken("--data is for this machine's own user, not for a token")
    folder = None if data is None else Path(data).absolute()
    try:
        project = open_project(root, data=folder)
    except ProjectNotFound:
        if root is not None or os.environ.get("TOOLCRIB_ROOT") or given_token() is not None:
            raise
        return None, bundles_outside(folder or data_home())
    return project, project.bundles
