"""The definitions of an MCP server's tools as a person has reviewed them: what differs asks again."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from toolcrib.state import Vault, read_private, user_name, write_private

__all__ = ["Pins", "differences"]

Definition = Mapping[str, Any]
_SHOWN = 160


class Pins:
    """What one server was seen to offer, and what of it was reviewed, in the user's own folder.

    `identity` is what the settings say the server is; for another program or address nothing counts.
    """

    def __init__(self, vault: Vault, server: str, identity: str) -> None:
        self._vault = vault
        self._server = server
        self._identity = identity

    def seen(self) -> dict[str, dict[str, Any]]:
        """The definitions that it told last, by the tool's own name."""
        return self._read("seen")

    def reviewed(self) -> dict[str, dict[str, Any]]:
        """The definitions that a person has looked at."""
        return self._read("reviewed")

    def see(self, definitions: Mapping[str, Definition]) -> None:
        """Note what it offers now."""
        if self.seen() != definitions:
            self._write("seen", definitions)

    def accept(self, definitions: Mapping[str, Definition]) -> None:
        """These definitions are reviewed, and no others any more."""
        self._write("reviewed", definitions)

    def _read(self, what: str) -> dict[str, dict[str, Any]]:
        # Nothing is made on disk by asking.
        found = read_private(self._vault.path / "mcp" / f"{self._server}.{what}.json")
        if not isinstance(found, dict) or found.get("server") != self._identity:
            return {}
        tools = found.get("tools")
        return tools if isinstance(tools, dict) else {}

    def _write(self, what: str, definitions: Mapping[str, Definition]) -> None:
        path = self._vault.folder / "mcp" / f"{self._server}.{what}.json"
        write_private(path, {"server": self._identity, "by": user_name(), "tools": dict(definitions)})


def differences(old: Definition, new: Definition) -> list[str]:
    """What is not as it was, a line each, shortened."""
    lines = []
    for key in sorted({*old, *new}):
        before, after = old.get(key), new.get(key)
        if before == after:
            continue
        if isinstance(before, Mapping) and isinstance(after, Mapping):
            lines += [f"{key}: {line}" for line in _inside(before, after, "")]
        else:
            lines.append(f"{key}: {_told(before)} → {_told(after)}")
    return lines


def _inside(old: Mapping[str, Any], new: Mapping[str, Any], at: str) -> list[str]:
    lines = []
    for key in sorted({*old, *new}, key=str):
        before, after, place = old.get(key), new.get(key), f"{at}/{key}"
        if before == after:
            continue
        if isinstance(before, Mapping) and isinstance(after, Mapping) and place.count("/") < 8:
            lines += _inside(before, after, place)
        else:
            lines.append(f"{place} {_told(before)} → {_told(after)}")
    return lines


def _told(value: Any) -> str:
    if value is None:
        return "nothing"
    text = json.dumps(value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"
