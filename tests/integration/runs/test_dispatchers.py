"""Both dispatchers deliver in the same way: the same steps give the same history, whatever goes wrong."""

from __future__ import annotations

import asyncio
import json
import signal
import threading
from collections.abc import AsyncIterator, Callable, Collection, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import Any

import psycopg
import pytest

from tests.databases import Address, open_database
from tests.durable_worker import Log, Recorded, WorkerProcess, dispatcher_of, freeze, open_calls, worker_of
from tests.postgres import PostgresProcess
from tests.processes import FORKS
from toolcrib.errors import StateUnavailable
from toolcrib.runs import ClaimedCall, DurableCall, DurableCalls, Take, dispatch, entry_of, live_workers
from toolcrib.runs.dispatch import EmbeddedDispatcher
from toolcrib.state import PROJECT, Database, watch
from toolcrib.state.drivers.postgres import PostgresDatabase

LEASE_S = 2.0
PATIENCE_S = 60.0


@pytest.fixture
def calls(address: Address) -> Recorded:
    return open_calls(address, LEASE_S)


@pytest.fixture
def log(tmp_path: Path) -> Log:
    return Log(tmp_path)


@pytest.fixture
def start(address: Address, tmp_path: Path) -> Iterator[Callable[..., WorkerProcess]]:
    """Starts workers, which are killed in the end."""
    started: list[WorkerProcess] = []

    def start_one(*tools: str, **options: Any) -> WorkerProcess:
        started.append(WorkerProcess(address, tmp_path, *tools, **{"lease_s": LEASE_S, **options}))
        return started[-1]

    yield start_one
    for worker in started:
        worker.end()


@asynccontextmanager
async def serving(calls: Recorded, log: Log, *names: str, concurrency: int = 20) -> AsyncIterator[None]:
    """A worker in this event loop; in the end it does what it has begun, and takes nothing more."""
    stop = asyncio.Event()
    task = asyncio.create_task(worker_of(calls, log, names, concurrency=concurrency, name="w").run(stop))
    try:
        yield
    finally:
        stop.set()
        async with asyncio.timeout(PATIENCE_S):
            await task


