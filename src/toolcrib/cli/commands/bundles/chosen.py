"""The bundle or tool that a command names, and the store that has it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from toolcrib.cli.arguments import parse_target
from toolcrib.cli.options import json_option
from toolcrib.cli.output import print_note
from toolcrib.errors import NotFoundError, ProjectNotFound, ToolcribError, ToolNotFound, UsageError
from toolcrib.spec.naming import nearest

if TYPE_CHECKING:
    from toolcrib.bundles import BundleRecord, Store, ToolRecord
    from toolcrib.bundles.listing import Listing
    from toolcrib.project.catalog.bundles import Bundles

F = TypeVar("F", bound=Callable[..., Any])
data_option = click.option(
    "--data",
    type=click.Path(file_okay=False),
    help="The store's folder (default: TOOLCRIB_DATA, or your data folder).",
)
ENABLED = ("ENABLED", "isEnabled")
"""The column of a list."""


def store_options(command: F) -> F:
    """Add `--data` and `--json`, in this order."""
    return data_option(json_option(command))


def open_bundles(data: str | None) -> Bundles:
    """Return the bundles of the project around the working folder; without one, and in `data`, the user's."""
    from toolcrib.project import Project
    from toolcrib.project.catalog.outside import bundles_outside
    from toolcrib.state import data_home

    if data is None:
        with suppress(ProjectNotFound):
            return Project.open().bundles
    return bundles_outside(data_home() if data is None else Path(data).absolute())


def open_store(data: str | None) -> Store:
    """Return their store, to be changed by this command."""
    return open_bundles(data).store.acting("cli")


def document_of(record: object) -> Any:
    """Return the JSON form of a bundle, a tool, or a list of them."""
    from msgspec import to_builtins

    return to_builtins(record)


def find_bundle(store: Store, text: str) -> BundleRecord:
    """Return the bundle with this id, this slug, or an id that begins so.

    Raises UsageError if several match, NotFoundError with the nearest slug, BundleDeleting.
    """
    every = store.bundles()
    matching = _matching([one for one in every if one.soft_deleted_at is None], text)
    if len(matching) > 1:
        names = ", ".join(f"{one.slug} ({one.id})" for one in matching)
        raise UsageError(f"{text!r} may be any of these bundles: {names}", hint="Give an id, or more of it.")
    if matching:
        return matching[0]
    if deleted := _matching(every, text):
        return store.bundle(deleted[0].id)
    close = nearest(text, (one.slug for one in every if one.soft_deleted_at is None))
    more = f" Did you mean {close}?" if close else ""
    raise NotFoundError(
        f"there is no bundle {text!r}.{more}", hint="To see all bundles: toolcrib bundle list"
    )


def _matching(bundles: Iterable[BundleRecord], text: str) -> list[BundleRecord]:
    return [one for one in bundles if one.slug == text or (text and one.id.startswith(text.lower()))]


def find_tool(store: Store, target: str) -> tuple[BundleRecord, list[ToolRecord]]:
    """Return the bundle and the versions of a tool that `[BUNDLE/]NAME[@VERSION]` names, the newest first.

    NAME is its slug, or its name in `toolcrib list`.
    Without a version these are all; without a bundle the tool is looked for in every one. Raises UsageError
    if several bundles have it, ToolNotFound with the nearest slug.
    """
    named, slug, version = parse_target(target)
    if named is None:
        bundles = [one for one in store.bundles() if one.soft_deleted_at is None]
    else:
        bundles = [find_bundle(store, named)]
    listing = listing_of(store)
    # A tool of the project or of a server has a name too, which need be no slug.
    own = (one.slug for one in listing.tools() if one.bundle in store.sources and one.name == slug)
    slug = next(own, slug)
    every = listing.versions(slug, [bundle.id for bundle in bundles])
    matching = [one for one in every if version in (None, one.version)]
    found = [
        (bundle, versions)
        for bundle in bundles
        if (versions := [one for one in matching if one.bundle_id == bundle.id])
    ]
    if len(found) > 1:
        names = ", ".join(f"{bundle.slug}/{slug} ({bundle.id})" for bundle, _ in found)
        raise UsageError(
            f"{target!r} may be any of these tools: {names}", hint="Give BUNDLE/SLUG; BUNDLE may be the id."
        )
    if found:
        return found[0]
    if every:
        raise ToolNotFound(
            f"{slug} has no version {version!r}",
            hint=f"To see all: toolcrib bundle tool versions {target.partition('@')[0]}",
        )
    ids = {bundle.id for bundle in bundles}
    close = nearest(slug, {tool.slug for tool in listing.tools() if tool.bundle in ids})
    where = f"the bundle {bundles[0].slug}" if named is not None else "any bundle"
    raise ToolNotFound(
        f"there is no tool {slug!r} in {where}." + (f" Did you mean {close}?" if close else ""),
        hint="To see the tools of a bundle: toolcrib bundle show BUNDLE",
    )


def listing_of(store: Store) -> Listing:
    """Return the list of all tools: it saves reading every file of a large bundle."""
    from toolcrib.bundles.listing import Listing
    from toolcrib.state import cache_folder

    cache = cache_folder(store.data)
    listing = Listing(store, None if cache is None else cache / "listing")
    listing.refresh()
    listing.save_if_worth()
    return listing


def find_version(store: Store, target: str, *, change: bool) -> tuple[BundleRecord, ToolRecord]:
    """Return the one tool that `[BUNDLE/]SLUG[@VERSION]` names.

    Without a version it is the only one; to read, else the only enabled one, else the newest, and a note says
    which. Raises as `find_tool`, and UsageError if one of several is to be changed.
    """
    bundle, versions = find_tool(store, target)
    if len(versions) == 1:
        return bundle, versions[0]
    names = ", ".join(one.version for one in versions)
    slug = versions[0].slug
    if change:
        raise UsageError(
            f"{slug} has several versions: {names}", hint=f"Write {target}@{versions[0].version}"
        )
    enabled = [one for one in versions if one.is_enabled]
    chosen = enabled[0] if len(enabled) == 1 else versions[0]
    print_note(f"note: this is version {chosen.version} of {slug}; there are {names}")
    return bundle, chosen


def tool_name(bundle: BundleRecord, tool: ToolRecord) -> str:
    """Return the name of a tool as commands take it."""
    return f"{bundle.slug}/{tool.slug}@{tool.version}"


def _bundle_names(ctx: click.Context, begun: str) -> list[str]:
    """Return the slugs that begin like this, or else the ids."""
    bundles = [one for one in open_store(ctx.params.get("data")).bundles() if one.soft_deleted_at is None]
    slugs = sorted({one.slug for one in bundles if one.slug.startswith(begun)})
    return slugs or sorted(one.id for one in bundles if one.id.startswith(begun))


def _complete_bundle(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:  # noqa: ARG001
    try:
        return _bundle_names(ctx, incomplete)
    except ToolcribError:
        return []


def _complete_tool(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:  # noqa: ARG001
    named, slash, begun = incomplete.partition("/")
    try:
        if not slash:
            return [f"{name}/" for name in _bundle_names(ctx, incomplete)]
        store = open_store(ctx.params.get("data"))
        tools = store.tools(find_bundle(store, named).id)
    except ToolcribError:
        return []
    names = {f"{tool.slug}@{tool.version}" if "@" in begun else tool.slug for tool in tools}
    return sorted(f"{named}/{name}" for name in names if name.startswith(begun))


bundle_argument = click.argument("bundle", shell_complete=_complete_bundle)
tool_argument = click.argument("tool", shell_complete=_complete_tool)
