"""The switches of tools that are no records of the store: of the project, of MCP servers, the built-in ones.

They are decisions of people, so they are kept where those are. With a database on a server every process that
names it follows it. While the server is away, and without it, what this machine saw last counts.
"""

from __future__ import annotations

import hmac
import logging
import time
from collections.abc import Mapping
from typing import Protocol

from toolcrib.errors import BundleDisabled, StateUnavailable, ToolDisabled
from toolcrib.spec import Tool
from toolcrib.state import Database, Vault
from toolcrib.state.private import read_private, write_private

_log = logging.getLogger(__name__)
_LOOK_S = 0.2
"""Seconds until a change by another process counts."""
_AWAY_S = 30
"""Seconds until a server that did not answer is asked again."""
_SEEN = "switches.json"
_ROWS = "SELECT bundle, tool, enabled, switched_by, switched_at, mac FROM switches ORDER BY bundle, tool"
_Rows = Mapping[tuple[str, str], bool]


class Decisions(Protocol):
    """The place of people's decisions; a `DecisionStore` has it."""

    @property
    def decisions(self) -> tuple[Database, bytes | None]: ...

    @property
    def has_decisions(self) -> bool: ...


class Switches:
    """The tools and bundles that are switched on or off, by the name of the bundle and that of the tool."""

    def __init__(self, store: Decisions, vault: Vault) -> None:
        self._store, self._vault = store, vault
        self._rows: _Rows = {}
        self._next_look = 0.0
        self._version: object = None
        self.revision = 0
        """Changes with every switch that this process knows of; `look` first."""
        self.exempt: frozenset[str] = frozenset()
        """Names of tools that are of no source, as of those that list others: no switch is theirs."""

    def get(self, bundle: str, tool: str = "") -> bool | None:
        """Return how a tool, or a bundle, was switched; None if nobody has done so."""
        return self.look().get((bundle, tool))

    def is_on(self, bundle: str, tool: str) -> bool:
        """Return False if a tool or its bundle was switched off."""
        rows = self.look()
        if not rows or tool in self.exempt:
            return True
        return rows.get((bundle, tool), True) and rows.get((bundle, ""), True)

    def require_on(self, tool: Tool) -> None:
        """Raise ToolDisabled or BundleDisabled for a tool that was switched off."""
        rows = self.look()
        if not rows or tool.is_stored or tool.name in self.exempt:
            return
        bundle = tool.bundle
        if not rows.get((bundle, ""), True):
            raise BundleDisabled(f"the bundle {bundle} is disabled", hint="Enable the bundle first.")
        if not rows.get((bundle, tool.name), True):
            raise ToolDisabled(f"{tool.name} is disabled", hint="Enable the tool first.")

    def set(self, bundle: str, tool: str, *, enabled: bool, by: str) -> None:
        """Switch a tool, or with an empty name a bundle. Raises StateUnavailable."""
        database, key = self._store.decisions
        now = time.time()
        values = (bundle, tool, int(enabled), by, now, _mac(key, bundle, tool, enabled, by, now))
        with database.write() as tx:
            tx.run("DELETE FROM switches WHERE bundle = ? AND tool = ?", bundle, tool)
            tx.run("INSERT INTO switches VALUES (?, ?, ?, ?, ?, ?)", *values)
            tx.notify()
        self._next_look, self._version = 0.0, None
        self.look()

    def look(self) -> _Rows:
        """Return what is switched, as it was a moment ago."""
        now = time.monotonic()
        if now >= self._next_look:
            self._next_look = now + _LOOK_S
            try:
                self._take(self._read())
            except StateUnavailable as error:  # What was known last still counts.
                _log.info("the switches of tools cannot be read: %s", error)
                self._next_look = time.monotonic() + _AWAY_S
                if self._version is None:
                    self._take(self._last_seen())
        return self._rows

    def _read(self) -> _Rows:
        if not self._store.has_decisions:
            return self._last_seen()
        database, key = self._store.decisions
        if (version := database.version) == self._version:
            return self._rows
        found = {}
        for bundle, tool, enabled, by, at, mac in database.rows(_ROWS):
            # Whoever can write to a server could add some, as of every decision.
            if hmac.compare_digest(mac, _mac(key, bundle, tool, bool(enabled), by, at)):
                found[bundle, tool] = bool(enabled)
        self._version = version
        if database.waits and found != self._rows:
            listed = [[*pair, enabled] for pair, enabled in found.items()]
            write_private(self._vault.folder / _SEEN, listed)
        return found

    def _last_seen(self) -> _Rows:
        seen = read_private(self._vault.path / _SEEN)
        rows = seen if isinstance(seen, list) else []
        return {(str(bundle), str(tool)): bool(enabled) for bundle, tool, enabled in rows}

    def _take(self, rows: _Rows) -> None:
        if rows != self._rows:
            self._rows = rows
            self.revision += 1


def _mac(key: bytes | None, bundle: str, tool: str, enabled: bool, by: str, at: float) -> str:
    text = "\0".join(("switch", bundle, tool, str(int(enabled)), by, repr(float(at))))
    return "" if key is None else hmac.new(key, text.encode(errors="replace"), "sha256").hexdigest()