async def until(holds: Callable[[], object]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not holds():  # noqa: ASYNC110 - what is awaited is in a file or a database
            await asyncio.sleep(0.02)


async def ended(calls: Recorded, call_id: str) -> DurableCall:
    call = await calls.wait(call_id, PATIENCE_S)
    assert call.ended_at is not None, f"it is {call.state} after {PATIENCE_S} s: {history(calls, call_id)}"
    return call


def history(calls: Recorded, call_id: str) -> list[str]:
    """The kinds of a call's changes."""
    return [change.kind for change in calls.changes(call_id)]


def value(call: DurableCall) -> Any:
    return json.loads(call.result or b"{}")["value"]


def messages(calls: Recorded) -> int:
    """The number of messages that wait."""
    table = "pgqueuer" if isinstance(calls.database, PostgresDatabase) else "deliveries"
    with calls.database.read() as tx:
        (count,) = tx.one(f"SELECT COUNT(*) FROM {table}") or (0,)
    return int(count)


# --- what is delivered, to whom, in which order


async def test_a_call_runs_once_and_its_message_is_used_up(calls: Recorded, log: Log) -> None:
    async with serving(calls, log, "nap"):
        before = calls.submit("nap", {})
        assert (await ended(calls, before)).state == "done"
    assert history(calls, before) == ["submitted", "claimed", "done"]
    waiting = calls.submit("nap", {})  # submitted while nobody serves
    async with serving(calls, log, "nap"):
        assert (await ended(calls, waiting)).state == "done"
    assert history(calls, waiting) == ["submitted", "claimed", "done"]
    assert messages(calls) == 0


def _submit_and_wait(address: Address) -> None:
    watch._RECHECK_S = 3_600.0
    calls = open_calls(address, LEASE_S)
    assert asyncio.run(calls.wait(calls.submit("nap", {}), PATIENCE_S)).state == "done"


async def test_a_call_of_another_process_starts_and_its_result_arrives_without_looking_again(
    address: Address, calls: Recorded, log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dispatch, "_LOOK_S", 3_600.0)
    async with serving(calls, log, "nap"):
        await ended(calls, calls.submit("nap", {}))  # From now on the worker waits.
        for _ in range(3):
            other = FORKS.Process(target=_submit_and_wait, args=(address,))
            other.start()
            await asyncio.to_thread(other.join, PATIENCE_S)
            assert other.exitcode == 0


async def test_a_tool_that_comes_later_takes_what_waits(calls: Recorded, log: Log) -> None:
    names, stop = ["snoozer"], asyncio.Event()
    task = asyncio.create_task(worker_of(calls, log, names).run(stop))
    waiting = calls.submit("nap", {})
    await ended(calls, calls.submit("snoozer", {"times": 1}))
    names.append("nap")  # as a manifest that is added, or a tool of a bundle
    async with asyncio.timeout(PATIENCE_S / 2):
        assert (await ended(calls, waiting)).state == "done"
    stop.set()
    await task


async def test_a_hundred_snoozes_are_no_attempts(calls: Recorded, log: Log) -> None:
    call_id = calls.submit("snoozer", {"times": 100})
    async with serving(calls, log, "snoozer"):
        call = await ended(calls, call_id)
    assert (call.state, call.attempts, call.snoozes, value(call)) == ("done", 1, 100, 100)
    assert history(calls, call_id) == ["submitted", *["claimed", "snooze"] * 100, "claimed", "done"]


async def test_failures_are_retried(calls: Recorded, log: Log) -> None:
    call_id = calls.submit("shaky", {"times": 2})
    async with serving(calls, log, "shaky"):
        call = await ended(calls, call_id)
    assert (call.state, call.attempts) == ("done", 3)
    assert history(calls, call_id) == ["submitted", *["claimed", "retry"] * 2, "claimed", "done"]


async def test_a_delay_is_kept(calls: Recorded, log: Log) -> None:
    async with serving(calls, log, "nap"):
        await ended(calls, calls.submit("nap", {}))  # From now on the worker waits.
        never, late = (calls.submit("nap", {}, delay_s=delay_s) for delay_s in (3_600, 1.5))
        await ended(calls, calls.submit("nap", {}))
        done = await ended(calls, late)
    (attempt,) = calls.attempts(late)
    assert attempt.began_at >= done.submitted_at + 1.5
    assert history(calls, late) == ["submitted", "claimed", "done"]
    assert history(calls, never) == ["submitted"]


async def test_higher_priorities_come_first_then_what_was_first(calls: Recorded, log: Log) -> None:
    for n, priority in enumerate([0, 2, 0, 2, -1]):
        calls.submit("nap", {"n": n}, priority=priority)
    async with serving(calls, log, "nap", concurrency=1):
        await until(lambda: len(log.lines("end")) == 5)
    assert [n for n, _ in log.lines("start")] == ["1", "3", "0", "2", "4"]


async def test_a_worker_takes_only_calls_of_tools_it_has(calls: Recorded, log: Log) -> None:
    other = calls.submit("nap2", {})
    async with serving(calls, log, "nap"):
        await ended(calls, calls.submit("nap", {}))
        assert history(calls, other) == ["submitted"]
    async with serving(calls, log, "nap", "nap2"):
        assert (await ended(calls, other)).state == "done"
    assert history(calls, other) == ["submitted", "claimed", "done"]


async def test_no_more_calls_run_at_a_time_than_are_allowed(calls: Recorded, log: Log) -> None:
    ids = [calls.submit("hold", {"n": n}) for n in range(6)]
    async with serving(calls, log, "hold", concurrency=2):
        await until(lambda: len(log.lines("start")) == 2)
        log.path.with_name("go").touch()
        for call_id in ids:
            await ended(calls, call_id)
    running, most = 0, 0
    for line in log.path.read_text().splitlines():
        running += 1 if line.startswith("start") else -1
        most = max(most, running)
    assert most == 2


async def test_what_is_rolled_back_never_was(calls: Recorded, log: Log) -> None:
    def failing() -> None:
        with calls.database.write("mine") as tx:
            calls.submit("nap", {}, transaction=tx)
            raise OSError

    calls.submit("nap2", {})
    before = messages(calls)
    with pytest.raises(OSError, match=r"^$"):
        failing()
    assert messages(calls) == before
    async with serving(calls, log, "nap"):
        await ended(calls, calls.submit("nap", {"n": 7}))
    assert [n for n, _ in log.lines("start")] == ["7"]


# --- the end of a worker


async def test_a_drained_worker_ends_what_it_has_and_takes_nothing_more(calls: Recorded, log: Log) -> None:
    first = calls.submit("hold", {})
    async with serving(calls, log, "hold"):
        await until(lambda: log.lines("start"))
        log.path.with_name("go").touch()
        await ended(calls, first)
    second = calls.submit("hold", {})
    assert history(calls, first) == ["submitted", "claimed", "done"]
    assert history(calls, second) == ["submitted"]


async def test_a_worker_that_gets_a_signal_drains(
    calls: Recorded, log: Log, start: Callable[..., WorkerProcess]
) -> None:
    worker = start("hold")
    first = calls.submit("hold", {})
    await until(lambda: log.lines("start"))
    worker.send(signal.SIGTERM)
    await until(lambda: log.lines("stops"))
    second = calls.submit("hold", {})
    log.path.with_name("go").touch()
    assert (await ended(calls, first)).state == "done"
    await until(lambda: worker.process.poll() is not None)
    assert worker.process.returncode == 0
    assert history(calls, second) == ["submitted"]
    async with serving(calls, log, "hold"):
        assert (await ended(calls, second)).state == "done"


async def test_a_cancelled_worker_hands_back_and_nothing_has_failed(calls: Recorded, log: Log) -> None:
    call_id = calls.submit("hold", {})
    task = asyncio.create_task(worker_of(calls, log, ["hold"]).run(asyncio.Event()))
    await until(lambda: log.lines("start"))
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert calls.find(call_id).attempts == 0
    log.path.with_name("go").touch()
    async with serving(calls, log, "hold"):
        assert (await ended(calls, call_id)).state == "done"
    assert history(calls, call_id) == ["submitted", "claimed", "handed_back", "claimed", "done"]


@pytest.mark.parametrize("address", ["sqlite"], indirect=True)
async def test_a_look_that_is_under_way_takes_nothing_after_the_end(calls: Recorded) -> None:
    looks, goes_on, stop = asyncio.Event(), threading.Event(), asyncio.Event()
    loop, taken = asyncio.get_running_loop(), []

    class Slow(dict[str, Take]):
        def get(self, key: str, default: Any = None) -> Any:
            loop.call_soon_threadsafe(looks.set)
            assert goes_on.wait(PATIENCE_S)
            return super().get(key, default)

    calls.submit("nap", {})
    handlers = Slow({entry_of("nap"): lambda _tx, key: taken.append(key)})
    task = asyncio.create_task(calls.dispatcher.serve(handlers, stop=stop))
    await looks.wait()
    stop.set()
    goes_on.set()
    await task
    assert taken == []
    assert messages(calls) == 1


@pytest.mark.parametrize("repeatable", [True, False])
async def test_the_call_of_a_killed_worker_is_taken_over(
    calls: Recorded, log: Log, start: Callable[..., WorkerProcess], repeatable: bool
) -> None:
    victim = start("hold")
    call_id = calls.submit("hold", {}, repeatable=repeatable)
    await until(lambda: log.lines("start"))
    victim.end(signal.SIGKILL)
    log.path.with_name("go").touch()
    async with serving(calls, log, "hold"):
        call = await ended(calls, call_id)
    if repeatable:
        assert (call.state, call.attempts, call.rescues) == ("done", 1, 1)
        assert history(calls, call_id) == ["submitted", "claimed", "lost", "claimed", "done"]
    else:
        assert call.state == "unknown"
        assert history(calls, call_id) == ["submitted", "claimed", "lost"]


async def test_the_late_result_of_a_frozen_worker_is_refused(
    calls: Recorded, log: Log, address: Address, start: Callable[..., WorkerProcess]
) -> None:
    frozen = start("hold")
    call_id = calls.submit("hold", {}, repeatable=True)
    await until(lambda: log.lines("start"))
    freeze(frozen.pid, address)
    log.path.with_name("go").touch()
    second = start("hold")
    call = await ended(calls, call_id)
    assert value(call) == second.pid
    frozen.send(signal.SIGCONT)
    await until(lambda: log.lines("refused"))
    assert log.lines("refused") == [[call_id, str(frozen.pid)]]
    assert calls.find(call_id) == call
    assert history(calls, call_id) == ["submitted", "claimed", "lost", "claimed", "done"]


@pytest.mark.parametrize("address", ["postgres"], indirect=True)  # one machine has one clock
async def test_the_clock_of_a_worker_does_not_matter(
    calls: Recorded, log: Log, start: Callable[..., WorkerProcess]
) -> None:
    start("hold", ahead_s=3600.0, lease_s=600)
    start("nap", ahead_s=-3600.0, lease_s=600)
    call_id = calls.submit("hold", {})
    late = calls.submit("nap", {}, delay_s=3.0)
    await until(lambda: log.lines("start"))
    await asyncio.sleep(3)  # Each has looked for lost calls meanwhile.
    log.path.with_name("go").touch()
    assert (await ended(calls, call_id)).state == "done"
    assert history(calls, call_id) == ["submitted", "claimed", "done"]
    done = await ended(calls, late)
    assert calls.attempts(late)[0].began_at >= done.submitted_at + 3.0
    assert history(calls, late) == ["submitted", "claimed", "done"]


# --- the database


async def test_a_worker_outlives_the_connections_to_the_database(
    calls: Recorded, log: Log, address: Address
) -> None:
    async with serving(calls, log, "hold", "nap"):
        running = calls.submit("hold", {})
        await until(lambda: log.lines("start"))
        if isinstance(address, str):
            with psycopg.connect(address, autocommit=True) as connection:
                connection.execute(
                    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                    " WHERE application_name = 'toolcrib' AND pid <> pg_backend_pid()"
                )
        else:
            calls.database.close()
        log.path.with_name("go").touch()
        assert (await ended(calls, running)).state == "done"
        after = calls.submit("nap", {})
        assert (await ended(calls, after)).state == "done"
    assert history(calls, running) == ["submitted", "claimed", "done"]
    assert history(calls, after) == ["submitted", "claimed", "done"]


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGQUIT])
async def test_a_worker_outlives_a_restart_of_the_database(
    calls: Recorded, log: Log, address: Address, request: pytest.FixtureRequest, how: signal.Signals
) -> None:
    waiting = calls.submit("nap2", {})
    async with serving(calls, log, "hold", "nap"):
        running = calls.submit("hold", {})
        await until(lambda: log.lines("start"))
        if isinstance(address, str):
            server: PostgresProcess = request.getfixturevalue("postgres")
            await asyncio.to_thread(server.stop, how)
            await asyncio.sleep(LEASE_S)
            server.start()  # It would end with a thread that started it.
        else:
            calls.database.close()
        log.path.with_name("go").touch()
        assert (await ended(calls, running)).state == "done"
        assert (await ended(calls, calls.submit("nap", {}))).state == "done"
    async with serving(calls, log, "nap2"):
        assert (await ended(calls, waiting)).state == "done"
    assert history(calls, running) == ["submitted", "claimed", "done"]
    assert history(calls, waiting) == ["submitted", "claimed", "done"]


