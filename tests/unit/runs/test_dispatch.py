"""The dispatcher of the embedded database, where what it does at one moment matters."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from tests.patience import patient
from toolcrib.runs import Delivery, EmbeddedDispatcher, Take
from toolcrib.runs.serving import Work
from toolcrib.state import PROJECT, SqliteDatabase, Transaction

ENTRY = "entry"


class Entries(dict[str, Take]):
    """Entries that send a row of their own during the second look for messages."""

    looks = 0

    def __init__(self, dispatcher: EmbeddedDispatcher, database: SqliteDatabase, take: Take) -> None:
        super().__init__({ENTRY: take})
        self.dispatcher, self.database = dispatcher, database

    def __iter__(self) -> Iterator[str]:
        self.looks += 1
        if self.looks == 2:
            with self.database.write("rows") as tx:
                self.dispatcher.send(tx, Delivery(ENTRY, "taken at once"))
        return super().__iter__()


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
    serving = asyncio.create_task(dispatcher.serve(entries, stop=stop, concurrency=1))
    while entries.looks < 1:  # noqa: ASYNC110 - a thread looks
        await asyncio.sleep(0.01)
    send_from_elsewhere("of another kind", "another entry")  # Lets it look, and find nothing.
    await until(["taken at once"])
    send_from_elsewhere("next")
    await until(["taken at once", "next"])
    stop.set()
    await serving
