"""The databases of a project: approvals, rates, recorded calls. Each is opened when first needed."""

from __future__ import annotations

from functools import cached_property

from toolcrib.guard import Approvals, Rates, RecordedCalls, Tokens
from toolcrib.project.root import Place
from toolcrib.state import PROJECT, VAULT_GRANTS, Database, ForwardClock, SqliteDatabase, Vault

__all__ = ["Store"]


class Store:
    """The project's database, and the grants in the user's own folder. Both are created on first use."""

    def __init__(self, place: Place, vault: Vault, *, ttl_s: float) -> None:
        self._place = place
        self._vault = vault
        self._ttl_s = ttl_s
        self._clock = ForwardClock(vault.data)
        self._open: list[Database] = []
        self.tokens = Tokens(vault)
        """The tokens of callers."""

    @cached_property
    def state(self) -> Database:
        """The project's database; one that came with a cloned project is refused."""
        return self._opened(SqliteDatabase(self._place.state, PROJECT, origin=self._vault.origin()))

    @cached_property
    def approvals(self) -> Approvals:
        """Calls that wait for a person, and the decisions of people."""
        grants = self._opened(SqliteDatabase(self._vault.folder / "grants.db", VAULT_GRANTS))
        return Approvals(self.state, grants, clock=self._clock, ttl_s=self._ttl_s)

    @cached_property
    def rates(self) -> Rates:
        """The starts of rate-limited calls. Not durable: after a power cut they no longer count."""
        path, origin = self._place.state, self._vault.origin()
        return Rates(self._opened(SqliteDatabase(path, PROJECT, origin=origin, durable=False)))

    @cached_property
    def recorded(self) -> RecordedCalls:
        """Calls that were made with an idempotency key."""
        return RecordedCalls(self.state, self._clock)

    def close(self) -> None:
        """Close the files; the next use opens them again."""
        for database in self._open:
            database.close()
        self.tokens.close()

    def _opened(self, database: Database) -> Database:
        self._open.append(database)
        return database