async def test_a_worker_waits_for_a_database_that_is_away_when_it_starts(
    calls: Recorded, log: Log, address: Address, request: pytest.FixtureRequest
) -> None:
    if isinstance(address, Path):
        file = address / "state.db"
        file.symlink_to("elsewhere")  # It is refused.
        come_back: Callable[[], object] = file.unlink
    else:
        server: PostgresProcess = request.getfixturevalue("postgres")
        server.stop(signal.SIGQUIT)
        come_back = server.start
    async with serving(calls, log, "nap"):
        await asyncio.sleep(1.0)  # Long enough to end, and too short to prove that it does not.
        come_back()
        await until(lambda: is_there(calls))
        assert (await ended(calls, calls.submit("nap", {}))).state == "done"


def is_there(calls: Recorded) -> bool:
    with suppress(StateUnavailable):
        return calls.page() == []
    return False


async def test_a_worker_keeps_its_calls_whatever_fails_once_a_second(
    calls: Recorded, log: Log, caplog: pytest.LogCaptureFixture
) -> None:
    failed, on = asyncio.Event(), asyncio.Event()
    loop = asyncio.get_running_loop()

    def fail() -> None:
        raise RuntimeError("dictionary changed size during iteration")

    def keep() -> None:
        loop.call_soon_threadsafe((on if failed.is_set() else failed).set)

    stop = asyncio.Event()
    task = asyncio.create_task(worker_of(calls, log, ["nap"], on_beat=[fail, keep]).run(stop))
    async with asyncio.timeout(PATIENCE_S):
        await failed.wait()
        await on.wait()
    stop.set()
    await task
    assert "dictionary changed size" in caplog.text


