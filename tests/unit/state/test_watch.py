"""Waiting for what is written: one look for all who wait, told at once in this process."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from toolcrib.errors import StateUnavailable
from toolcrib.state import DatabaseWatch, SqliteDatabase, inotify
from toolcrib.state.drivers import notices

TABLE = ("CREATE TABLE note (name TEXT PRIMARY KEY)",)


class Notes:
    """A table of names; tests wait until a name is written."""

    def __init__(self, folder: Path) -> None:
        self.database = SqliteDatabase(folder / "n.db", TABLE)
        self.looks = 0
        self.watch: DatabaseWatch[str] = DatabaseWatch(self.look, self.database)

    def look(self, names: Sequence[str]) -> Mapping[str, str]:
        self.looks += 1
        with self.database.read() as tx:
            known = {row[0] for row in tx.all("SELECT name FROM note")}
        return {name: name.upper() for name in names if name in known}

    def write(self, name: str) -> None:
        with self.database.write() as tx:
            tx.run("INSERT INTO note VALUES (?)", name)
        self.watch.notify()


@pytest.fixture
def notes(tmp_path: Path) -> Notes:
    return Notes(tmp_path)


async def test_what_is_there_already_is_given_at_once(notes: Notes) -> None:
    notes.write("a")
    assert await notes.watch.wait("a", 0) == "A"
    assert await notes.watch.wait("b", 0) is None


async def test_hundreds_who_wait_are_one_look_not_hundreds(notes: Notes) -> None:
    waiting = [asyncio.create_task(notes.watch.wait(f"n{number}", 60)) for number in range(300)]
    await asyncio.sleep(0)
    before = notes.looks
    for number in range(300):
        notes.write(f"n{number}")
    found = await asyncio.gather(*waiting)
    assert found == [f"N{number}" for number in range(300)]
    assert notes.looks - before < 20


async def test_another_thread_tells(notes: Notes) -> None:
    waiting = asyncio.create_task(notes.watch.wait("a", 30))
    await asyncio.sleep(0)
    thread = threading.Thread(target=notes.write, args=("a",))
    thread.start()
    assert await waiting == "A"
    thread.join()


def test_two_event_loops_wait_for_the_same(notes: Notes) -> None:
    found: list[str | None] = []
    ready = threading.Barrier(3)

    async def wait() -> None:
        waiting = asyncio.create_task(notes.watch.wait("a", 30))
        await asyncio.sleep(0)
        ready.wait(100)
        found.append(await waiting)

    threads = [threading.Thread(target=lambda: asyncio.run(wait())) for _ in range(2)]
    for thread in threads:
        thread.start()
    ready.wait(100)
    notes.write("a")
    for thread in threads:
        thread.join()
    assert found == ["A", "A"]


async def test_a_look_that_fails_ends_every_wait(notes: Notes) -> None:
    waiting = [asyncio.create_task(notes.watch.wait(name, None)) for name in "ab"]
    await asyncio.sleep(0)
    with notes.database.write() as tx:
        tx.run("DROP TABLE note")
    notes.watch.notify()
    ends = await asyncio.gather(*waiting, return_exceptions=True)
    assert all(isinstance(end, StateUnavailable) for end in ends)


def test_a_loop_that_was_closed_is_forgotten(notes: Notes) -> None:
    loop = asyncio.new_event_loop()
    task = loop.create_task(notes.watch.wait("a", None))
    loop.run_until_complete(asyncio.sleep(0))
    for one in asyncio.all_tasks(loop):
        one.cancel()
    loop.run_until_complete(asyncio.gather(task, return_exceptions=True))
    loop.close()
    notes.write("a")
    assert asyncio.run(notes.watch.wait("a", 0)) == "A"


async def test_where_the_kernel_gives_no_notices_it_looks_again(
    notes: Notes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def none_left() -> None:
        raise OSError(24, "no inotify instance is left")

    monkeypatch.setattr(inotify, "Inotify", none_left)
    monkeypatch.setattr(notices, "_listeners", [])
    waiting = asyncio.create_task(notes.watch.wait("a", 30))
    await asyncio.sleep(0)
    Notes(tmp_path).write("a")
    assert await waiting == "A"
    assert "no inotify instance is left" in caplog.text
