"""The database on a server: it may be away, restart, refuse, or cut connections."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psycopg
import pytest

from tests.databases import await_change, close_databases, open_database
from tests.descriptors import many_open
from tests.patience import patient
from tests.postgres import PostgresProcess
from toolcrib.errors import StateUnavailable
from toolcrib.state import Database
from toolcrib.state.drivers.postgres import PostgresServer

TABLES = ("CREATE TABLE note (name TEXT PRIMARY KEY)",)


@pytest.fixture
def url(postgres: PostgresProcess, request: pytest.FixtureRequest) -> Iterator[str]:
    yield postgres.url(f"own_{abs(hash(request.node.nodeid))}")
    close_databases()


def opened(url: str, *, durable: bool = True) -> Database:
    return open_database(url, "notes", TABLES, durable=durable)


def note(db: Database, name: str) -> None:
    with db.write() as tx:
        tx.insert("note", {"name": name})
        tx.notify()


def notes(db: Database) -> list[str]:
    return [row[0] for row in db.rows("SELECT name FROM note ORDER BY name")]


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGQUIT])
def test_after_a_restart_of_the_server_everything_goes_on(
    how: signal.Signals, url: str, postgres: PostgresProcess
) -> None:
    db, other = opened(url), opened(url)
    note(db, "a")
    mine, version = other.holder(), db.version
    postgres.stop(how)
    with pytest.raises(StateUnavailable) as caught:
        note(db, "lost")
    assert caught.value.retryable
    assert caught.value.hint == "Check that the server runs and that its address and password are right."
    postgres.start()
    note(other, "b")
    assert notes(db) == ["a", "b"]
    end = time.monotonic() + patient(30)
    while db.version == version:  # The listener is back too.
        assert time.monotonic() < end
    held = False
    while not held:  # A restart may take longer than the short lease of tests; then it is renewed.
        assert time.monotonic() < end
        with db.read() as tx:
            held = tx.is_held(mine)


def test_an_empty_server_in_place_of_the_one_before_gets_the_tables(
    url: str, postgres: PostgresProcess
) -> None:
    db = opened(url)
    note(db, "a")
    held, schema = db.holder(), url.rpartition("%3D")[2]
    postgres.stop()
    postgres.start()
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(f"DROP SCHEMA {schema} CASCADE")
    with pytest.raises(StateUnavailable, match="does not exist") as caught:
        note(db, "lost")
    assert caught.value.retryable
    assert caught.value.hint == "The tables are gone, as on a new server. Try again: they are made again."
    note(db, "b")
    assert notes(db) == ["b"]
    version = db.version
    note(opened(url), "c")
    await_change(db, version)  # The listener has found the new schema.
    end = time.monotonic() + patient(30)
    renewed = False
    while not renewed:  # It writes the name of this process there at its next renewal.
        assert time.monotonic() < end
        with db.read() as tx:
            renewed = tx.is_held(held)


def test_a_restart_within_a_transaction_keeps_nothing_of_it(url: str, postgres: PostgresProcess) -> None:
    db = opened(url)
    note(db, "a")

    def interrupted() -> None:
        with db.write() as tx:
            tx.insert("note", {"name": "b"})
            postgres.stop(signal.SIGQUIT)
            postgres.start()
            tx.insert("note", {"name": "c"})

    with pytest.raises(StateUnavailable):
        interrupted()
    assert notes(db) == ["a"]


def test_databases_that_are_opened_at_once_in_a_new_schema_make_it_once(postgres: PostgresProcess) -> None:
    def open_one(name: str) -> list[tuple[int]]:
        table = f"CREATE TABLE {name} (n INTEGER)"
        together.wait(patient(30))
        return open_database(url, name, (table,)).rows(f"SELECT n FROM {name}")

    names = ("one", "two", "three", "four")
    with ThreadPoolExecutor(len(names)) as pool:
        for turn in range(10):
            url, together = postgres.url(f"new_{turn}_{uuid.uuid4().hex}"), threading.Barrier(len(names))
            assert list(pool.map(open_one, names)) == [[]] * len(names)
            close_databases()


def test_a_cut_listener_misses_nothing_for_long(url: str) -> None:
    db, other = opened(url), opened(url)
    listens = await_change(db, 0)
    with psycopg.connect(url, autocommit=True) as admin:
        admin.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query LIKE 'LISTEN%'")
    note(other, "a")
    await_change(db, listens)


def test_changes_are_heard_in_a_process_with_a_thousand_open_files(url: str) -> None:
    with many_open():
        db, other = opened(url), opened(url)
        listens = await_change(db, 0)
        note(other, "a")
        await_change(db, listens)
        close_databases()


def test_what_need_not_be_durable_waits_for_no_disk(url: str) -> None:
    for durable, setting in ((True, "on"), (False, "off")):
        with opened(url, durable=durable).write() as tx:
            assert tx.one("SHOW synchronous_commit") == (setting,)


def test_more_threads_than_connections_wait_for_one(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("toolcrib.state.drivers.postgres._WAIT_S", 100)
    db = opened(url)
    together = threading.Barrier(8)

    def hold(number: int) -> None:
        with db.write(f"scope {number}") as tx:
            tx.insert("note", {"name": f"{number:02}"})
            together.wait(patient(30))

    threads = [threading.Thread(target=hold, args=(number,)) for number in range(24)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(notes(db)) == 24


def test_a_refused_user_is_told_and_no_password_is_shown(postgres: PostgresProcess) -> None:
    url = postgres.url("public", "nobody:hunter2")
    with pytest.raises(StateUnavailable, match="does not exist") as caught:
        notes(opened(url))
    assert "hunter2" not in repr((caught.value, caught.value.hint, caught.value.details))
    close_databases()


def test_a_malformed_address_is_told_without_its_text() -> None:
    with pytest.raises(StateUnavailable, match="malformed") as caught:
        PostgresServer("postgresql://u:hunter2@[x/y?z")
    assert "hunter2" not in f"{caught.value!r} {caught.value.__cause__!r}"


def test_without_the_extra_the_line_that_installs_it_is_given(tmp_path: Path) -> None:
    (tmp_path / "psycopg.py").write_text("raise ImportError")
    code = "from toolcrib.state.drivers.postgres import PostgresServer; PostgresServer('postgresql:///x')"
    env = {**os.environ, "PYTHONPATH": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=False)
    assert "needs the extra `postgres`" in done.stderr


def test_two_projects_in_one_database_share_nothing_if_they_name_other_schemas(
    postgres: PostgresProcess, url: str
) -> None:
    other = postgres.url("other_project")
    note(opened(url), "a")
    assert notes(opened(other)) == []