async def test_a_worker_whose_dispatcher_fails_says_so(address: Address, log: Log) -> None:
    class Broken(EmbeddedDispatcher):
        async def serve(self, *_: Any, **__: Any) -> None:
            raise OSError("broken")

    database = open_database(address, "state", PROJECT)
    calls = DurableCalls(database, dispatcher=Broken(database))
    with pytest.raises(OSError, match="broken"):
        await worker_of(calls, log, ["nap"]).run(asyncio.Event())


class OneByOne(Recorded):
    """Durable calls whose database takes no two results together."""

    def finish_all(self, results: Collection[tuple[ClaimedCall, bytes]]) -> list[ClaimedCall]:
        if len(results) > 1:
            raise OSError("together")
        return super().finish_all(results)


async def test_a_result_that_cannot_be_recorded_stops_no_other(log: Log, address: Address) -> None:
    database = open_database(address, "state", PROJECT)
    calls = OneByOne(database, dispatcher=dispatcher_of(database, LEASE_S))
    async with serving(calls, log, "hold"):
        ids = [calls.submit("hold", {"n": n}) for n in range(6)]
        await until(lambda: len(log.lines("start")) == len(ids))
        log.path.with_name("go").touch()
        for call_id in ids:
            assert (await ended(calls, call_id)).state == "done"
            assert history(calls, call_id) == ["submitted", "claimed", "done"]


