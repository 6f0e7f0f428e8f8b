"""The database in a file: what is in its place may be anything, and the disk may be full."""

from __future__ import annotations

import os
import queue
import resource
import signal
import sqlite3
import time
from pathlib import Path

import pytest

from tests.patience import patient
from toolcrib.errors import StateUnavailable
from toolcrib.state import Database, SqliteDatabase

TABLE = ("CREATE TABLE counter (name TEXT PRIMARY KEY, value INTEGER NOT NULL)",)
COUNT = "INSERT INTO counter VALUES (?, 1) ON CONFLICT (name) DO UPDATE SET value = counter.value + 1"


def database(folder: Path, origin: str | None = None) -> SqliteDatabase:
    return SqliteDatabase(folder / "state.db", TABLE, origin=origin)


def notified(db: Database) -> None:
    with db.write() as tx:
        tx.run(COUNT, "n")
        tx.notify()


def value(db: Database, name: str = "n") -> int:
    with db.read() as tx:
        row = tx.one("SELECT value FROM counter WHERE name = ?", name)
    return 0 if row is None else int(row[0])


def test_what_need_not_be_durable_lies_in_the_same_file(tmp_path: Path) -> None:
    db, quick = database(tmp_path), SqliteDatabase(tmp_path / "state.db", TABLE, durable=False)
    for one, level in ((db, 2), (quick, 1)):
        with one.write() as tx:
            tx.run(COUNT, "n")
        with one.read() as tx:
            assert tx.one("PRAGMA synchronous") == (level,)
    assert value(db) == value(quick) == 2


def test_the_version_tells_of_other_connections_alone(tmp_path: Path) -> None:
    db, other = database(tmp_path), database(tmp_path)
    before = db.version
    with db.write() as tx:
        tx.run(COUNT, "n")
    assert db.version == before
    with other.write() as tx:
        tx.run(COUNT, "n")
    assert db.version != before


def test_a_file_made_elsewhere_is_refused(tmp_path: Path) -> None:
    ours = database(tmp_path, "us")
    value(ours)
    ours.close()
    assert value(database(tmp_path, "us")) == 0
    with pytest.raises(StateUnavailable, match="was not made here"):
        value(database(tmp_path, "them"))


def test_a_file_that_bears_no_origin_is_refused_where_one_is_asked_for(tmp_path: Path) -> None:
    plain = database(tmp_path)
    value(plain)
    plain.close()
    with pytest.raises(StateUnavailable, match="was not made here"):
        value(database(tmp_path, "us"))


@pytest.mark.parametrize("what", ["link", "hard link", "folder", "noise", "linked journal"])
def test_what_is_no_database_of_ours_is_refused(what: str, tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    other = tmp_path / "other"
    other.write_bytes(b"x" * 4096)
    if what == "link":
        path.symlink_to(other)
    elif what == "hard link":
        path.hardlink_to(other)
    elif what == "folder":
        path.mkdir()
    elif what == "noise":
        path.write_bytes(b"x" * 4096)
    else:
        (tmp_path / "state.db-wal").symlink_to(other)
    with pytest.raises(StateUnavailable):
        value(database(tmp_path))
    assert other.read_bytes() == b"x" * 4096


def test_a_full_disk_is_told_and_loses_nothing(tmp_path: Path) -> None:
    db = database(tmp_path)
    with db.write() as tx:
        tx.run(COUNT, "n")
    pid = os.fork()
    if pid == 0:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (32_768, 32_768))
        try:
            with database(tmp_path).write() as tx:
                for number in range(2_000):
                    tx.run("INSERT INTO counter VALUES (?, 1)", f"{number}" * 100)
        except StateUnavailable as error:
            os._exit(0 if error.hint and "disk" in error.hint else 2)
        os._exit(1)
    assert os.waitpid(pid, 0)[1] == 0
    assert value(db) == 1


def test_a_commit_that_fails_is_reported_and_leaves_nothing(tmp_path: Path) -> None:
    child = "CREATE TABLE child (of TEXT REFERENCES counter DEFERRABLE INITIALLY DEFERRED)"
    db = SqliteDatabase(tmp_path / "state.db", (*TABLE, child))

    def write() -> None:
        with db.write() as tx:
            tx.run(COUNT, "n")
            tx.run("INSERT INTO child VALUES ('nobody')")  # checked when it is committed

    with pytest.raises(sqlite3.IntegrityError):
        write()
    with db.write() as tx:
        tx.run(COUNT, "m")
    assert (value(db), value(db, "m")) == (0, 1)


def test_a_disk_that_is_full_at_the_start_is_reported_at_once(tmp_path: Path) -> None:
    pid = os.fork()
    if pid == 0:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
        time.sleep = lambda _: os._exit(2)
        try:
            value(database(tmp_path))
        except StateUnavailable as error:
            os._exit(0 if error.hint and "disk" in error.hint else 3)
        os._exit(1)
    assert os.waitpid(pid, 0)[1] == 0


def test_who_listens_hears_of_what_others_have_written_and_not_of_its_own(tmp_path: Path) -> None:
    db, other = database(tmp_path), database(tmp_path)
    heard = queue.SimpleQueue[int]()
    with db.listening(lambda: heard.put(value(db))):
        notified(db)
        notified(other)
        assert heard.get(timeout=patient(30)) == 2
    notified(other)
    assert heard.empty()
