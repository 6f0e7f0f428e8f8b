"""Databases for tests that run on every driver: an address names one, in this process and in others."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from toolcrib.state import Database, PostgresServer, SqliteDatabase

Address = Path | str
"""A folder, or the address of a Postgres server."""

_OPEN: list[Database] = []
LEASE_S = 2.0
"""Seconds after which a process that was killed no longer holds anything, where only its silence tells."""


def open_database(
    address: Address, name: str, migrations: Sequence[str], *, durable: bool = True
) -> Database:
    """Open a file `NAME.db` in a folder, or the tables of that name at a Postgres address."""
    database: Database
    if isinstance(address, Path):
        database = SqliteDatabase(address / f"{name}.db", migrations, durable=durable)
    else:
        database = PostgresServer(address, lease_s=LEASE_S).database(name, migrations, durable=durable)
    _OPEN.append(database)
    return database


def close_databases() -> None:
    """Close everything that was opened here."""
    while _OPEN:
        _OPEN.pop().close()