async def test_what_nobody_was_told_of_is_found(calls: Recorded, log: Log, address: Address) -> None:
    other = open_database(address, "state", PROJECT)  # As another process, it wakes nobody here.
    quiet = open_calls(address, LEASE_S)
    async with serving(calls, log, "nap"):
        await ended(calls, calls.submit("nap", {}))
        with other.write("quiet") as tx:
            if isinstance(address, str):  # no notification is sent
                tx.run("SET LOCAL session_replication_role = replica")
            call_id = quiet.submit("nap", {}, transaction=tx)
            tx.after_commit.clear()
        assert (await ended(calls, call_id)).state == "done"
    assert history(calls, call_id) == ["submitted", "claimed", "done"]


_FULL = """
CREATE FUNCTION full_disk() RETURNS TRIGGER AS $$ BEGIN
    RAISE EXCEPTION 'could not extend file: No space left on device' USING ERRCODE = 'disk_full';
END $$ LANGUAGE plpgsql
"""
_FULL_CALLS = "CREATE TRIGGER full_disk BEFORE INSERT OR UPDATE ON calls EXECUTE FUNCTION full_disk()"


@contextmanager
def full_disk(database: Database) -> Iterator[None]:
    """Let the database itself say that there is no room: for any change of a call, or for a new page."""
    with database.write("full") as tx:
        if isinstance(database, PostgresDatabase):
            tx.run(_FULL)
            tx.run(_FULL_CALLS)
        else:
            (pages,) = tx.one("PRAGMA page_count") or (0,)
            tx.all(f"PRAGMA max_page_count = {pages}")
    yield
    with database.write("full") as tx:
        if isinstance(database, PostgresDatabase):
            tx.run("DROP TRIGGER full_disk ON calls")
        else:
            tx.all("PRAGMA max_page_count = 1000000")


async def test_a_worker_ends_in_time_where_nothing_can_be_recorded(calls: Recorded, log: Log) -> None:
    call_id, stop = calls.submit("hold", {}, repeatable=True), asyncio.Event()
    task = asyncio.create_task(worker_of(calls, log, ["hold"]).run(stop, 1.0))
    await until(lambda: log.lines("start"))
    with full_disk(calls.database):
        log.path.with_name("go").touch()
        await until(lambda: log.lines("end"))
        stop.set()
        async with asyncio.timeout(PATIENCE_S):
            await task
    async with serving(calls, log, "hold"):
        assert (await ended(calls, call_id)).state == "done"
    assert history(calls, call_id).count("done") == 1


async def test_a_full_disk_stops_calls_and_loses_none(calls: Recorded, log: Log) -> None:
    waiting = calls.submit("nap", {})
    with full_disk(calls.database):
        async with serving(calls, log, "nap"):
            with pytest.raises(StateUnavailable):
                calls.submit("nap2", {"text": "x" * 1_000_000})
            await asyncio.sleep(1.0)
    async with serving(calls, log, "nap"):
        assert (await ended(calls, waiting)).state == "done"
    assert history(calls, waiting) == ["submitted", "claimed", "done"]
    assert len(calls.page()) == 1


async def test_a_call_that_is_taken_again_is_kept_when_its_first_attempt_ends_late(
    calls: Recorded, log: Log
) -> None:
    stop, late = asyncio.Event(), asyncio.Event()
    worker = worker_of(calls, log, ["hold"], name="w")
    serving = asyncio.create_task(worker.run(stop))
    await until(lambda: live_workers(calls.database, LEASE_S))

    async def first_attempt() -> None:
        await late.wait()

    claim = calls.adopt("w", tool="hold", arguments={})
    first = asyncio.create_task(first_attempt())
    worker.adopt(claim, first)
    calls.cancel(claim.id)
    calls.retry(claim.id)
    await until(lambda: log.lines("start"))
    late.set()
    await asyncio.wait({first})

    def lease() -> float | None:
        ((end,),) = calls.database.rows("SELECT lease_ends_at FROM calls WHERE id = ?", claim.id)
        return None if end is None else float(end)

    taken = lease()
    assert taken is not None
    await until(lambda: (now := lease()) is None or now > taken + LEASE_S)
    log.path.with_name("go").touch()
    assert (await ended(calls, claim.id)).state == "done"
    stop.set()
    await serving
