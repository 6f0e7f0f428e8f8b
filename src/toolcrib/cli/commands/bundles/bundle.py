"""`toolcrib bundle`."""

from __future__ import annotations

import click

from toolcrib.cli.commands.bundles.chosen import (
    ENABLED,
    bundle_argument,
    document_of,
    find_bundle,
    open_bundles,
    open_store,
    store_options,
)
from toolcrib.cli.commands.bundles.tool import command as tool
from toolcrib.cli.commands.bundles.transfer import export_command, import_command
from toolcrib.cli.output import print_change, print_json, print_note, print_result, print_shown
from toolcrib.cli.table import DESCRIPTION, facts, print_listing
from toolcrib.errors import ConflictError, UsageError


@click.group("bundle")
def command() -> None:
    """Manage bundles, groups of tools with one switch, and their tools.

    BUNDLE is the slug of a bundle, its id, or the beginning of the id.
    """


@command.command("create")
@click.argument("slug")
@click.option("--name", default="", help="The name that people see.")
@click.option("--description", default="", help="The purpose of its tools.")
@click.option("--disabled", is_flag=True, help="Switched off from the start.")
@click.option("--id", "wanted", metavar="UUID", help="Its id, a UUID of version 7 (default: a new one).")
@click.option(
    "--replace", is_flag=True, help="Replace the bundle with --id, or restore it after its deletion."
)
@store_options
def create_command(
    slug: str,
    name: str,
    description: str,
    disabled: bool,
    wanted: str | None,
    replace: bool,
    data: str | None,
    as_json: bool,
) -> None:
    """Create the bundle SLUG and print its id.

    With --replace its tools stay as they are.
    """
    from msgspec import UNSET

    from toolcrib.bundles import BundleBody
    from toolcrib.spec.identifier import new_id

    if replace and wanted is None:
        raise UsageError("--replace needs --id", hint="To see the ids: toolcrib bundle list")
    store = open_store(data)
    bundles = store.bundles()
    before = next((one for one in bundles if one.id == wanted), None)
    if not replace and before is not None:
        raise ConflictError(f"there is a bundle {wanted} already", hint="To replace it, add --replace.")
    others = [one.id for one in bundles if one.slug == slug and one.id != wanted]
    body = BundleBody(
        slug=slug,
        display_name=name,
        description=description,
        translations=UNSET if before is None else before.translations,
        is_enabled=not disabled,
    )
    bundle, _ = store.put_bundle(wanted or new_id(), body)
    if others:
        print_note(f"note: other bundles have the slug {slug} too, so name this one by its id")
    print_shown(as_json, document_of(bundle), bundle.id)


@command.command("list")
@click.option("--deleted", is_flag=True, help="Only those that are deleted and can still be restored.")
@store_options
def list_command(deleted: bool, data: str | None, as_json: bool) -> None:
    """List the bundles, the newest first."""
    bundles = open_bundles(data)
    found = [one for one in bundles.store.bundles() if (one.soft_deleted_at is not None) == deleted]
    print_listing(
        as_json,
        "bundles",
        document_of(bundles.bundle_answers(found)),
        ("SLUG", "SOURCE", ENABLED, ("TOOLS", "toolCount"), "ID", DESCRIPTION),
        empty="No bundle is deleted." if deleted else "There are no bundles: toolcrib bundle create SLUG",
    )


@command.command("show")
@bundle_argument
@store_options
def show_command(bundle: str, data: str | None, as_json: bool) -> None:
    """Show a bundle and its tools."""
    store = open_store(data)
    found = find_bundle(store, bundle)
    tools = store.tools(found.id)
    if as_json:
        print_json({**document_of(found), "tools": document_of(tools)})
        return
    enabled = "yes" if found.is_enabled else "no: its tools cannot be changed or called"
    values = {
        "slug": found.slug,
        "name": found.display_name,
        "about": found.description,
        "id": found.id,
        "enabled": f"{enabled} (built in)" if found.is_built_in else enabled,
        "created": found.created_at,
    }
    print_result("\n".join([*facts(values), ""]))
    print_listing(
        False,
        "tools",
        document_of(sorted(tools, key=lambda tool: tool.slug)),
        ("SLUG", "VERSION", "TYPE", ENABLED, DESCRIPTION),
        empty=f"It has no tools. Put one: toolcrib bundle tool put {found.slug} FILE",
    )


@command.command("enable")
@bundle_argument
@store_options
def enable_command(bundle: str, data: str | None, as_json: bool) -> None:
    """Switch a bundle on."""
    _turn(bundle, data, as_json, enabled=True)


@command.command("disable")
@bundle_argument
@store_options
def disable_command(bundle: str, data: str | None, as_json: bool) -> None:
    """Switch a bundle off: its tools cannot be changed or called."""
    _turn(bundle, data, as_json, enabled=False)


def _turn(name: str, data: str | None, as_json: bool, *, enabled: bool) -> None:
    store = open_store(data)
    bundle = store.switch_bundle(find_bundle(store, name).id, enabled=enabled)
    print_change(as_json, document_of(bundle), f"{bundle.slug} is {'enabled' if enabled else 'disabled'}.")


@command.command("delete")
@bundle_argument
@store_options
def delete_command(bundle: str, data: str | None, as_json: bool) -> None:
    """Delete a bundle without tools; it can be restored for 48 hours."""
    store = open_store(data)
    found = find_bundle(store, bundle)
    store.delete_bundle(found.id)
    if as_json:
        print_json({"deleted": found.id})
        return
    print_note(f"{found.slug} is deleted. For 48 hours this restores it:")
    print_note(f"  toolcrib bundle create {found.slug} --id {found.id} --replace")


command.add_command(export_command)
command.add_command(import_command)
command.add_command(tool)
