"""The database as processes share it: real files, real forks, real kills."""

from __future__ import annotations

import multiprocessing
import os
import resource
import signal
import sqlite3
import threading
from pathlib import Path

import pytest

from toolcrib.errors import StateUnavailable
from toolcrib.state import Database

TABLE = ("CREATE TABLE counter (name TEXT PRIMARY KEY, value INTEGER NOT NULL)",)
COUNT = "INSERT INTO counter VALUES (?, 1) ON CONFLICT (name) DO UPDATE SET value = counter.value + 1"


def database(folder: Path, origin: str | None = None) -> Database:
    return Database(folder / "state.db", TABLE, origin=origin)


def value(db: Database, name: str = "n") -> int:
    with db.read() as tx:
        row = tx.one("SELECT value FROM counter WHERE name = ?", name)
    return 0 if row is None else int(row[0])


def _count(folder: Path, times: int) -> None:
    db = database(folder)
    for _ in range(times):
        with db.write() as tx:
            tx.run(COUNT, "n")


def test_processes_that_open_a_new_file_at_once_lose_no_write(tmp_path: Path) -> None:
    spawn = multiprocessing.get_context("spawn")
    workers = [spawn.Process(target=_count, args=(tmp_path, 25)) for _ in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(30)
        assert worker.exitcode == 0
    assert value(database(tmp_path)) == 100


def test_threads_share_one(tmp_path: Path) -> None:
    db = database(tmp_path)

    def count() -> None:
        for _ in range(20):
            with db.write() as tx:
                tx.run(COUNT, "n")

    threads = [threading.Thread(target=count) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert value(db) == 80


def test_what_raises_leaves_nothing(tmp_path: Path) -> None:
    db = database(tmp_path)

    def half() -> None:
        with db.write() as tx:
            tx.run(COUNT, "n")
            raise LookupError

    with pytest.raises(LookupError):
        half()
    assert value(db) == 0


def test_a_process_killed_within_a_transaction_leaves_nothing_and_no_lock(tmp_path: Path) -> None:
    db = database(tmp_path)
    with db.write() as tx:
        tx.run(COUNT, "n")
    pid = os.fork()
    if pid == 0:
        with database(tmp_path).write() as tx:
            tx.run(COUNT, "n")
            os.kill(os.getpid(), signal.SIGKILL)
    assert os.WTERMSIG(os.waitpid(pid, 0)[1]) == signal.SIGKILL
    with db.write() as tx:
        tx.run(COUNT, "n")
    assert value(db) == 2


def test_a_forked_child_uses_a_connection_of_its_own(tmp_path: Path) -> None:
    db = database(tmp_path)
    with db.write() as tx:
        tx.run(COUNT, "n")
    pid = os.fork()
    if pid == 0:
        with db.write() as tx:
            tx.run(COUNT, "n")
        os._exit(0)
    assert os.waitpid(pid, 0)[1] == 0
    assert value(db) == 2


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


def test_a_newer_file_is_refused(tmp_path: Path) -> None:
    newer = Database(tmp_path / "state.db", (*TABLE, "CREATE TABLE more (name TEXT)"))
    value(newer)
    newer.close()
    with pytest.raises(StateUnavailable, match="newer version"):
        value(database(tmp_path))


def test_an_older_file_is_brought_up_to_date(tmp_path: Path) -> None:
    _count(tmp_path, 1)
    newer = Database(tmp_path / "state.db", (*TABLE, "CREATE TABLE more (name TEXT)"))
    assert value(newer) == 1
    with newer.read() as tx:
        assert tx.all("SELECT * FROM more") == []


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


def test_another_who_holds_it_is_waited_for_and_then_told(tmp_path: Path) -> None:
    db = database(tmp_path)
    value(db)
    holder = sqlite3.connect(db.path, isolation_level=None)
    holder.execute("BEGIN IMMEDIATE")
    try:
        with pytest.raises(StateUnavailable) as caught, db.write():
            pass
    finally:
        holder.close()
    assert caught.value.retryable
    assert value(db) == 0
