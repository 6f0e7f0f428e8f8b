"""`toolcrib import openapi`."""

from __future__ import annotations

import asyncio
import re
import time
from collections import Counter
from typing import TYPE_CHECKING, Any

import click

from toolcrib.cli.options import project_options
from toolcrib.cli.output import count, print_json, print_note, print_result, printable
from toolcrib.cli.progress import waiting
from toolcrib.errors import NotFoundError

if TYPE_CHECKING:
    from toolcrib.manifest.openapi import Imported, NewManifest

_MOST = 20
"""Lines of one sort in the report."""
_LARGE = 200_000
"""Bytes of an average manifest from which on the report suggests --slim."""
_SCHEME = re.compile(r"(.+)=([A-Za-z_][A-Za-z0-9_]{0,200})", re.DOTALL)
_BINDING = re.compile(r"(.+)=secret:([A-Za-z_][A-Za-z0-9_]{0,200})", re.DOTALL)


@click.command("openapi")
@click.argument("source", metavar="FILE|URL")
@project_options
@click.option("--list", "only_list", is_flag=True, help="Show the tools; write nothing.")
@click.option("--only", multiple=True, metavar="GLOB", help="Only tools whose name matches. Repeatable.")
@click.option("--prefix", default="", metavar="TEXT", help="Begin every name with this text.")
@click.option("--server", metavar="URL", help="Call this server instead of the document's.")
@click.option(
    "--slim",
    type=click.IntRange(min=200),
    metavar="BYTES",
    default=100_000,
    show_default=True,
    help="Maximum size of a schema; what is left out is reported.",
)
@click.option(
    "--secret",
    "secrets",
    multiple=True,
    metavar="SCHEME=NAME",
    help="Use the secret NAME for a security scheme. Repeatable.",
)
@click.option(
    "--bind",
    "bindings",
    multiple=True,
    metavar="ARG=secret:NAME",
    help="Send the secret NAME as ARG, hidden from the model. Repeatable.",
)
@click.option("--replace", is_flag=True, help="Replace the manifests of existing tools.")
def command(
    source: str,
    root: str | None,
    as_json: bool,
    only_list: bool,
    secrets: tuple[str, ...],
    bindings: tuple[str, ...],
    replace: bool,
    **how: Any,
) -> int:
    """Create tools from the operations of an OpenAPI document.

    Supported are OpenAPI 2.0, 3.0, 3.1 and 3.2 as JSON or YAML. Each operation becomes a manifest in the
    project's folder of tools. Unsupported operations are skipped; the report says why. Exit 4 if no operation
    becomes a tool.
    """
    from toolcrib.manifest.openapi import (
        fetch_document,
        import_document,
        is_url,
        new_manifests,
        open_document,
        write_manifests,
    )
    from toolcrib.project import find
    from toolcrib.project.root import require_inside

    place = None if only_list else find(root)
    names = dict(_pair("--secret", _SCHEME, "SCHEME=NAME with the name of a secret", one) for one in secrets)
    bind = dict(
        _pair("--bind", _BINDING, "ARG=secret:NAME with the name of a secret", one) for one in bindings
    )
    started = time.perf_counter()
    with waiting(f"reading {source}") as say:
        document = asyncio.run(fetch_document(source)) if is_url(source) else open_document(source)
        found = import_document(
            document, secrets=names, bind=bind, progress=lambda number: say(f"({number:,} operations)"), **how
        )
    if how["only"] and not found.operations:
        raise NotFoundError(
            f"no operation of {source} gives a tool named {' or '.join(how['only'])}",
            hint="To see all names: --list in place of --only.",
        )
    written = []
    with waiting("making manifests") as say:
        drafts = new_manifests(found, source, lambda number: say(f"({number:,} of {len(found.tools):,})"))
    if place is not None:
        with waiting("writing manifests") as say:
            tools = require_inside(place.root, place.tools)
            written = write_manifests(
                drafts, tools, lambda number: say(f"({number:,} of {len(drafts):,})"), replace=replace
            )
    seconds = time.perf_counter() - started
    if as_json:
        paths = [str(path) for path in written]
        print_json({**found.as_json(), "seconds": round(seconds, 3), "written": paths})
    else:
        _print(found, drafts, seconds, only_list=only_list)
    return 0 if found.tools else 4


def _pair(option: str, pattern: re.Pattern[str], form: str, text: str) -> tuple[str, str]:
    match = pattern.fullmatch(text)
    if match is None:
        raise click.UsageError(f"{option} {text!r} is not {form}")
    return match[1], match[2]


def _print(found: Imported, drafts: list[NewManifest], seconds: float, *, only_list: bool) -> None:
    """Print the report: with `--list` the tools on standard output, all else on standard error."""
    if only_list:
        for tool in found.tools:
            print_result(printable(f"{tool.name}  {tool.description.partition(chr(10))[0]}"))
    for reason, number in list(found.reasons().items())[:_MOST]:
        places = [f"{one.method} {one.path}" for one in found.skipped if one.reason == reason]
        print_note(f"skipped {number}: {reason} ({places[0]}{', …' if number > 1 else ''})")
    for text, number in Counter(text for one in found.operations for text in one.notes).most_common(_MOST):
        print_note(f"note: {text}" + (f" ({number} operations)" if number > 1 else ""))
    for at, what in list(found.losses.items())[:_MOST]:
        print_note(f"lost: {what} at {at.rpartition('#')[2]}")
    if len(found.losses) > _MOST:
        print_note(f"… and {len(found.losses) - _MOST} more losses; --json lists all")
    for text in found.notes:
        print_note(f"note: {text}")
    _print_summary(found, drafts, seconds, only_list=only_list)


def _print_summary(found: Imported, drafts: list[NewManifest], seconds: float, *, only_list: bool) -> None:
    secrets = sorted({secret.name for tool in found.tools for secret in tool.permissions.secrets})
    hosts = sorted({host for tool in found.tools for host in tool.permissions.network.allow})
    if found.tools:
        print_note(f"hosts: {', '.join(hosts)}; secrets: {', '.join(secrets) or 'none'}")
    verb = "would become" if only_list else "became"
    counts = f"{count(len(found.operations), 'operation')} {verb} {count(len(found.tools), 'tool')}"
    skipped = f"{len(found.skipped)} skipped, {seconds:.2f} s"
    print_note(f"{found.title} (OpenAPI {found.version}): {counts}, {skipped}")
    size = sum(len(one.text) for one in drafts)
    if drafts and size / len(drafts) > _LARGE:
        print_note(f"hint: the manifests have {size // 2**20} MiB; --slim 20000 makes them smaller")
    if drafts and only_list:
        print_note("Nothing was written. To write the manifests, leave out --list.")
    elif drafts:
        missing = f"store {', '.join(secrets)} with `toolcrib secrets set`, then " if secrets else ""
        print_note(f"Next: {missing}run `toolcrib trust` to see the tools and trust them.")
