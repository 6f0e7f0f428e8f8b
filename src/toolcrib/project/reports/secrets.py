"""The secrets that tools declare, and their state. No value is in it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from toolcrib.guard import look_up
from toolcrib.spec import HttpExec, SecretSource, Tool


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


def secret_needs(tools: Iterable[Tool], source: SecretSource) -> list[SecretNeed]:
    """Return every secret that these tools declare, by name. A source may take its time to answer."""
    found: dict[str, SecretNeed] = {}
    for tool in tools:
        for secret in tool.permissions.secrets:
            if secret.name not in found:
                found[secret.name] = SecretNeed(secret.name, *look_up(source, secret.name))
            need = found[secret.name]
            need.tools.append(tool)
            if secret.required:
                need.required_by.append(tool.name)
    return [found[name] for name in sorted(found)]


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
