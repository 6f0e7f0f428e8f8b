"""The reviewed facts about an MCP server: its tools' definitions, and the hosts that it may reach."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from toolcrib.spec import Network
from toolcrib.state import Vault, read_private, user_name, write_private

Definition = Mapping[str, Any]
_MAX_SHOWN = 160
# A server chooses how deep its definitions are nested, and could exhaust the stack of `_changes`.
_MAX_DEPTH = 8


class ReviewedDefinitions:
    """The tools that one server offered last, those that were reviewed, and the hosts that were allowed.

    They are in the user's own folder, out of reach of the project.

    `identity` is the server's program or address in the settings; with another one, nothing is reviewed.
    """

    def __init__(self, vault: Vault, server: str, identity: str) -> None:
        self._vault = vault
        self._server = server
        self._identity = identity

    def seen(self) -> dict[str, dict[str, Any]]:
        """Return the definitions that the server sent last, by the tool's own name."""
        return self._tools("seen")

    def reviewed(self) -> dict[str, dict[str, Any]]:
        """Return the definitions that a person has reviewed."""
        return self._tools("reviewed")

    def see(self, definitions: Mapping[str, Definition]) -> None:
        """Store the definitions that the server offers now."""
        if self.seen() != definitions:
            self._store("seen", tools=dict(definitions))

    def accept(self, definitions: Mapping[str, Definition]) -> None:
        """Store these definitions as the reviewed ones, instead of any others."""
        self._store("reviewed", tools=dict(definitions))

    def network(self) -> Network | None:
        """Return the hosts that a person has allowed the server; None before anybody has decided."""
        found = self._stored("network")
        return Network.parse(found["network"]) if "network" in found else None

    def allow(self, network: Network) -> None:
        """Store the hosts that the server may reach, instead of any others."""
        self._store("network", network=network.as_json())

    def version(self) -> tuple[int, ...]:
        """Return numbers that change when any process stores a review."""
        found = []
        for what in ("reviewed", "network"):
            with suppress(OSError):
                status = os.stat(self._path(what))
                found += [status.st_ino, status.st_mtime_ns]
        return tuple(found)

    def _path(self, what: str) -> Path:
        # `path` is the folder without creating it.
        return self._vault.path / "mcp" / f"{self._server}.{what}.json"

    def _tools(self, what: str) -> dict[str, dict[str, Any]]:
        tools = self._stored(what).get("tools")
        return tools if isinstance(tools, dict) else {}

    def _stored(self, what: str) -> Mapping[str, Any]:
        found = read_private(self._path(what))
        return found if isinstance(found, dict) and found.get("server") == self._identity else {}

    def _store(self, what: str, **values: Any) -> None:
        folder = self._vault.folder / "mcp"
        document = {"server": self._identity, "by": user_name(), **values}
        write_private(folder / self._path(what).name, document)


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
