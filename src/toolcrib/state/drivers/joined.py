"""Statements of a database on Postgres inside a transaction that belongs to somebody else.

The transaction is on a connection of psycopg that the caller opened, with settings of its own. So our
statements use cursors of our own and our own schema, and leave the settings as they were.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from toolcrib.errors import InvalidInput
from toolcrib.state.database import Database, Transaction
from toolcrib.state.drivers.postgres import PostgresDatabase, PostgresServer, PostgresTransaction

if TYPE_CHECKING:
    import psycopg

_T = TypeVar("_T")

_PLACE = (
    "SELECT CAST(pg_postmaster_start_time() AS TEXT), CAST(oid AS BIGINT) FROM pg_database"
    " WHERE datname = current_database()"
)
# `true`: for this transaction only.
_SET_PATH = "SELECT set_config('search_path', $1, true)"
_GET_PATH = "SELECT current_setting('search_path')"


def join(database: Database, connection: object, work: Callable[[Transaction], _T]) -> _T:
    """Return `work` of a transaction on this `psycopg.Connection`, which its owner commits or rolls back.

    If `work` raises, what it wrote is undone, and the rest of the owner's transaction stays. Raises
    InvalidInput if the connection is of another kind or database, or has no open transaction.
    """
    server = _server(database)
    import psycopg
    from psycopg.rows import tuple_row

    if not isinstance(connection, psycopg.Connection):
        raise _wrong(connection, "a psycopg.Connection")
    _require_open(connection)

    def execute(sql: str, values: Sequence[Any] | None = None) -> Any:
        return psycopg.RawCursor(connection, row_factory=tuple_row).execute(sql.encode(), values)

    with _reported(server):
        path = execute(_GET_PATH).fetchone()[0]  # begins the transaction, unless it has begun
        # A savepoint in the owner's transaction.
        with connection.transaction():
            return _inside(server, connection, path, execute, work)


async def join_async(database: Database, connection: object, work: Callable[[Transaction], _T]) -> _T:
    """Return as `join` does, for a `psycopg.AsyncConnection` of this event loop too."""
    server = _server(database)
    import asyncio

    import psycopg
    from psycopg.rows import tuple_row

    if isinstance(connection, psycopg.Connection):
        return join(database, connection, work)
    if not isinstance(connection, psycopg.AsyncConnection):
        raise _wrong(connection, "a psycopg.Connection or psycopg.AsyncConnection")
    _require_open(connection)
    loop, left_alone = asyncio.get_running_loop(), False

    async def run(sql: str, values: Sequence[Any] | None = None) -> _Answer:
        if left_alone:
            raise asyncio.CancelledError
        cursor = psycopg.AsyncRawCursor(connection, row_factory=tuple_row)
        await cursor.execute(sql.encode(), values)
        return _Answer(cursor.rowcount, await cursor.fetchall() if cursor.description else [])

    def execute(sql: str, values: Sequence[Any] | None = None) -> _Answer:  # runs in the thread of `work`
        return asyncio.run_coroutine_threadsafe(run(sql, values), loop).result()

    with _reported(server):
        path = (await run(_GET_PATH)).rows[0][0]
        async with connection.transaction():
            try:
                return await asyncio.to_thread(_inside, server, connection, path, execute, work)
            finally:
                left_alone = True  # If the task was cancelled, `work` still runs; it must write nothing more.


def _inside(
    server: PostgresServer,
    connection: object,
    path: str,
    execute: Callable[..., Any],
    work: Callable[[Transaction], _T],
) -> _T:
    """Return `work` of a transaction whose statements `execute` sends on the owner's connection.

    `path` is the `search_path` of the owner.
    """
    if connection not in server.joined:
        with server.transaction("BEGIN READ ONLY") as own:
            place = own.one(_PLACE)
        if execute(_PLACE).fetchone() != place:  # No worker would see the calls there.
            raise InvalidInput(
                f"the connection leads to another database than {server.name}, where the calls are",
                hint="Use the same database for both.",
            )
        server.joined.add(connection)
    execute(_SET_PATH, (server.quoted_schema,))
    transaction = PostgresTransaction(execute, server.lease_s)
    result = work(transaction)
    if transaction.notifies:
        # It wakes the listeners of all processes, this one's too.
        execute(f"NOTIFY toolcrib, '{server.schema.encode().hex()}/'")
    execute(_SET_PATH, (path,))
    return result


@contextmanager
def _reported(server: PostgresServer) -> Iterator[None]:
    import psycopg

    try:
        yield
    except psycopg.Error as error:
        raise server.unavailable(error) from error


class _Answer(NamedTuple):
    """The answer to a statement, in the form of a cursor."""

    rowcount: int
    rows: list[tuple[Any, ...]]

    def fetchone(self) -> tuple[Any, ...] | None:
        return self.rows[0] if self.rows else None

    def fetchall(self) -> list[tuple[Any, ...]]:
        return self.rows


def _server(database: Database) -> PostgresServer:
    if not isinstance(database, PostgresDatabase):
        raise InvalidInput(
            "a transaction of Postgres cannot include calls that are in a SQLite file",
            hint="Name the Postgres database by `--database`, DATABASE_URL or `Project.open(database=…)`.",
        )
    database.migrate()
    return database.server


def _wrong(connection: object, wanted: str) -> InvalidInput:
    kind = type(connection)
    return InvalidInput(
        f"`connection` must be {wanted}, not {kind.__module__}.{kind.__qualname__}",
        hint="Pass the connection of psycopg 3 on which your transaction is open.",
    )


def _require_open(connection: psycopg.Connection[Any] | psycopg.AsyncConnection[Any]) -> None:
    from psycopg.pq import TransactionStatus

    status = connection.info.transaction_status
    if connection.closed or status == TransactionStatus.INERROR:
        raise InvalidInput(
            "the connection is closed, or its transaction has failed", hint="Roll back, and begin again."
        )
    if connection.autocommit and status == TransactionStatus.IDLE:
        raise InvalidInput(
            "no transaction is open on the connection, which commits each statement by itself",
            hint="Open one first: `with connection.transaction(): …`.",
        )
