"""Configuration files of MCP clients: where each keeps its servers, and the file with one server added."""

from __future__ import annotations

import json
import os
import re
import tomllib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from toolcrib.errors import NotFoundError, UsageError
from toolcrib.spec.naming import suggestion


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
    if path.suffix == ".toml":
        return _add_to_toml(text, path, keys, name, server)
    try:
        document, servers = _parsed(text, keys)
        servers[name] = server
    except (ValueError, AttributeError, TypeError):
        raise _cannot_change(path, json.dumps({name: server}, indent=2), keys) from None
    return _as_json(document, text)


def without_server(text: str, path: Path, keys: Sequence[str], name: str) -> str:
    """Return a JSON file's text without a server. Raises UsageError as `add_server`, and NotFoundError."""
    try:
        document, servers = _parsed(text, keys)
        names = list(servers)
        servers.pop(name, None)
    except (ValueError, AttributeError, TypeError):
        raise UsageError(
            f"{path} cannot be changed without losing something in it: comments, or another form",
            hint=f"Remove {name} from it yourself.",
        ) from None
    if name not in names:
        raise NotFoundError(f"{path} has no server {name!r}", hint=suggestion(name, names, ""))
    return _as_json(document, text)


def _parsed(text: str, keys: Sequence[str]) -> tuple[Any, Any]:
    """Return a JSON document, and the servers in it, below these keys."""
    # Written anew, a file would lose comments and keys that are there twice: one with either is refused.
    document = servers = json.loads(text, object_pairs_hook=_without_duplicates) if text.strip() else {}
    for key in keys:
        servers = servers.setdefault(key, {})
    return document, servers


def _as_json(document: Any, like: str) -> str:
    indent = re.search(r"\n([ \t]+)\S", like)
    return json.dumps(document, indent=indent[1] if indent else 2, ensure_ascii=False) + "\n"


def _without_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a key twice")
    return found


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
        raise _cannot_change(path, table, keys) from None
    return changed


def _cannot_change(path: Path, entry: str, keys: Sequence[str]) -> UsageError:
    return UsageError(
        f"{path} cannot be changed without losing something in it: comments, another form, or an entry"
        " of this name",
        hint=f"Add this to it yourself, under {' → '.join(keys)}:\n{entry}",
        details={"path": str(path), "entry": entry},
    )
