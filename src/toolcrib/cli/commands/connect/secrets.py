"""`toolcrib secrets`. It never prints a value."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

import click

from toolcrib.cli.options import project_options
from toolcrib.cli.output import print_note
from toolcrib.cli.table import print_listing
from toolcrib.spec import HttpExec, Tool


@dataclass(slots=True)
class SecretNeed:
    """One secret, and the tools that declare it."""

    name: str
    state: str
    """resolved, missing or unreadable"""
    source: str
    reason: str
    hint: str | None
    short: bool
    tools: list[Tool] = field(default_factory=list)
    required_by: list[str] = field(default_factory=list)

    @property
    def hosts(self) -> list[str]:
        """The hosts that HTTP tools may send it to."""
        return sorted({host for tool in self.tools for host in _hosts(tool)})

    @property
    def blocks(self) -> bool:
        """True if a tool cannot run without it."""
        return self.state == "unreadable" or (self.state == "missing" and bool(self.required_by))

    def as_dict(self) -> dict[str, Any]:
        """Return the entry of `--json`."""
        return {
            "name": self.name,
            "state": self.state,
            "source": self.source or None,
            "reason": self.reason or None,
            "hint": self.hint,
            "short": self.short,
            "tools": [{"name": t.name, "required": t.name in self.required_by} for t in self.tools],
            "hosts": self.hosts,
        }

    def as_row(self) -> tuple[str, ...]:
        """Return the row of the table."""
        names = [tool.name + ("" if tool.name in self.required_by else " (optional)") for tool in self.tools]
        return self.name, self.state, self.source, ", ".join(self.hosts) or "-", ", ".join(names)


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
    from toolcrib.guard import look_up
    from toolcrib.project import Project

    project = Project.open(root)
    found: dict[str, SecretNeed] = {}
    for tool in project.tools():
        for secret in tool.permissions.secrets:
            if secret.name not in found:
                found[secret.name] = SecretNeed(secret.name, *look_up(project.secrets, secret.name))
            need = found[secret.name]
            need.tools.append(tool)
            if secret.required:
                need.required_by.append(tool.name)
    return [found[name] for name in sorted(found)]


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


def _hosts(tool: Tool) -> list[str]:
    """Return the hosts of an HTTP tool. Other kinds get a secret as an environment variable."""
    if not isinstance(tool.config, HttpExec):
        return []
    if tool.permissions.network.mode == "hosts":
        return list(tool.permissions.network.allow)
    try:
        host = urlsplit(tool.config.url).netloc.rpartition("@")[2]
    except ValueError:
        host = ""
    return [host or tool.config.url]
