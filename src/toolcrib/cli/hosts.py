"""Configuration files of MCP clients: where each keeps its servers, and the file with one server added."""

from __future__ import annotations

import json
import os
import tomllib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from toolcrib.errors import UsageError
from toolcrib.manifest.dialects.mcp_servers import cannot_change, with_server


class AgentHost(NamedTuple):
    """A program that connects to MCP servers."""

    title: str
    file: Callable[[Path], Path]
    """The file for a project's folder."""
    keys: Callable[[Path], Sequence[str]]
    """The keys in that file that lead to the servers by name."""
    shared: bool
    """True if the file names the servers of every project, so that a name has to say which."""
    next: str
    """The step that makes the program read the file again."""
    address: str | None = "url"
    """The key of a server's address; None if the file names only programs."""
    variable: str = "${TOOLCRIB_TOKEN}"
    """The file's way to write an environment variable; "" if it has a key of its own for a token's."""
    typed: bool = False
    """True if an entry says its transport."""

    def program(self, command: str, arguments: Sequence[str]) -> dict[str, Any]:
        """Return the entry of a server that the host starts."""
        return {**({"type": "stdio"} if self.typed else {}), "command": command, "args": list(arguments)}

    def remote(self, url: str) -> dict[str, Any]:
        """Return the entry of a server over HTTP; its token comes from the host's environment."""
        if self.address is None:
            raise UsageError(
                f"the file of {self.title} names only programs",
                hint=f"Leave out --http, or add {url} as a connector in the settings of {self.title}.",
            )
        token: dict[str, Any] = {"bearer_token_env_var": "TOOLCRIB_TOKEN"}
        if self.variable:
            token = {"headers": {"Authorization": f"Bearer {self.variable}"}}
        return {**({"type": "http"} if self.typed else {}), self.address: url, **token}


_DESKTOP = "claude_desktop_config.json"
HOSTS = {
    "claude-code": AgentHost(
        "Claude Code",
        lambda _: Path.home() / ".claude.json",
        lambda root: ("projects", str(root), "mcpServers"),
        shared=False,
        next="Start a new session of Claude Code in the project's folder.",
        typed=True,
    ),
    "claude-desktop": AgentHost(
        "Claude Desktop",
        lambda _: Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config", "Claude", _DESKTOP),
        lambda _: ("mcpServers",),
        shared=True,
        next="Restart Claude Desktop.",
        address=None,
    ),
    "codex": AgentHost(
        "Codex",
        lambda _: Path(os.environ.get("CODEX_HOME") or Path.home() / ".codex") / "config.toml",
        lambda _: ("mcp_servers",),
        shared=True,
        next="Start a new session of Codex.",
        variable="",
    ),
    "cursor": AgentHost(
        "Cursor",
        lambda root: root / ".cursor/mcp.json",
        lambda _: ("mcpServers",),
        shared=False,
        next="Enable the server under MCP in the settings of Cursor.",
        variable="${env:TOOLCRIB_TOKEN}",
    ),
    "gemini": AgentHost(
        "Gemini CLI",
        lambda root: root / ".gemini/settings.json",
        lambda _: ("mcpServers",),
        shared=False,
        next="Start a new session of Gemini CLI in the project's folder.",
        address="httpUrl",
    ),
    "vscode": AgentHost(
        "Visual Studio Code",
        lambda root: root / ".vscode/mcp.json",
        lambda _: ("servers",),
        shared=False,
        next="Start the server from the file, or by the command `MCP: List Servers`.",
        variable="${env:TOOLCRIB_TOKEN}",
        typed=True,
    ),
}


def add_server(text: str, path: Path, keys: Sequence[str], name: str, server: dict[str, Any]) -> str:
    """Return a configuration file's text with a server added, or changed if the name is there already.

    Everything else in it stays as it is. Raises UsageError for a file that cannot be changed so.
    """
    make = _add_to_toml if path.suffix == ".toml" else with_server
    return make(text, path, keys, name, server)


def _add_to_toml(text: str, path: Path, keys: Sequence[str], name: str, server: dict[str, Any]) -> str:
    head = ".".join((*keys, json.dumps(name)))
    table = "\n".join([f"[{head}]", *(f"{key} = {json.dumps(value)}" for key, value in server.items())])
    try:
        there: Any = tomllib.loads(text)
        for key in (*keys, name):
            there = there.get(key, {})
        if there == server:
            return text
        if there:
            raise ValueError(name)
        gap = "" if not text else "\n" if text.endswith("\n") else "\n\n"
        # `tomllib` only reads: the table is added as text, and must be readable then.
        changed = f"{text}{gap}{table}\n"
        tomllib.loads(changed)
    except (ValueError, AttributeError):
        raise cannot_change(path, table, keys) from None
    return changed
