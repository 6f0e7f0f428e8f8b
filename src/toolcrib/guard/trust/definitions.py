"""The definitions of an MCP server's tools that a person has reviewed; a changed one asks again."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from toolcrib.state import Vault, read_private, user_name, write_private

Definition = Mapping[str, Any]
_MAX_SHOWN = 160
# A server chooses how deep its definitions are nested, and could exhaust the stack of `_changes`.
_MAX_DEPTH = 8


class ReviewedDefinitions:
    """The tools that one server offered last, and those that were reviewed, in the user's own folder.

    `identity` is the server's program or address in the settings; with another one, nothing is reviewed.
    """

    def __init__(self, vault: Vault, server: str, identity: str) -> None:
        self._vault = vault
        self._server = server
        self._identity = identity

    def seen(self) -> dict[str, dict[str, Any]]:
        """Return the definitions that the server sent last, by the tool's own name."""
        return self._read("seen")

    def reviewed(self) -> dict[str, dict[str, Any]]:
        """Return the definitions that a person has reviewed."""
        return self._read("reviewed")

    def see(self, definitions: Mapping[str, Definition]) -> None:
        """Store the definitions that the server offers now."""
        if self.seen() != definitions:
            self._write("seen", definitions)

    def accept(self, definitions: Mapping[str, Definition]) -> None:
        """Store these definitions as the reviewed ones, instead of any others."""
        self._write("reviewed", definitions)

    def _read(self, what: str) -> dict[str, dict[str, Any]]:
        # Reading does not create the folder.
        found = read_private(self._vault.path / "mcp" / f"{self._server}.{what}.json")
        if not isinstance(found, dict) or found.get("server") != self._identity:
            return {}
        tools = found.get("tools")
        return tools if isinstance(tools, dict) else {}

    def _write(self, what: str, definitions: Mapping[str, Definition]) -> None:
        path = self._vault.folder / "mcp" / f"{self._server}.{what}.json"
        write_private(path, {"server": self._identity, "by": user_name(), "tools": dict(definitions)})


def differences(old: Definition, new: Definition) -> list[str]:
    """Return what has changed in a definition, one shortened line for each change."""
    return [f"{key}: {line}" for key in sorted({*old, *new}) for line in _changes(old.get(key), new.get(key))]


def _changes(old: Any, new: Any, path: str = "") -> list[str]:
    if old == new:
        return []
    if not (isinstance(old, Mapping) and isinstance(new, Mapping)) or path.count("/") >= _MAX_DEPTH:
        return [f"{path} {_shortened(old)} → {_shortened(new)}".lstrip()]
    keys = sorted({*old, *new}, key=str)
    return [line for key in keys for line in _changes(old.get(key), new.get(key), f"{path}/{key}")]


def _shortened(value: Any) -> str:
    if value is None:
        return "nothing"
    text = json.dumps(value)
    return text if len(text) <= _MAX_SHOWN else f"{text[:_MAX_SHOWN]}…"
