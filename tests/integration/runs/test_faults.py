"""Workers are killed and frozen, the database restarts: no call is lost, and none is recorded twice."""

from __future__ import annotations

import asyncio
import random
import signal
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.databases import Address
from tests.durable_worker import Log, Recorded, WorkerProcess, freeze, open_calls
from tests.postgres import PostgresProcess
from toolcrib.errors import StateUnavailable

PATIENCE_S = 120.0
TOOL_SETS = (("nap",), ("nap2",), ("nap", "nap2"), ("nap", "nap2"))


class Size(NamedTuple):
    """How much is done, and how fast a silent worker is noticed."""

    calls: int
    ms: int
    kills: int
    freezes: int
    lease_s: float


SMALL = Size(calls=60, ms=100, kills=3, freezes=1, lease_s=2.0)
MIDDLE = Size(calls=500, ms=150, kills=8, freezes=0, lease_s=2.0)
FULL = Size(calls=500, ms=150, kills=10, freezes=20, lease_s=5.0)
SIZES = [pytest.param(SMALL, id="small"), pytest.param(FULL, id="full", marks=pytest.mark.soak)]
KILLS = [
    pytest.param("sqlite", MIDDLE, False, id="sqlite"),
    pytest.param("postgres", SMALL, True, id="postgres-restarted"),
    pytest.param("sqlite", FULL, False, id="sqlite-full", marks=pytest.mark.soak),
    pytest.param("postgres", FULL, False, id="postgres-full", marks=pytest.mark.soak),
    pytest.param("postgres", FULL, True, id="postgres-restarted-full", marks=pytest.mark.soak),
]


@pytest.fixture
def log(tmp_path: Path) -> Log:
    return Log(tmp_path)


@pytest.fixture
def start(address: Address, tmp_path: Path) -> Iterator[Callable[..., WorkerProcess]]:
    """Starts workers, which are killed in the end."""
    started: list[WorkerProcess] = []

    def start_one(tools: tuple[str, ...], lease_s: float) -> WorkerProcess:
        started.append(WorkerProcess(address, tmp_path, *tools, lease_s=lease_s))
        return started[-1]

    yield start_one
    for worker in started:
        worker.end()


async def until(holds: Callable[[], object]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not holds():  # noqa: ASYNC110 - what is awaited is in a file or a database
            await asyncio.sleep(0.05)


def ends(log: Log, count: int) -> bool:
    return len(log.lines("end")) >= count


def refusals(log: Log, count: int) -> bool:
    return len(log.lines("refused")) >= count


def starts_of(log: Log, number: int) -> list[str]:
    """The processes that have started a call."""
    return [pid for n, pid in log.lines("start") if n == str(number)]


async def all_ended(calls: Recorded, ids: list[str]) -> None:
    for call_id in ids:
        async with asyncio.timeout(PATIENCE_S):
            while True:
                try:
                    if (await calls.wait(call_id, PATIENCE_S)).ended_at is not None:
                        break
                except StateUnavailable:
                    await asyncio.sleep(0.1)


@pytest.mark.parametrize(("address", "size", "restarts"), KILLS, indirect=["address"])
async def test_kills_and_a_restart_lose_no_call(
    address: Address,
    log: Log,
    start: Callable[..., WorkerProcess],
    request: pytest.FixtureRequest,
    size: Size,
    restarts: bool,
    capsys: pytest.CaptureFixture[str],
) -> None:
    calls = open_calls(address, size.lease_s)
    chance = random.Random(7)
    workers = [start(tools, size.lease_s) for tools in TOOL_SETS]
    await until(lambda: len(log.lines("ready")) == len(workers))
    drafts = [
        {"tool": f"nap{'2' if n % 2 else ''}", "arguments": {"ms": size.ms, "n": n}, "repeatable": True}
        for n in range(size.calls)
    ]
    with calls.database.write("all at once") as tx:  # Else the workers keep up, and the kills meet idle ones.
        ids = calls.submit_all(tx, drafts)
    killed: dict[str, float] = {}
    for n in range(size.kills):
        await until(partial(ends, log, min(len(log.lines("end")) + 5, size.calls)))
        victim = chance.randrange(len(workers))
        killed[str(workers[victim].pid)] = time.time()
        workers[victim].end(signal.SIGKILL)
        workers[victim] = start(TOOL_SETS[victim], size.lease_s)
        if restarts and n == size.kills // 2:
            server: PostgresProcess = request.getfixturevalue("postgres")
            server.stop(signal.SIGQUIT)
            server.start()
    await all_ended(calls, ids)
    histories = [[change.kind for change in calls.changes(call_id)] for call_id in ids]
    assert [calls.find(call_id).state for call_id in ids] == ["done"] * size.calls
    assert [history.count("done") for history in histories] == [1] * size.calls
    rescues = [
        attempt.ended_at - killed[pid]
        for call_id in ids
        for attempt in calls.attempts(call_id)
        if attempt.ending == "lost" and attempt.ended_at and (pid := attempt.worker.split(":")[1]) in killed
    ]
    with capsys.disabled():
        print(
            f"\n{'Postgres' if isinstance(address, str) else 'SQLite'}{', restarted' * restarts}:"
            f" {size.calls} calls, {len(killed)} kills, lost 0, recorded twice 0, {len(rescues)} rescues"
            f" within {max(rescues, default=0):.1f} s of the kill (lease {size.lease_s:g} s)"
        )


@pytest.mark.parametrize("size", SIZES)
async def test_every_late_result_of_a_frozen_worker_is_refused(
    address: Address, log: Log, start: Callable[..., WorkerProcess], size: Size
) -> None:
    calls = open_calls(address, 2.0)
    workers = {str(one.pid): one for one in (start(("hold",), 2.0), start(("hold",), 2.0))}
    await until(lambda: len(log.lines("ready")) == 2)
    go = log.path.with_name("go")
    for trial in range(size.freezes):
        go.unlink(missing_ok=True)
        call_id = calls.submit("hold", {"n": trial}, repeatable=True)
        await until(partial(starts_of, log, trial))
        (frozen,) = starts_of(log, trial)
        freeze(workers[frozen].pid, address)
        go.touch()
        await all_ended(calls, [call_id])
        recorded = calls.find(call_id)
        workers[frozen].send(signal.SIGCONT)
        await until(partial(refusals, log, trial + 1))
        assert log.lines("refused")[-1] == [call_id, frozen]
        assert calls.find(call_id) == recorded
        assert [change.kind for change in calls.changes(call_id)] == [
            "submitted",
            "claimed",
            "lost",
            "claimed",
            "done",
        ]
    assert len(log.lines("refused")) == size.freezes
