"""`toolcrib bundle tool`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from toolcrib.cli.arguments import parse_target
from toolcrib.cli.commands.bundles.chosen import (
    ENABLED,
    bundle_argument,
    document_of,
    find_bundle,
    find_tool,
    find_version,
    listing_of,
    open_store,
    store_options,
    tool_argument,
    tool_name,
)
from toolcrib.cli.confirm import ask
from toolcrib.cli.files import read_input
from toolcrib.cli.options import yes_option
from toolcrib.cli.output import print_change, print_json, print_result
from toolcrib.cli.table import DESCRIPTION, print_listing
from toolcrib.errors import AuditUnavailable, Cancelled

if TYPE_CHECKING:
    from toolcrib.bundles import BundleRecord, Store

_MANIFEST = (".yml", ".yaml")
_BLANK = b"\xef\xbb\xbf \t\r\n"


@click.group("tool")
def command() -> None:
    """Manage the tools in bundles.

    TOOL is [BUNDLE/]SLUG[@VERSION].
    """


@command.command("put")
@bundle_argument
@click.argument("file", type=click.Path(allow_dash=True))
@click.option("--slug", help="Its slug, if FILE does not name it.")
@click.option("--version", help="Its version, if FILE does not name it.")
@store_options
def put_command(
    bundle: str,
    file: str,
    slug: str | None,
    version: str | None,
    data: str | None,
    as_json: bool,
) -> None:
    """Put a new version of a tool into a bundle.

    FILE is a JSON record, a tool.yml, or - for standard input. A version that exists is never changed.
    """
    from toolcrib.bundles import keep_translations, read_manifest, read_record, require_one_name

    raw = read_input(file)
    store = open_store(data)
    found = find_bundle(store, bundle)
    # What `tool get` prints: a record begins with a brace, or with a comment.
    is_record = raw.lstrip(_BLANK).startswith((b"{", b"/"))
    is_manifest = file.endswith(_MANIFEST) or (file == "-" and not is_record)
    if is_manifest:
        made = read_manifest(raw, file, slug=slug, version=version)
    else:
        made = read_record(raw, found.id, slug=slug, version=version)
    if made.body.type == "native":
        versions = listing_of(store).versions(made.slug, [found.id])
        require_one_name(made.slug, made.body, versions)
        made = made._replace(body=keep_translations(made.body, versions)) if is_manifest else made
    tool = store.put_tool(found.id, *made)
    print_change(as_json, document_of(tool), f"created {tool_name(found, tool)}")


@command.command("get")
@tool_argument
@store_options
def get_command(tool: str, data: str | None, as_json: bool) -> None:
    """Print a tool as `tool put` takes it.

    That is a record in JSON, or the text of a tool.yml. With --json it is the stored record.
    """
    from toolcrib.bundles import record_text
    from toolcrib.bundles.records import require_whole

    _, found = find_version(open_store(data), tool, change=False)
    require_whole(found)
    if as_json:
        print_json(document_of(found))
    else:
        print_result(record_text(found).decode(), nl=False)


@command.command("versions")
@tool_argument
@store_options
def versions_command(tool: str, data: str | None, as_json: bool) -> None:
    """List the versions of a tool, the newest first."""
    bundle, versions = find_tool(open_store(data), tool)
    print_listing(
        as_json,
        "versions",
        document_of(versions),
        ("VERSION", ENABLED, ("CREATED", "createdAt"), ("ID", "toolID"), DESCRIPTION),
        bundle=document_of(bundle),
    )


@command.command("revisions")
@tool_argument
@store_options
def revisions_command(tool: str, data: str | None, as_json: bool) -> None:
    """Show a version of a tool as it was before each change.

    The last 50 changes are kept, for a deleted version too: then TOOL names bundle and version.
    """
    store = open_store(data)
    bundle, slug, version = _named(store, tool)
    found = store.revisions(bundle.id, slug, version)
    print_listing(
        as_json,
        "revisions",
        document_of(found),
        (("CHANGED", "changedAt"), "CHANGE", ("BY", "changedBy"), ("ID", lambda one: one["tool"]["toolID"])),
        empty=f"{slug}@{version} has not changed since it was put.",
        bundle=document_of(bundle),
    )


def _named(store: Store, target: str) -> tuple[BundleRecord, str, str]:
    named, slug, version = parse_target(target)
    if named is not None and version is not None:
        return find_bundle(store, named), slug, version
    bundle, tool = find_version(store, target, change=False)
    return bundle, tool.slug, tool.version


@command.command("history")
@tool_argument
@store_options
def history_command(tool: str, data: str | None, as_json: bool) -> None:
    """Show who changed a tool, the latest change first.

    These are the changes of all its versions. TOOL is BUNDLE/SLUG for a tool that has been deleted.
    """
    store = open_store(data)
    named, slug, _ = parse_target(tool)
    bundle = find_tool(store, tool)[0] if named is None else find_bundle(store, named)
    try:
        found = store.history(bundle.id, slug)
    except OSError as error:
        raise AuditUnavailable(f"the log of the bundles cannot be read: {error.strerror}") from None
    print_listing(
        as_json,
        "changes",
        document_of(found),
        (("TIME", "at"), "EVENT", "VERSION", "BY", ("ID", "toolID")),
        empty=f"No change of {slug} is recorded.",
        bundle=document_of(bundle),
    )


@command.command("enable")
@tool_argument
@store_options
def enable_command(tool: str, data: str | None, as_json: bool) -> None:
    """Switch a tool on."""
    _turn(tool, data, as_json, enabled=True)


@command.command("disable")
@tool_argument
@store_options
def disable_command(tool: str, data: str | None, as_json: bool) -> None:
    """Switch a tool off, so that it cannot be called."""
    _turn(tool, data, as_json, enabled=False)


def _turn(target: str, data: str | None, as_json: bool, *, enabled: bool) -> None:
    store = open_store(data)
    bundle, tool = find_version(store, target, change=True)
    changed = store.switch_tool(bundle.id, tool.slug, tool.version, enabled=enabled)
    print_change(
        as_json, document_of(changed), f"{tool_name(bundle, tool)} is {'enabled' if enabled else 'disabled'}."
    )


@command.command("delete")
@tool_argument
@yes_option
@store_options
def delete_command(tool: str, yes: bool, data: str | None, as_json: bool) -> None:
    """Delete a version of a tool for good."""
    store = open_store(data)
    bundle, found = find_version(store, tool, change=True)
    name = tool_name(bundle, found)
    if not yes and ask(f"Delete {name} for good?") is None:
        raise Cancelled(f"{name} was not deleted")
    store.delete_tool(bundle.id, found.slug, found.version)
    print_change(as_json, {"deleted": document_of(found)}, f"{name} is deleted.")
