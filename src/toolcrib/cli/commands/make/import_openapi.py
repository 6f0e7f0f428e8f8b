"""`toolcrib import`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from toolcrib.cli.output import json_option, note, printable, root_option, say, write_json

if TYPE_CHECKING:
    from toolcrib.manifest.openapi import Imported, NewManifest

__all__ = ["command"]

_MOST = 20
_LARGE = 200_000


@click.command("import")
@click.argument("kind", type=click.Choice(["openapi"]))
@click.argument("source", metavar="FILE|URL")
@root_option
@json_option
@click.option("--list", "only_list", is_flag=True, help="Show what would become of it; write nothing.")
@click.option("--only", multiple=True, metavar="GLOB", help="Only tools of such a name (repeatable).")
@click.option("--prefix", default="", metavar="TEXT", help="Put this before every name.")
@click.option("--server", metavar="URL", help="Call this server instead of the document's own.")
@click.option(
    "--slim",
    type=click.IntRange(min=200),
    metavar="BYTES",
    default=100_000,
    show_default=True,
    help="Make schemas no larger than this; what is left out is told.",
)
@click.option(
    "--secret",
    "secrets",
    multiple=True,
    metavar="SCHEME=NAME",
    help="Name the secret of a security scheme (repeatable).",
)
@click.option("--replace", is_flag=True, help="Renew the manifests of tools that are there already.")
def command(
    kind: str,  # noqa: ARG001 - openapi is the only one yet
    source: str,
    root: str | None,
    as_json: bool,
    only_list: bool,
    only: tuple[str, ...],
    prefix: str,
    server: str | None,
    slim: int,
    secrets: tuple[str, ...],
    replace: bool,
) -> int:
    """Make one tool of each operation of an OpenAPI document (2.0, 3.0, 3.1, 3.2; JSON or YAML).

    The tools are written as manifests into the project's folder of tools. An operation that cannot be had is
    skipped with its reason. Exit 4 if no operation becomes a tool.
    """
    import time

    from toolcrib.errors import NotFoundError
    from toolcrib.manifest.openapi import import_document, write_manifests
    from toolcrib.project import find

    place = None if only_list else find(root)
    names = dict(_pair(text) for text in secrets)
    started = time.perf_counter()
    document = _read(source)
    found = import_document(document, server=server, prefix=prefix, only=only, slim=slim, secrets=names)
    seconds = time.perf_counter() - started
    if only and not found.operations:
        raise NotFoundError(f"no operation of {source} gives a tool named {' or '.join(only)}")
    drafts = _drafts(found, source)
    written = [] if place is None else write_manifests(drafts, place.tools, replace=replace)
    if as_json:
        report = {**found.as_json(), "seconds": round(seconds, 3), "written": [str(path) for path in written]}
        write_json(report)
    else:
        _tell(found, drafts, seconds, only_list=only_list)
    return 0 if found.tools or not found.operations else 4


def _read(source: str) -> Any:
    from toolcrib.manifest.openapi import fetch_document, is_url, open_document

    if not is_url(source):
        return open_document(source)
    import asyncio

    return asyncio.run(fetch_document(source))


def _pair(text: str) -> tuple[str, str]:
    import re

    scheme, equals, name = text.rpartition("=")
    if not equals or not scheme or not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]{0,200}", name):
        raise click.UsageError(f"{text!r} is not SCHEME=NAME with the name of an environment variable")
    return scheme, name


def _drafts(found: Imported, source: str) -> list[NewManifest]:
    """The manifests; a tool that would not be usable is skipped with the reason."""
    from toolcrib.errors import ManifestError
    from toolcrib.manifest.openapi import new_manifest

    made = {one.tool: one for one in found.operations if one.tool}
    drafts: list[NewManifest] = []
    for tool in list(found.tools):
        one = made[tool.name]
        try:
            ready = new_manifest(tool, f"{source}: {one.method} {one.path}")
        except ManifestError as error:
            one.tool, one.reason = None, error.message
            found.tools.remove(tool)
            continue
        one.notes += ready.notes
        drafts.append(ready)
    return drafts


def _tell(found: Imported, drafts: list[NewManifest], seconds: float, *, only_list: bool) -> None:
    """The report for a person: tools on standard output when listed, the account on standard error."""
    if only_list:
        for tool in found.tools:
            say(printable(f"{tool.name}  {tool.description.partition(chr(10))[0]}"))
    notes: dict[str, int] = {}
    for one in found.operations:
        for text in one.notes:
            notes[text] = notes.get(text, 0) + 1
    for reason, count in list(found.reasons().items())[:_MOST]:
        places = [f"{one.method} {one.path}" for one in found.skipped if one.reason == reason]
        note(printable(f"skipped {count}: {reason} ({places[0]}{', …' if count > 1 else ''})"))
    for text, count in sorted(notes.items(), key=lambda item: -item[1])[:_MOST]:
        note(printable(f"note: {text}" + (f" ({count} operations)" if count > 1 else "")))
    for at, what in list(found.losses.items())[:_MOST]:
        note(printable(f"lost: {what} at {at.rpartition('#')[2]}"))
    if len(found.losses) > _MOST:
        note(f"… and {len(found.losses) - _MOST} more losses; --json tells them all")
    for text in found.notes:
        note(printable(f"note: {text}"))
    _sum_up(found, drafts, seconds, only_list=only_list)


def _sum_up(found: Imported, drafts: list[NewManifest], seconds: float, *, only_list: bool) -> None:
    secrets = sorted({secret.name for tool in found.tools for secret in tool.permissions.secrets})
    hosts = sorted({host for tool in found.tools for host in tool.permissions.network.allow})
    if found.tools:
        note(printable(f"hosts: {', '.join(hosts)}; secrets: {', '.join(secrets) or 'none'}"))
    verb = "would become" if only_list else "became"
    counts = f"{_count(len(found.operations), 'operation')} {verb} {_count(len(found.tools), 'tool')}"
    told = f"{counts}, {len(found.skipped)} skipped, {seconds:.2f} s"
    note(printable(f"{found.title} (OpenAPI {found.version}): {told}"))
    size = sum(len(one.text) for one in drafts)
    if drafts and size / len(drafts) > _LARGE:
        note(f"hint: the manifests are {size // 2**20} MiB together; --slim 20000 makes them smaller")


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" + ("" if number == 1 else "s")
