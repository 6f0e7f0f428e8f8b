"""`toolcrib lint`."""

from __future__ import annotations

import click

from toolcrib.cli.output import (
    diagnostics_in,
    json_option,
    note,
    root_option,
    tell_diagnostics,
    write_json,
)

__all__ = ["command"]


@click.command("lint")
@root_option
@json_option
def command(root: str | None, as_json: bool) -> int:
    """Check the project's settings, every manifest and every source. Exit 4 on any error, not on warnings."""
    from toolcrib.errors import ConfigError
    from toolcrib.manifest import lint_tree, report
    from toolcrib.project import find, lint_sources, load_config

    place = find(root)
    found, further = [], []
    try:
        further = lint_sources(load_config(place.config, place.root), place)
    except ConfigError as error:
        found += diagnostics_in(error)
    found += [*lint_tree(place.tools), *further]
    errors = sum(diagnostic.is_error for diagnostic in found)
    if as_json:
        write_json(report(found))
    else:
        tell_diagnostics(found)
        counts = f"{_count(errors, 'error')}, {_count(len(found) - errors, 'warning')}"
        note(f"{counts} in {place.home}")
    return 4 if errors else 0


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" + ("" if number == 1 else "s")
