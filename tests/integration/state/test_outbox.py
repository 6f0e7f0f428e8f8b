"""Messages that are stored with a change: delivered at least once and in order, whatever is killed."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from tests.databases import Address, close_databases, open_database
from tests.processes import FORKS
from toolcrib.state import PROJECT, Database, Message, Outbox


def opened(address: Address) -> Database:
    return open_database(address, "state", PROJECT)


def put(db: Database, topic: str, *bodies: str) -> list[Message]:
    with db.write() as tx:
        return [Outbox.put(tx, topic, body.encode()) for body in bodies]


class Receiver:
    """Keeps what it is sent."""

    def __init__(self, *, fails_at: str = "") -> None:
        self.got: list[str] = []
        self._fails_at = fails_at

    async def __call__(self, message: Message) -> None:
        if message.body.decode() == self._fails_at:
            self._fails_at = ""
            raise ConnectionError(message.id)
        self.got.append(f"{message.id} {message.body.decode()}")


async def test_messages_are_delivered_once_and_in_order(address: Address) -> None:
    db, receiver = opened(address), Receiver()
    assert [message.id for message in put(db, "a", "x", "y")] == ["a/1", "a/2"]
    put(db, "b", "z")
    assert await Outbox(db).deliver(receiver) == 3
    assert await Outbox(db).deliver(receiver) == 0
    put(db, "a", "w")
    assert await Outbox(db).deliver(receiver) == 1
    assert receiver.got == ["a/1 x", "a/2 y", "b/1 z", "a/3 w"]


async def test_a_transaction_that_fails_sends_nothing_and_leaves_no_gap(address: Address) -> None:
    db, receiver = opened(address), Receiver()

    def fail() -> None:
        with db.write() as tx:
            Outbox.put(tx, "a", b"never")
            raise LookupError

    with pytest.raises(LookupError):
        fail()
    put(db, "a", "x")
    await Outbox(db).deliver(receiver)
    assert receiver.got == ["a/1 x"]


async def test_more_than_a_page(address: Address) -> None:
    db, receiver = opened(address), Receiver()
    put(db, "a", *map(str, range(250)))
    assert await Outbox(db).deliver(receiver) == 250
    assert receiver.got == [f"a/{number + 1} {number}" for number in range(250)]


async def test_what_the_receiver_refused_comes_first_next_time(address: Address) -> None:
    db, receiver = opened(address), Receiver(fails_at="y")
    put(db, "a", "x", "y", "z")
    with pytest.raises(ConnectionError):
        await Outbox(db).deliver(receiver)
    assert await Outbox(db).deliver(receiver) == 2
    assert receiver.got == ["a/1 x", "a/2 y", "a/3 z"]


async def test_a_topic_has_one_reader_at_a_time(address: Address) -> None:
    db, receiver = opened(address), Receiver()
    put(db, "a", "x", "y")
    put(db, "b", "z")
    second = []

    async def slow(message: Message) -> None:
        if message.id == "a/1":
            second.append(await Outbox(opened(address)).deliver(receiver))
        await receiver(message)

    assert await Outbox(db).deliver(slow) == 2
    assert second == [1]
    assert receiver.got == ["b/1 z", "a/1 x", "a/2 y"]


def _put_and_wait(address: Address, gate: Any) -> None:
    db = opened(address)
    gate.wait(100)
    for number in range(50):
        with db.write(f"scope {os.getpid()}") as tx:
            Outbox.put(tx, "a", f"{os.getpid()} {number}".encode())
    close_databases()


async def test_a_reader_is_woken_by_other_processes_and_sees_each_ones_order(address: Address) -> None:
    gate = FORKS.Barrier(4)
    writers = [FORKS.Process(target=_put_and_wait, args=(address, gate)) for _ in range(4)]
    receiver, outbox = Receiver(), Outbox(opened(address))
    reader = asyncio.create_task(outbox.run(receiver))
    for writer in writers:
        writer.start()
    while len(receiver.got) < 200:  # noqa: ASYNC110 - the test's own limit ends it
        await asyncio.sleep(0.05)
    reader.cancel()
    await asyncio.gather(reader, return_exceptions=True)
    for writer in writers:
        await asyncio.to_thread(writer.join, 100)
    numbers = [int(line.split()[0].removeprefix("a/")) for line in receiver.got]
    assert numbers == list(range(1, 201))
    for writer in writers:
        mine = [line.split()[2] for line in receiver.got if line.split()[1] == str(writer.pid)]
        assert mine == [str(number) for number in range(50)]


async def test_a_failing_receiver_is_tried_again(address: Address) -> None:
    db, receiver = opened(address), Receiver(fails_at="x")
    outbox = Outbox(db)
    reader = asyncio.create_task(outbox.run(receiver))
    put(db, "a", "x")
    outbox.wake()
    while not receiver.got:  # noqa: ASYNC110 - the test's own limit ends it
        await asyncio.sleep(0.05)
    reader.cancel()
    await asyncio.gather(reader, return_exceptions=True)
    assert receiver.got == ["a/1 x"]


def _read(address: Address, log: Path) -> None:
    async def send(message: Message) -> None:
        with log.open("a") as file:
            file.write(f"{message.number}\n")

    asyncio.run(Outbox(opened(address)).run(send))


def test_readers_that_are_killed_lose_nothing(address: Address, tmp_path: Path) -> None:
    db, log = opened(address), tmp_path / "log"
    log.touch()
    chance = random.Random(1)
    worker = FORKS.Process(target=_read, args=(address, log))
    worker.start()
    for part in range(4):
        put(db, "a", *(f"{part}" for _ in range(150)))
        before = len(log.read_text().splitlines())
        while len(log.read_text().splitlines()) < before + chance.randint(1, 120):
            time.sleep(0.002)
        assert worker.pid is not None
        os.kill(worker.pid, signal.SIGKILL)
        worker.join()
        worker = FORKS.Process(target=_read, args=(address, log))
        worker.start()
    while "600" not in log.read_text().split():
        time.sleep(0.05)
    os.kill(worker.pid or 0, signal.SIGKILL)
    worker.join()
    numbers = list(map(int, log.read_text().split()))
    assert set(numbers) == set(range(1, 601))
    first = list(dict.fromkeys(numbers))
    assert first == sorted(first)  # What comes again comes after its first time, and nothing overtakes.
