"""Calls submitted inside the caller's own transaction: they exist if, and only if, it is committed."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import psycopg
import pytest
from psycopg.rows import dict_row

from tests.databases import await_change, close_databases, open_database
from tests.patience import patient
from tests.postgres import PostgresProcess
from toolcrib.errors import IdempotencyConflict, InvalidInput
from toolcrib.runs import DurableCalls
from toolcrib.state import PROJECT, Database, Transaction
from toolcrib.state.drivers.joined import join, join_async


@pytest.fixture
def schema() -> str:
    return f"crib_{uuid.uuid4().hex}"


@pytest.fixture
def database(postgres: PostgresProcess, schema: str) -> Iterator[Database]:
    yield open_database(postgres.url(schema), "state", PROJECT)
    close_databases()


@pytest.fixture
def calls(database: Database) -> DurableCalls:
    return DurableCalls(database)


@pytest.fixture
def shop(postgres: PostgresProcess) -> str:
    """The address of the caller's own tables, in another schema of the same database."""
    url = postgres.url(f"shop_{uuid.uuid4().hex}")
    with psycopg.connect(url) as connection:
        (path,) = connection.execute("SHOW search_path").fetchone() or ("",)
        connection.execute(f"CREATE SCHEMA {path}".encode())
        connection.execute("CREATE TABLE orders (n INTEGER)")
    return url


def submit(calls: DurableCalls, key: str | None = None, n: int = 1) -> Callable[[Transaction], str]:
    return lambda tx: calls.submit("ship", {"n": n}, idempotency_key=key, transaction=tx)


def orders(url: str) -> int:
    with psycopg.connect(url) as connection:
        (count,) = connection.execute("SELECT count(*) FROM orders").fetchone() or (0,)
    return int(count)


def test_a_rollback_leaves_nothing_and_a_commit_both(
    database: Database, calls: DurableCalls, shop: str
) -> None:
    with psycopg.connect(shop) as connection:
        join(database, connection, submit(calls))  # the first statement, which begins the transaction
        connection.execute("INSERT INTO orders VALUES (1)")
        assert calls.page() == []
        connection.rollback()
        assert calls.page() == []
        call_id = join(database, connection, submit(calls))
        connection.execute("INSERT INTO orders VALUES (1)")
    assert [call.id for call in calls.page()] == [call_id]
    assert orders(shop) == 1


def test_the_callers_own_settings_do_not_matter_and_stay(
    database: Database, calls: DurableCalls, shop: str
) -> None:
    with psycopg.connect(
        shop, autocommit=True, row_factory=dict_row, cursor_factory=psycopg.RawCursor
    ) as connection:
        with connection.transaction():
            call_id = join(database, connection, submit(calls))
            connection.execute("INSERT INTO orders VALUES ($1)", [1])
        with pytest.raises(InvalidInput, match="no transaction is open"):
            join(database, connection, submit(calls))
        connection.execute("INSERT INTO orders VALUES ($1)", [2])
    assert [call.id for call in calls.page()] == [call_id]
    assert orders(shop) == 2


def test_a_failed_submit_leaves_the_rest_of_the_transaction(
    database: Database, calls: DurableCalls, shop: str
) -> None:
    calls.submit("ship", {"n": 1}, idempotency_key="k")
    with psycopg.connect(shop) as connection:
        connection.execute("INSERT INTO orders VALUES (1)")
        with pytest.raises(IdempotencyConflict):
            join(database, connection, submit(calls, "k", 2))
        connection.execute("INSERT INTO orders VALUES (2)")
    assert orders(shop) == 2
    assert len(calls.page()) == 1


def test_the_commit_wakes_those_who_wait_in_this_process_too(
    database: Database, calls: DurableCalls, shop: str
) -> None:
    before = await_change(database, 0)
    with psycopg.connect(shop) as connection:
        join(database, connection, submit(calls))
    await_change(database, before)


async def test_an_async_connection_does_the_same(database: Database, calls: DurableCalls, shop: str) -> None:
    async with await psycopg.AsyncConnection.connect(shop, row_factory=dict_row) as connection:
        await join_async(database, connection, submit(calls))
        await connection.rollback()
        assert calls.page() == []
        call_id = await join_async(database, connection, submit(calls, "k"))
        with pytest.raises(IdempotencyConflict):
            await join_async(database, connection, submit(calls, "k", 2))
        await connection.execute("INSERT INTO orders VALUES (1)")
    assert [call.id for call in calls.page()] == [call_id]
    assert orders(shop) == 1
    with psycopg.connect(shop) as plain:
        second = await join_async(database, plain, submit(calls))
    assert [call.id for call in calls.page()] == [second, call_id]


async def test_a_cancelled_submit_writes_nothing_later(
    database: Database, calls: DurableCalls, shop: str
) -> None:
    go_on, began = threading.Event(), asyncio.Event()
    loop = asyncio.get_running_loop()
    outcome: list[BaseException] = []

    def slow(tx: Transaction) -> None:
        loop.call_soon_threadsafe(began.set)
        go_on.wait(patient(60))
        try:
            submit(calls)(tx)
        except BaseException as error:
            outcome.append(error)
            raise

    async with await psycopg.AsyncConnection.connect(shop) as connection:
        task = asyncio.create_task(join_async(database, connection, slow))
        await began.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        go_on.set()
        async with asyncio.timeout(patient(30)):
            while not outcome:  # noqa: ASYNC110 - a thread ends
                await asyncio.sleep(0.01)
        await connection.execute("INSERT INTO orders VALUES (1)")
    assert calls.page() == []
    assert orders(shop) == 1


async def test_another_kind_of_connection_is_refused(
    database: Database, calls: DurableCalls, shop: str
) -> None:
    with pytest.raises(InvalidInput, match=r"not sqlite3\.Connection"):
        join(database, sqlite3.connect(":memory:"), submit(calls))
    with pytest.raises(InvalidInput, match=r"not builtins\.str"):
        await join_async(database, shop, submit(calls))
    async with await psycopg.AsyncConnection.connect(shop) as connection:
        with pytest.raises(InvalidInput, match=r"must be a psycopg\.Connection, not"):
            join(database, connection, submit(calls))
    with psycopg.connect(shop) as closed:
        pass
    with pytest.raises(InvalidInput, match="is closed"):
        join(database, closed, submit(calls))


def test_another_database_is_refused(
    database: Database, calls: DurableCalls, postgres: PostgresProcess, tmp_path: Path, shop: str
) -> None:
    with psycopg.connect(shop, autocommit=True) as connection:
        connection.execute("CREATE DATABASE other")
    with (
        psycopg.connect(postgres.url("public").replace("/postgres?", "/other?")) as connection,
        pytest.raises(InvalidInput, match="leads to another database"),
    ):
        join(database, connection, submit(calls))
    file = open_database(tmp_path, "state", PROJECT)
    with psycopg.connect(shop) as connection, pytest.raises(InvalidInput, match="in a SQLite file"):
        join(file, connection, submit(DurableCalls(file)))
