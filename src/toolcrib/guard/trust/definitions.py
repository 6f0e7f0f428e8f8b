"""The parts of an MCP server that a person trusts: definitions of tools, and hosts that it may reach."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from toolcrib.guard.trust.ledger import Ledger, Trusted
from toolcrib.spec import Network
from toolcrib.state import Vault, read_private, write_private

Definition = Mapping[str, Any]
_MAX_SHOWN = 160
# A server chooses how deep its definitions are nested, and could exhaust the stack of `_changes`.
_MAX_DEPTH = 8


class ServerTrust:
    """The last offer of one server, and what of it a person trusts.

    `identity` is the server's program or address in the settings; with another one, nothing is trusted.
    """

    def __init__(self, vault: Vault, ledger: Ledger, server: str, identity: str) -> None:
        self._vault, self._ledger = vault, ledger
        self._server, self._identity = server, identity

    @property
    def subject(self) -> str:
        """The subject of the server in the ledger."""
        return f"server:{self._server}"

    def seen(self) -> dict[str, dict[str, Any]]:
        """Return the definitions that the server sent last, by the tool's own name."""
        tools = self._last_list().get("tools")
        return tools if isinstance(tools, dict) else {}

    def unusable(self) -> list[str]:
        """Return what of the server's last list cannot be used, and why."""
        left = self._last_list().get("unusable")
        return left if isinstance(left, list) else []

    def see(self, definitions: Mapping[str, Definition], unusable: Sequence[str] = ()) -> None:
        """Store the definitions that the server offers now, and what of its list cannot be used."""
        found = {"server": self._identity, "tools": dict(definitions), "unusable": list(unusable)}
        if self._last_list() != found:
            write_private(self._vault.folder / "mcp" / self._path.name, found)

    def _last_list(self) -> dict[str, Any]:
        found = read_private(self._path)
        return found if isinstance(found, dict) and found.get("server") == self._identity else {}

    def trusted(self) -> dict[str, dict[str, Any]]:
        """Return the definitions that a person has trusted."""
        found: dict[str, dict[str, Any]] = self._shown().get("definitions", {})
        return dict(found)

    def pins(self) -> Mapping[str, str]:
        """Return the digests of definitions that are trusted by a lock, by the tool's name here."""
        found: Mapping[str, str] = self._shown().get("pins", {})
        return found

    def last(self) -> Trusted | None:
        """Return what a person trusted last of this program or address."""
        row = self._ledger.last(self.subject)
        return row if row is not None and row.shown.get("identity") == self._identity else None

    def network(self) -> Network | None:
        """Return the hosts that a person has allowed the server; None before anybody has decided."""
        found = self._shown().get("network")
        return None if found is None else Network.parse(found["network"])

    def resolved(self) -> Mapping[str, Any] | None:
        """Return what its launcher was resolved to; None for nothing."""
        found: Mapping[str, Any] | None = self._shown().get("resolved")
        return found

    def row(
        self,
        definitions: Mapping[str, Definition],
        network: Network | None,
        pins: Mapping[str, str] | None = None,
        resolved: Mapping[str, Any] | None = None,
    ) -> Trusted:
        """Return the row that trusts these definitions, digests of definitions and hosts, and no others.

        `resolved` is what its launcher is resolved to from now on; None: what it was before.
        """
        facts = {
            "identity": self._identity,
            "definitions": dict(definitions),
            "network": None if network is None else {"network": network.as_json()},
            "pins": dict(pins or {}),
            "resolved": resolved or self.resolved(),
        }
        digest = hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()
        return Trusted(self.subject, digest, shown=facts)

    @property
    def version(self) -> int:
        """A number that changes when any process changes what is trusted."""
        return self._ledger.version

    def _shown(self) -> Mapping[str, Any]:
        row = self.last()
        return {} if row is None else row.shown

    @property
    def _path(self) -> Path:
        # `path` is the folder without creating it.
        return self._vault.path / "mcp" / f"{self._server}.json"


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
