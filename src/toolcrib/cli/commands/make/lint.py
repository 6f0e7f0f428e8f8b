"""`toolcrib lint`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from toolcrib.cli.output import (
    diagnostics_in,
    json_option,
    note,
    printable,
    root_option,
    say,
    tell_diagnostics,
    write_json,
)

if TYPE_CHECKING:
    from toolcrib.manifest import Diagnostic

__all__ = ["command"]


@click.command("lint")
@root_option
@json_option
@click.option(
    "--format",
    "form",
    type=click.Choice(["text", "json", "github"]),
    default="text",
    help="github: annotations of a GitHub workflow, on standard output.",
)
@click.argument("files", nargs=-1, type=click.Path())
def command(root: str | None, as_json: bool, form: str, files: tuple[str, ...]) -> int:
    """Check settings, manifests, sources and `.mcp.json` of the project, or only FILES, in any known format.

    Exit 4 on any error; warnings alone exit 0.
    """
    from toolcrib.errors import ConfigError
    from toolcrib.manifest import lint_tree
    from toolcrib.project import find, lint_sources, load_config

    if files:
        return _tell(_files(files), ", ".join(files), form="json" if as_json else form)
    place = find(root)
    found: list[Diagnostic] = []
    further: list[Diagnostic] = []
    try:
        further = lint_sources(load_config(place.config, place.root), place)
    except ConfigError as error:
        found += diagnostics_in(error)
    found += [*lint_tree(place.tools), *further]
    return _tell(found, str(place.home), form="json" if as_json else form)


def _files(files: tuple[str, ...]) -> list[Diagnostic]:
    from pathlib import Path

    from toolcrib.errors import NotFoundError
    from toolcrib.manifest import lint_file, lint_tool

    found: list[Diagnostic] = []
    for name in files:
        path = Path(name)
        if not path.exists() and not path.is_symlink():
            raise NotFoundError(f"there is no file {name}")
        native = path.is_dir() or path.name in ("tool.yml", "tool.yaml")
        found += lint_tool(path) if native else lint_file(name)
    return found


def _tell(found: list[Diagnostic], where: str, *, form: str) -> int:
    from toolcrib.manifest import report

    errors = sum(diagnostic.is_error for diagnostic in found)
    if form == "json":
        write_json(report(found))
    elif form == "github":
        for diagnostic in found:
            say(_annotation(diagnostic))
    else:
        tell_diagnostics(found)
        note(f"{_count(errors, 'error')}, {_count(len(found) - errors, 'warning')} in {printable(where)}")
    return 4 if errors else 0


def _annotation(found: Diagnostic) -> str:
    """A finding as a workflow command of GitHub Actions; what would end or add to it is escaped."""
    import os

    def data(text: str) -> str:
        return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")

    def field(text: str) -> str:
        return data(text).replace(":", "%3A").replace(",", "%2C")

    path = os.path.relpath(found.path) if os.path.isabs(found.path) else found.path  # noqa: PTH117
    place = f"file={field(printable(path))},line={found.line},col={found.column}"
    message = printable(found.message + (f" (hint: {found.hint})" if found.hint else ""))
    return f"::{found.severity} {place},title={field(found.rule)}::{data(message)}"


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" + ("" if number == 1 else "s")
