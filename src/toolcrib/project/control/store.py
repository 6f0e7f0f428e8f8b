"""The databases of a project: approvals, rates, recorded calls. Each is opened when first needed.

The user may name a server for all of them; decisions in it are signed with a key in the user's own folder. A
trusted project may name one too, but never for decisions: those stay in the user's own folder.
"""

from __future__ import annotations

import hmac
import logging
import time
from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING

from toolcrib.errors import BundleDisabled, StateUnavailable, ToolDisabled
from toolcrib.guard import Tokens
from toolcrib.project.config.settings import Config
from toolcrib.project.root import Place
from toolcrib.spec import Tool
from toolcrib.state import (
    IN_FILE,
    PROJECT,
    VAULT_GRANTS,
    Database,
    ForwardClock,
    SqliteDatabase,
    Vault,
    load_user_settings,
    named_database,
)
from toolcrib.state.private import read_private, write_private
from toolcrib.state.shared import shared_property

if TYPE_CHECKING:
    from toolcrib.guard.approvals.approvals import Approvals
    from toolcrib.guard.idempotency import RecordedCalls
    from toolcrib.guard.rates import Rates
    from toolcrib.runs.sessions import DurableRuns
    from toolcrib.state.drivers.postgres import PostgresServer

_log = logging.getLogger(__name__)
_LOOK_S = 0.2
"""Seconds until a change by another process counts."""
_AWAY_S = 30
"""Seconds until a server that did not answer is asked again."""
_SEEN = "switches.json"
_ROWS = "SELECT bundle, tool, enabled, switched_by, switched_at, mac FROM switches ORDER BY bundle, tool"
_Rows = Mapping[tuple[str, str], bool]


class Switches:
    """The tools and bundles that are switched on or off, by the name of the bundle and that of the tool.

    They are tools that are no records of the store: of the project, of MCP servers, the built-in ones.
    Switches are decisions of people, so they are kept where those are. With a database on a server every
    process that names it follows it. While the server is away, and without it, what this machine saw last
    counts.
    """

    def __init__(self, store: DecisionStore, vault: Vault) -> None:
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


_DECISIONS = "grants.db"


class DecisionStore:
    """The project's database and the decisions of people. Both are created on first use.

    `database` is the one that the program names. Without it the process, the environment and the user's
    settings count, then the project's settings, as far as they are trusted.
    """

    def __init__(self, place: Place, vault: Vault, config: Config, database: str | None = None) -> None:
        self._place, self._vault, self._config = place, vault, config
        self._own, self._clock = database, ForwardClock(vault.data)
        self._open: list[Database] = []
        self.tokens = Tokens(vault)
        """The tokens of callers."""

    @shared_property
    def _users_own(self) -> str | None:
        return self._own or named_database() or load_user_settings().database

    @shared_property
    def _server(self) -> PostgresServer | None:
        """The server that is used, if any."""
        database = self._users_own or self._config.database
        if database == IN_FILE:
            return None
        from toolcrib.state.drivers.postgres import PostgresServer

        return PostgresServer(database)

    @property
    def exists(self) -> bool:
        """True if there may be something in the project's database."""
        return self._server is not None or self._place.state.exists()

    @shared_property
    def state(self) -> Database:
        """The project's database; a file that came with a cloned project is refused."""
        return self._project_database(durable=True)

    @shared_property
    def decisions(self) -> tuple[Database, bytes | None]:
        """The database with the decisions of people, and the key that signs them there, if they need one."""
        # A server that only the project names may belong to whoever wrote its settings: no decision is kept
        # there.
        if self._server is not None and self._users_own is not None:
            from toolcrib.state.drivers.postgres import PostgresDatabase

            return self._opened(PostgresDatabase(self._server, "grants", VAULT_GRANTS)), self._vault.key()
        return self._opened(SqliteDatabase(self._vault.folder / _DECISIONS, VAULT_GRANTS)), None

    @property
    def has_decisions(self) -> bool:
        """True if `decisions` may be read without making a file for them."""
        on_server = self._server is not None and self._users_own is not None
        return on_server or (self._vault.path / _DECISIONS).exists()

    @shared_property
    def approvals(self) -> Approvals:
        """Calls that wait for a person, and the decisions of people."""
        from toolcrib.guard.approvals.approvals import Approvals

        grants, key = self.decisions
        ttl_s = self._config.approval_ttl_hours * 3600
        return Approvals(self.state, grants, clock=self._clock, ttl_s=ttl_s, key=key)

    @shared_property
    def switches(self) -> Switches:
        """The switches of tools that are no records: of the project, of servers, the built-in ones."""
        return Switches(self, self._vault)

    @shared_property
    def rates(self) -> Rates:
        """The starts of rate-limited calls. Not durable: after a power cut they no longer count."""
        from toolcrib.guard.rates import Rates

        return Rates(self._project_database(durable=False))

    @shared_property
    def recorded(self) -> RecordedCalls:
        """Calls that were made with an idempotency key."""
        from toolcrib.guard.idempotency import RecordedCalls

        return RecordedCalls(self.state, self._clock)

    @shared_property
    def runs(self) -> DurableRuns:
        """Runs of agents and durable calls, which belong together: the end of a call continues its run."""
        from toolcrib.runs import DurableCalls, dispatcher_for
        from toolcrib.runs.sessions import durable_runs

        lease_s = self._config.lease_s
        calls = DurableCalls(self.state, lease_s=lease_s, dispatcher=dispatcher_for(self.state, lease_s))
        calls.room = lambda asker: self.approvals.room(asker)  # noqa: PLW0108 - they are opened when asked
        return durable_runs(calls)

    def wake_decided(self) -> None:
        """Let the stored calls go on whose approval was decided; without it a worker does that soon."""
        with suppress(StateUnavailable):
            if self.state.rows("SELECT 1 FROM approvals WHERE wakes = 1 AND status <> 'pending' LIMIT 1"):
                self.runs.calls.wake_decided()

    def close(self) -> None:
        """Close the files and connections; the next use opens them again."""
        for database in self._open:
            database.close()
        self.tokens.close()

    def _project_database(self, *, durable: bool) -> Database:
        if self._server is not None:
            from toolcrib.state.drivers.postgres import PostgresDatabase

            return self._opened(PostgresDatabase(self._server, "state", PROJECT, durable=durable))
        # A database that came with a clone could bring calls that are ready to run, and recorded results.
        origin = self._vault.origin()
        return self._opened(SqliteDatabase(self._place.state, PROJECT, origin=origin, durable=durable))

    def _opened(self, database: Database) -> Database:
        self._open.append(database)
        return database
