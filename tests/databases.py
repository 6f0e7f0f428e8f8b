"""Databases for tests that run on every driver: an address names one, in this process and in others."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

from tests.patience import wait_for
from toolcrib.state import Database, SqliteDatabase, Transaction
from toolcrib.state.drivers.postgres import PostgresDatabase, PostgresServer

Address = Path | str
"""A folder, or the address of a Postgres server."""

_OPEN: list[Database] = []
LEASE_S = 2.0
"""Seconds after which a process that was killed no longer holds anything, where only its silence tells."""


def open_database(
    address: Address,
    name: str,
    migrations: Sequence[str],
    *,
    durable: bool = True,
    lease_s: float = LEASE_S,
) -> Database:
    """Open a file `NAME.db` in a folder, or the tables of that name at a Postgres address."""
    database: Database
    if isinstance(address, Path):
        database = SqliteDatabase(address / f"{name}.db", migrations, durable=durable)
    else:
        database = PostgresDatabase(
            PostgresServer(address, lease_s=lease_s), name, migrations, durable=durable
        )
    _OPEN.append(database)
    return database


def await_change(db: Database, before: int) -> int:
    """Return the version of a database once it differs from the one before."""
    wait_for(lambda: db.version != before, "a change", pause_s=0.005)
    return db.version


def clocked(database: Database, clock: Callable[[], float]) -> Database:
    """Return the database with transactions that take the time from a clock of the test."""
    return cast(Database, _Clocked(database, clock))


class _Clocked:
    def __init__(self, database: Database, clock: Callable[[], float]) -> None:
        self._database = database
        self._clock = clock

    def __getattr__(self, name: str) -> Any:
        return getattr(self._database, name)

    @contextmanager
    def read(self) -> Iterator[Any]:
        with self._database.read() as tx:
            yield _ClockedTransaction(tx, self._clock)

    @contextmanager
    def write(self, scope: str | None = None) -> Iterator[Any]:
        with self._database.write(scope) as tx:
            yield _ClockedTransaction(tx, self._clock)


class _ClockedTransaction:
    def __init__(self, inner: Transaction, clock: Callable[[], float]) -> None:
        self._inner = inner
        self.now = clock

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def has_just_begun(self, _lease_s: float) -> bool:
        return False


def close_databases() -> None:
    """Close everything that was opened here."""
    while _OPEN:
        _OPEN.pop().close()
