"""The databases of a project: approvals, rates, recorded calls. Each is opened when first needed.

The user may name a server for all of them; decisions in it are signed with a key in the user's own folder. A
trusted project may name one too, but never for decisions: those stay in the user's own folder.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from toolcrib.errors import StateUnavailable
from toolcrib.guard import Tokens
from toolcrib.project.config.settings import Config
from toolcrib.project.control.switches import Switches
from toolcrib.project.root import Place
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
from toolcrib.state.shared import shared_property

if TYPE_CHECKING:
    from toolcrib.guard.approvals.approvals import Approvals
    from toolcrib.guard.idempotency import RecordedCalls
    from toolcrib.guard.rates import Rates
    from toolcrib.runs.sessions import DurableRuns
    from toolcrib.state.drivers.postgres import PostgresServer

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
