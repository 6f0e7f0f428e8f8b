"""`toolcrib bundle export` and `toolcrib bundle import`."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from toolcrib.cli.commands.bundles.chosen import bundle_argument, find_bundle, open_store, store_options
from toolcrib.cli.files import read_input, write_new
from toolcrib.cli.output import count, print_json, print_note
from toolcrib.cli.table import print_table
from toolcrib.errors import UsageError

if TYPE_CHECKING:
    from toolcrib.bundles import Store
    from toolcrib.bundles.archive import Contents, ImportPlan, OnConflict, ToolLoss

_CHOICES: tuple[OnConflict, ...] = ("refuse", "skip", "replace", "new-id")


@click.command("export")
@bundle_argument
@click.argument("file", required=False, type=click.Path(allow_dash=True))
@click.option("--native", metavar="DIR", help="Write a folder of manifests, DIR/NAME/tool.yml, instead.")
@store_options
def export_command(
    bundle: str, file: str | None, native: str | None, data: str | None, as_json: bool
) -> None:
    """Write a bundle as a ZIP file, or as manifests.

    FILE is SLUG.zip by default; - is standard output. A bundle that contains the value of a secret is not
    exported. Existing files are never overwritten.
    """
    from toolcrib.bundles.archive import export_bundle, to_native

    store = open_store(data)
    found = find_bundle(store, bundle)
    losses: Sequence[ToolLoss] = ()
    if native is not None:
        if file is not None:
            raise UsageError("give either a file or --native")
        manifests, losses = to_native(store, found.id)
        paths = write_new({Path(native, name): text for name, text in manifests.items()})
    elif file == "-":
        if as_json:
            raise UsageError("--json and the bundle cannot both be on standard output", hint="Name a file.")
        sys.stdout.buffer.write(export_bundle(store, found.id))
        return
    else:
        paths = write_new({Path(file or f"{found.slug}.zip"): export_bundle(store, found.id)})
    if as_json:
        print_json({"bundle": found.id, "files": paths, "losses": [loss.as_dict() for loss in losses]})
        return
    for path in paths:
        print_note(f"created {path}")
    _print_losses(losses)


def _print_losses(losses: Sequence[ToolLoss]) -> None:
    for one in losses:
        print_note(f"{one.tool}: {one.loss}")


@click.command("import")
@click.argument("source", type=click.Path(allow_dash=True))
@click.option(
    "--on-conflict",
    type=click.Choice(_CHOICES),
    default="refuse",
    show_default=True,
    help="If a tool is here and differs: keep it, replace it, or import all as a new bundle.",
)
@click.option("--enable", is_flag=True, help="Switch it on at once (default: a new bundle is disabled).")
@click.option("--dry-run", is_flag=True, help="Show what each choice of --on-conflict would do.")
@click.option("--into", metavar="BUNDLE", help="For a folder: the bundle of its tools (default: a new one).")
@click.option("--slug", help="For a folder: the slug of the new bundle (default: its name).")
@store_options
def import_command(
    source: str,
    on_conflict: OnConflict,
    enable: bool,
    dry_run: bool,
    into: str | None,
    slug: str | None,
    data: str | None,
    as_json: bool,
) -> None:
    """Import a ZIP file or a folder of tools, all of it or nothing.

    SOURCE is a file of `toolcrib bundle export`, - for standard input, or a folder with NAME/tool.yml.
    """
    from toolcrib.bundles.archive import MAX_ARCHIVE, apply, plan, read_zip

    store = open_store(data)
    losses: Sequence[ToolLoss] = ()
    if source != "-" and Path(source).is_dir():
        contents, losses = _folder(store, Path(source), into, slug)
    elif into is not None or slug is not None:
        raise UsageError("--into and --slug are for a folder: a ZIP file names its bundle")
    else:
        contents = read_zip(read_input(source, MAX_ARCHIVE + 1))
    use = plan if dry_run else apply
    made = use(store, contents, on_conflict, enable=enable)
    if as_json:
        print_json({**made.as_dict(), "dryRun": dry_run, "losses": [loss.as_dict() for loss in losses]})
    else:
        _print_losses(losses)
        _print(made, dry_run=dry_run)


def _folder(
    store: Store, folder: Path, into: str | None, slug: str | None
) -> tuple[Contents, Sequence[ToolLoss]]:
    from toolcrib.bundles import slug_of
    from toolcrib.bundles.archive import ArchivedBundle, read_folder
    from toolcrib.spec.identifier import new_id

    if into is not None:
        bundle = ArchivedBundle.of(find_bundle(store, into))
    else:
        bundle = ArchivedBundle(id=new_id(), slug=slug or slug_of(folder.resolve().name))
    return read_folder(folder, bundle, store.now()[1])


def _print(made: ImportPlan, *, dry_run: bool) -> None:
    if dry_run:
        rows = [("", made.state, made.actions)]
        rows += [(f"{one.slug}@{one.version}", one.state, one.actions) for one in made.tools]
        print_table(
            ("TOOL", "HERE", "REFUSE", "SKIP", "REPLACE", "NEW-ID"),
            [
                (name or f"(bundle {made.slug})", state, *(actions[choice] for choice in _CHOICES))
                for name, state, actions in rows
            ],
        )
        if made.refused is not None:
            print_note(f"With --on-conflict {made.on_conflict} it is refused: {made.refused['message']}")
        print_note("Nothing was imported.")
        return
    if not made.changes:
        print_note(f"{made.slug} ({made.bundle_id}) is the same already; nothing was changed.")
        return
    numbers: dict[str, int] = {}
    for one in made.tools:
        numbers[one.action] = numbers.get(one.action, 0) + 1
    words = {"add": "added", "replace": "replaced", "keep": "kept as here"}
    done = ", ".join(f"{count(number, 'tool')} {words[action]}" for action, number in numbers.items())
    print_note(f"imported {made.slug} ({made.bundle_id}): {done or 'no tools'}")
    if not made.is_enabled:
        print_note(f"It is disabled. To enable it: toolcrib bundle enable {made.bundle_id}")
