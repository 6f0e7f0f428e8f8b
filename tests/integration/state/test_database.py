"""The database as processes share it, on every driver: the same steps give the same history."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest

from tests.databases import LEASE_S, Address, await_change, close_databases, open_database
from tests.patience import patient, wait_for
from tests.processes import FORKS
from toolcrib.errors import StateUnavailable
from toolcrib.state import Database, DatabaseWatch, watch

WORKERS = 4
TABLES = (
    """
CREATE TABLE counter (name TEXT PRIMARY KEY, value INTEGER NOT NULL);
CREATE TABLE kinds (name TEXT PRIMARY KEY, number INTEGER, fraction REAL, bytes BLOB);
""",
)
COUNT = "INSERT INTO counter VALUES (?, 1) ON CONFLICT (name) DO UPDATE SET value = counter.value + 1"


def opened(address: Address) -> Database:
    return open_database(address, "counts", TABLES)


def count(db: Database, name: str = "n") -> None:
    with db.write() as tx:
        tx.run(COUNT, name)


def value(db: Database, name: str = "n") -> int:
    rows = db.rows("SELECT value FROM counter WHERE name = ?", name)
    return int(rows[0][0]) if rows else 0


def together(target: Callable[..., Any], address: Address, *more: Any) -> None:
    """Run in four processes at once."""
    workers = [FORKS.Process(target=target, args=(address, *more)) for _ in range(WORKERS)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
        assert worker.exitcode == 0


# --- transactions


def _count(address: Address, times: int) -> None:
    db = opened(address)
    for _ in range(times):
        count(db)
    close_databases()


def test_processes_that_open_a_new_database_at_once_make_its_tables_once_and_lose_no_write(
    address: Address,
) -> None:
    together(_count, address, 25)
    assert value(opened(address)) == 25 * WORKERS


def test_threads_share_one(address: Address) -> None:
    db = opened(address)

    def count_often() -> None:
        for _ in range(30):
            count(db)

    threads = [threading.Thread(target=count_often) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert value(db) == 240


def test_what_raises_leaves_nothing(address: Address) -> None:
    db = opened(address)

    def half() -> None:
        with db.write() as tx:
            tx.run(COUNT, "n")
            raise LookupError

    with pytest.raises(LookupError):
        half()
    assert value(db) == 0


def test_a_statement_that_fails_leaves_nothing_and_the_database_usable(address: Address) -> None:
    db = opened(address)

    def fail() -> None:
        with db.write() as tx:
            tx.run(COUNT, "n")
            tx.run("UPDATE missing SET value = 1")

    with pytest.raises(StateUnavailable):
        fail()
    count(db)
    assert value(db) == 1


def test_a_process_killed_within_a_transaction_leaves_nothing_and_no_lock(address: Address) -> None:
    db = opened(address)
    count(db)
    pid = os.fork()
    if pid == 0:
        with opened(address).write() as tx:
            tx.run(COUNT, "n")
            os.kill(os.getpid(), signal.SIGKILL)
    assert os.WTERMSIG(os.waitpid(pid, 0)[1]) == signal.SIGKILL
    count(db)
    assert value(db) == 2


def test_a_forked_child_uses_a_connection_of_its_own(address: Address) -> None:
    db = opened(address)
    count(db)
    pid = os.fork()
    if pid == 0:
        count(db)
        os._exit(0)
    assert os.waitpid(pid, 0)[1] == 0
    count(db)
    assert value(db) == 3


def test_one_that_was_closed_opens_again(address: Address) -> None:
    db = opened(address)
    count(db)
    db.close()
    count(db)
    assert value(db) == 2


def test_a_reader_sees_one_state(address: Address) -> None:
    db, other = opened(address), opened(address)
    count(db)
    with db.read() as tx:
        before = tx.all("SELECT name, value FROM counter")
        count(other)
        assert tx.all("SELECT name, value FROM counter") == before
    assert value(db) == 2


def test_another_that_holds_it_is_waited_for_and_then_told(address: Address) -> None:
    db = opened(address)
    count(db)
    holds, done = threading.Event(), threading.Event()

    def hold() -> None:
        with opened(address).write():
            holds.set()
            done.wait(100)

    thread = threading.Thread(target=hold)
    thread.start()
    holds.wait(100)
    with pytest.raises(StateUnavailable) as caught, db.write():
        pass
    done.set()
    thread.join()
    assert caught.value.retryable
    assert caught.value.hint == "Another process has locked it for too long; look for one that is stopped."
    count(db)
    assert value(db) == 2


def _take(address: Address, taken: Any) -> None:
    db = opened(address)
    for number in range(100):
        with db.write(f"item {number}") as tx:
            got = tx.run("UPDATE counter SET value = 0 WHERE name = ? AND value = 1", f"{number}")
        with taken.get_lock():
            taken.value += got
    close_databases()


def test_of_four_processes_exactly_one_takes_each_row(address: Address) -> None:
    db = opened(address)
    for number in range(100):
        count(db, f"{number}")
    taken = FORKS.Value("i", 0)
    together(_take, address, taken)
    assert taken.value == 100


def _add_if_none(address: Address, scope: str | None) -> None:
    db = opened(address)
    for number in range(50):
        with db.write(scope and f"{scope} {number}") as tx:
            if tx.one("SELECT 1 FROM counter WHERE name LIKE ?", f"{number} by %") is None:
                tx.insert("counter", {"name": f"{number} by {os.getpid()}", "value": 1})
    close_databases()


@pytest.mark.parametrize("scope", [None, "row"])
def test_nobody_writes_between_the_look_and_the_write_of_a_transaction(
    scope: str | None, address: Address
) -> None:
    together(_add_if_none, address, scope)
    with opened(address).read() as tx:
        assert tx.one("SELECT COUNT(*) FROM counter") == (50,)


# --- values and tables


def test_values_come_back_as_they_were(address: Address) -> None:
    rows = [
        ("a", 2**62, 0.1 + 0.2, b"\x00\xff"),
        ("b", -1, 1.7e300, b""),
        ("ü ✓ '%? \\", None, None, None),
    ]
    db = opened(address)
    with db.write() as tx:
        for row in rows:
            tx.run("INSERT INTO kinds VALUES (?, ?, ?, ?)", *row)
    with db.read() as tx:
        assert tx.all("SELECT * FROM kinds ORDER BY name") == rows
        total = tx.one("SELECT CAST(SUM(number) AS BIGINT), COUNT(*), MAX(fraction) FROM kinds")
    assert total == (2**62 - 1, 3, 1.7e300)
    assert total is not None
    assert type(total[0]) is int


@pytest.mark.timeout(60)
def test_a_value_longer_than_what_a_socket_takes_at_once_is_stored(address: Address) -> None:
    db, long = opened(address), b"x" * 20_000_000
    with db.write() as tx:
        tx.later("INSERT INTO kinds VALUES (?, NULL, NULL, ?)", "later", long)
        assert tx.run("INSERT INTO kinds VALUES (?, NULL, NULL, ?)", "long", long) == 1
    assert db.rows("SELECT COUNT(*), MIN(LENGTH(bytes)) FROM kinds") == [(2, len(long))]


def test_a_text_that_no_database_takes_is_stored_without_the_characters_that_it_refuses(
    address: Address,
) -> None:
    db = opened(address)
    with db.write() as tx:
        tx.later("INSERT INTO kinds VALUES (?, 1, NULL, NULL)", "half \ud800")
        tx.run("INSERT INTO kinds VALUES (?, 2, NULL, NULL)", "nul \0 \udcff")
    assert db.rows("SELECT number FROM kinds WHERE name = ?", "half \ud800") == [(1,)]
    assert db.rows("SELECT number FROM kinds WHERE name = ?", "nul \0 \udcff") == [(2,)]
    assert db.rows("SELECT number FROM kinds WHERE name = ?", "\0") == []


def test_texts_are_in_the_order_of_their_bytes(address: Address) -> None:
    names = ["B", "a", "a b", "a-b", "aB", "ab", "ä", "z"]
    db = opened(address)
    for name in reversed(names):
        count(db, name)
    with db.read() as tx:
        assert [row[0] for row in tx.all("SELECT name FROM counter ORDER BY name")] == sorted(names)
        assert tx.all("SELECT name FROM counter WHERE name > ? ORDER BY name", "ab") == [("z",), ("ä",)]


def test_a_row_whose_key_is_taken_is_not_added(address: Address) -> None:
    with opened(address).write() as tx:
        assert tx.insert("counter", {"name": "n", "value": 1})
        assert not tx.insert("counter", {"name": "n", "value": 2})
        assert tx.run("UPDATE counter SET value = 3 WHERE name = ?", "n") == 1
        assert tx.run("UPDATE counter SET value = 3 WHERE name = ?", "no") == 0
        assert tx.all("UPDATE counter SET value = 4 RETURNING name, value") == [("n", 4)]


MORE = (*TABLES, "CREATE TABLE more (name TEXT)")


def test_a_newer_one_is_refused(address: Address) -> None:
    with open_database(address, "counts", MORE).read():
        pass
    close_databases()
    with pytest.raises(StateUnavailable, match="newer version"):
        value(opened(address))


def test_an_older_one_is_brought_up_to_date(address: Address) -> None:
    count(opened(address))
    close_databases()
    newer = open_database(address, "counts", MORE)
    assert value(newer) == 1
    with newer.read() as tx:
        assert tx.all("SELECT * FROM more") == []


def test_a_migration_that_fails_leaves_the_old_tables(address: Address) -> None:
    count(opened(address))
    close_databases()
    broken = (*TABLES, "CREATE TABLE more (name TEXT);\nCREATE INDEX bad ON missing (name)")
    with pytest.raises(StateUnavailable):
        value(open_database(address, "counts", broken))
    assert value(open_database(address, "counts", MORE)) == 1


# --- processes


def test_the_version_changes_after_another_has_notified(address: Address) -> None:
    db, other = opened(address), opened(address)
    count(db)
    before = db.version
    with other.write() as tx:
        tx.run(COUNT, "n")
        tx.notify()
    await_change(db, before)


def _notify(address: Address, ready: Any) -> None:
    db = opened(address)
    count(db, "other")
    ready.wait(100)
    with db.write() as tx:
        tx.run(COUNT, "n")
        tx.notify()
    close_databases()


async def test_a_process_that_waits_is_woken_by_another(
    address: Address, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watch, "_RECHECK_S", 3_600.0)  # So that nothing is found by looking again.
    db = opened(address)
    looked = asyncio.Event()

    def check(names: Sequence[str]) -> Mapping[str, int]:
        loop.call_soon_threadsafe(looked.set)
        return {name: found for name in names if (found := value(db, name))}

    loop = asyncio.get_running_loop()
    waiters = DatabaseWatch(check, db)
    ready = FORKS.Event()
    worker = FORKS.Process(target=_notify, args=(address, ready))
    worker.start()
    waiting = asyncio.create_task(waiters.wait("n", 60))
    await looked.wait()
    ready.set()
    assert await waiting == 1
    await asyncio.to_thread(worker.join, 100)
    assert worker.exitcode == 0


def _hold(address: Address, ready: Any) -> None:
    db = opened(address)
    holder = db.holder()
    with db.write() as tx:
        tx.insert("kinds", {"name": holder})
    ready.set()
    time.sleep(600)


def test_a_process_holds_what_it_has_until_it_is_killed(address: Address) -> None:
    db = opened(address)
    mine = db.holder()
    ready = FORKS.Event()
    worker = FORKS.Process(target=_hold, args=(address, ready))
    worker.start()
    assert ready.wait(patient(30))
    with db.read() as tx:
        (theirs,) = tx.one("SELECT name FROM kinds") or ("",)

    def held(*names: str) -> list[bool]:
        with db.read() as tx:
            return [tx.is_held(name) for name in names]

    time.sleep(2 * LEASE_S)
    wait_for(lambda: held(theirs, mine) == [True, True], "its renewal")
    worker.kill()
    worker.join()
    wait_for(lambda: held(theirs, mine) == [False, True], "its end")


def test_all_read_one_clock(address: Address) -> None:
    times = []
    for _ in range(3):
        for db in (opened(address), opened(address)):
            with db.read() as tx:
                times.append(tx.clock())
    assert len({name for name, _ in times}) == 1
    assert times == sorted(times)
