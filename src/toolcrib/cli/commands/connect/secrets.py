"""`toolcrib secrets`. It never prints a value."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from toolcrib.cli.options import project_options
from toolcrib.cli.output import print_note
from toolcrib.cli.table import print_listing

if TYPE_CHECKING:
    from toolcrib.project.reports import SecretNeed


@click.group("secrets")
def command() -> None:
    """Show which secrets the tools need and whether they exist.

    No value is ever printed.
    """


@command.command("list")
@project_options
def list_command(root: str | None, as_json: bool) -> None:
    """List every secret that a tool declares, and its state.

    The state is resolved, missing or unreadable. HOSTS are those that HTTP tools may send the secret to.
    """
    _print(_needs(root), as_json)


@command.command("check")
@project_options
def check_command(root: str | None, as_json: bool) -> int:
    """List the secrets; exit 1 if a tool cannot run without one.

    This is so if a required secret is missing, or if a source cannot be read.
    """
    needs = _needs(root)
    _print(needs, as_json)
    return 1 if any(need.blocks for need in needs) else 0


def _needs(root: str | None) -> list[SecretNeed]:
    from toolcrib.project import Project
    from toolcrib.project.reports import secret_needs

    project = Project.open(root)
    return secret_needs(project.tools(), project.secrets)


def _print(needs: list[SecretNeed], as_json: bool) -> None:
    ok = not any(need.blocks for need in needs)
    print_listing(
        as_json,
        {"ok": ok, "secrets": [need.as_dict() for need in needs]},
        ("SECRET", "STATE", "SOURCE", "HOSTS", "NEEDED BY"),
        [need.as_row() for need in needs],
        empty="No tool declares a secret.",
    )
    if as_json:
        return
    for need in needs:
        if need.short:
            print_note(f"{need.name} has fewer than 8 characters: it can be guessed. Choose a longer one.")
        if need.state == "unreadable":
            print_note(f"{need.name}: {need.source}: {need.reason}. {need.hint or ''}".rstrip())
        elif need.blocks:
            print_note(f"{need.name} is missing: {', '.join(need.required_by)} cannot run without it.")
