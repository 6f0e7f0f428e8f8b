"""`toolcrib secrets`: which secrets the tools need, and whether they are there. Never a value."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

import click

from toolcrib.cli.output import json_option, note, printable, root_option, write_json
from toolcrib.spec import HttpExec, Tool

__all__ = ["command"]


@dataclass(slots=True)
class Need:
    """One secret, whichever tools declare it."""

    name: str
    state: str
    source: str
    reason: str
    hint: str | None
    tools: list[Tool] = field(default_factory=list)
    required_by: list[str] = field(default_factory=list)

    @property
    def hosts(self) -> list[str]:
        """Where requests of HTTP tools may take it."""
        return sorted({host for tool in self.tools for host in _hosts(tool)})

    @property
    def lacking(self) -> bool:
        """Whether a tool cannot run for want of it."""
        return self.state == "unreadable" or (self.state == "missing" and bool(self.required_by))

    def as_dict(self) -> dict[str, Any]:
        """For `--json`."""
        return {
            "name": self.name,
            "state": self.state,
            "source": self.source or None,
            "reason": self.reason or None,
            "hint": self.hint,
            "tools": [{"name": t.name, "required": t.name in self.required_by} for t in self.tools],
            "hosts": self.hosts,
        }


@click.group("secrets")
def command() -> None:
    """Show which secrets the tools need and whether they are there, and never a value."""


@command.command("list")
@root_option
@json_option
def list_command(root: str | None, as_json: bool) -> None:
    """List every secret that a tool declares: resolved, missing or unreadable, and where it may go."""
    _show(_needs(root), as_json)


@command.command("check")
@root_option
@json_option
def check_command(root: str | None, as_json: bool) -> int:
    """The same; exit 1 where a tool could not run: a required secret is missing, or a source unreadable."""
    needs = _needs(root)
    _show(needs, as_json)
    return 1 if any(need.lacking for need in needs) else 0


def _needs(root: str | None) -> list[Need]:
    from toolcrib.guard import look_up
    from toolcrib.project import Project

    project = Project.open(root)
    found: dict[str, Need] = {}
    for tool in project.tools():
        for secret in tool.permissions.secrets:
            need = found.get(secret.name)
            if need is None:
                seen = look_up(project.secrets, secret.name)
                need = found[secret.name] = Need(secret.name, *seen)
            need.tools.append(tool)
            if secret.required:
                need.required_by.append(tool.name)
    return [found[name] for name in sorted(found)]


def _show(needs: list[Need], as_json: bool) -> None:
    if as_json:
        lacking = any(need.lacking for need in needs)
        write_json({"ok": not lacking, "secrets": [need.as_dict() for need in needs]})
        return
    if not needs:
        note("No tool declares a secret.")
        return
    from toolcrib.cli.table import print_table

    print_table(
        ("SECRET", "STATE", "SOURCE", "HOSTS", "NEEDED BY"),
        [
            (
                need.name,
                need.state,
                need.source,
                ", ".join(need.hosts) or "-",
                ", ".join(
                    tool.name if tool.name in need.required_by else f"{tool.name} (optional)"
                    for tool in need.tools
                ),
            )
            for need in needs
        ],
    )
    for need in needs:
        if need.state == "unreadable":
            note(printable(f"{need.name}: {need.source}: {need.reason}. {need.hint or ''}".rstrip()))
        elif need.lacking:
            note(printable(f"{need.name} is missing: {', '.join(need.required_by)} cannot run without it."))


def _hosts(tool: Tool) -> list[str]:
    """The hosts that an HTTP tool may send a secret to; other kinds get it as an environment variable."""
    if not isinstance(tool.config, HttpExec):
        return []
    if tool.permissions.network.mode == "hosts":
        return list(tool.permissions.network.allow)
    try:
        host = urlsplit(tool.config.url).netloc.rpartition("@")[2]
    except ValueError:
        host = ""
    return [host or tool.config.url]
