"""`toolcrib lint`."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from toolcrib.cli.options import project_options
from toolcrib.cli.output import (
    count,
    print_diagnostics,
    print_json,
    print_note,
    print_result,
    printable,
    shown,
)
from toolcrib.errors import NotFoundError, UsageError

_MANY = 10
"""Findings that are shown of one rule."""

if TYPE_CHECKING:
    from toolcrib.manifest import Diagnostic


@click.command("lint")
@project_options
@click.option(
    "--format",
    "output_format",
    type=click.Choice(["text", "json", "github"]),
    default="text",
    help="github prints annotations for a GitHub workflow on standard output.",
)
@click.option(
    "--schema",
    "of",
    type=click.Choice(["manifest", "agent"]),
    help="Check nothing: print the JSON Schema of tool.yml, or of an agent's file, for editors.",
)
@click.argument("files", nargs=-1, type=click.Path())
def command(
    root: str | None, as_json: bool, output_format: str, of: str | None, files: tuple[str, ...]
) -> int:
    """Check settings and manifests for errors.

    Without FILES it checks the project: its settings, manifests, sources and `.mcp.json`. FILES may have any
    supported format. Exit 4 on any error; warnings alone exit 0.
    """
    if of is not None:
        print_json(_schema(of))
        return 0
    from toolcrib.project import find
    from toolcrib.project.authoring.lint import project_findings

    if files:
        found, where = _lint_files(files), ", ".join(files)
    else:
        place = find(root)
        found, where = project_findings(place), str(place.home)
    return _print(found, where, "json" if as_json else output_format)


def _schema(of: str) -> dict[str, Any]:
    if of == "agent":
        from toolcrib.runs.agents import agent_schema

        return agent_schema()
    from toolcrib.manifest import tool_schema

    return tool_schema()


def _lint_files(files: tuple[str, ...]) -> list[Diagnostic]:
    from toolcrib.manifest import lint_file, lint_tool

    found: list[Diagnostic] = []
    for name in files:
        path = Path(name)
        if not path.exists():
            raise NotFoundError(f"there is no file {name}")
        if path.suffix == ".py":
            raise UsageError(f"{name} is not a manifest", hint=f"To check its tools: toolcrib list {name}")
        native = path.is_dir() or path.name in ("tool.yml", "tool.yaml")
        found += lint_tool(path) if native else lint_file(name)
    return found


def _print(found: list[Diagnostic], where: str, output_format: str) -> int:
    from toolcrib.manifest import report

    errors = sum(diagnostic.is_error for diagnostic in found)
    if output_format == "json":
        print_json(report(shown(found)))
    elif output_format == "github":
        for diagnostic in found:
            print_result(_annotation(diagnostic))
    else:
        _print_text(found)
        print_note(f"{count(errors, 'error')}, {count(len(found) - errors, 'warning')} in {where}")
    return 4 if errors else 0


def _print_text(found: list[Diagnostic]) -> None:
    """Print findings as the result; of a rule with many of them the first ones, and where the others are."""
    by_rule: dict[str, list[Diagnostic]] = {}
    for one in found:
        by_rule.setdefault(one.rule, []).append(one)
    few = [one for ones in by_rule.values() for one in ones[: _MANY if len(found) > _MANY else None]]
    print_diagnostics(sorted(few, key=found.index), err=False)
    for rule, ones in by_rule.items():
        if len(found) > _MANY and (rest := len(ones) - _MANY) > 0:
            files = len({one.path for one in ones[_MANY:]})
            print_result(f"{rest} more of {rule} in {count(files, 'file')}; --json lists all")


def _annotation(found: Diagnostic) -> str:
    """Return a finding as a workflow command of GitHub Actions, with escapes as its documentation asks."""

    def data(text: str) -> str:
        return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")

    def field(text: str) -> str:
        return data(text).replace(":", "%3A").replace(",", "%2C")

    path = os.path.relpath(found.path) if os.path.isabs(found.path) else found.path
    place = f"file={field(printable(path))},line={found.line},col={found.column}"
    message = printable(found.message + (f" (hint: {found.hint})" if found.hint else ""))
    return f"::{found.severity} {place},title={field(found.rule)}::{data(message)}"
