"""The dispatcher of the embedded database, where what it does at one moment matters."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from tests.patience import patient
from toolcrib.runs import Delivery, EmbeddedDispatcher, Take
from toolcrib.runs.serving import Handlers, Work
from toolcrib.state import PROJECT, SqliteDatabase, Transaction

ENTRY = "entry"


class Entries(Handlers):
    """Entries that send a row of their own during the second look that finds one of another entry."""

    looks = 0

    def __init__(self, dispatcher: EmbeddedDispatcher, database: SqliteDatabase, take: Take) -> None:
        self.takes = {ENTRY: take}
        self.dispatcher, self.database = dispatcher, database

    def __getitem__(self, entry: str) -> Take:
        return self.takes[entry]

    def __iter__(self) -> Iterator[str]:
        raise AssertionError("a look goes through everything that is served")

    def __len__(self) -> int:
        return len(self.takes)

    def room(self, tx: Transaction, entry: str) -> int | None:
        if entry != ENTRY:
            self.looks += 1
            if self.looks == 2:
                with self.database.write("rows") as writing:
                    self.dispatcher.send(writing, Delivery(ENTRY, "taken at once"))
        return super().room(tx, entry)


async def test_a_worker_of_one_call_that_was_filled_during_a_look_takes_what_comes_next(
    tmp_path: Path,
) -> None:
    done: list[str] = []
    changed, stop = asyncio.Event(), asyncio.Event()

    async def work(key: str) -> None:
        await asyncio.sleep(0.05)
        done.append(key)
        changed.set()

    def take(_: Transaction, key: str) -> Work:
        return partial(work, key)

    def send_from_elsewhere(key: str, entry: str = ENTRY) -> None:
        with other.write("rows") as tx:
            elsewhere.send(tx, Delivery(entry, key))

    async def until(keys: list[str]) -> None:
        async with asyncio.timeout(patient(20)):
            while done != keys:
                changed.clear()
                await changed.wait()

    database, other = (SqliteDatabase(tmp_path / "data.db", PROJECT) for _ in range(2))
    dispatcher, elsewhere = EmbeddedDispatcher(database), EmbeddedDispatcher(other)
    entries = Entries(dispatcher, database, take)
    send_from_elsewhere("of another kind", "another entry")  # Each look finds it, and leaves it.
    serving = asyncio.create_task(dispatcher.serve(entries, stop=stop, concurrency=1))
    await until(["taken at once"])
    send_from_elsewhere("next")
    await until(["taken at once", "next"])
    stop.set()
    await serving
