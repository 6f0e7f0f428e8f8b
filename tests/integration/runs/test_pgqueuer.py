"""The dispatcher on Postgres: what PgQueuer brings, and what must hold whatever becomes of its tables."""

from __future__ import annotations

import asyncio
import signal
import uuid
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from itertools import pairwise
from pathlib import Path

import psycopg
import pytest

from tests.crib import Crib
from tests.databases import close_databases, open_database
from tests.durable_worker import Log, Recorded, WorkerProcess, open_calls, worker_of
from tests.patience import patient, wait_for
from tests.postgres import PostgresProcess
from toolcrib import Project
from toolcrib.errors import InvalidInput, StateUnavailable
from toolcrib.runs import (
    Delivery,
    EmbeddedDispatcher,
    PgQueuerDispatcher,
    dispatcher_for,
    live_workers,
    worker_name,
)
from toolcrib.runs.serving import Handlers, Take
from toolcrib.runs.sessions import RunDraft, durable_runs
from toolcrib.state import PROJECT, SqliteDatabase
from toolcrib.state.drivers.postgres import PostgresDatabase

PATIENCE_S = 60.0


@pytest.fixture
def url(postgres: PostgresProcess) -> Iterator[str]:
    yield postgres.url(f"queue_{uuid.uuid4().hex}")
    close_databases()


@pytest.fixture
def calls(url: str) -> Recorded:
    return open_calls(url, 2.0)


@pytest.fixture
def log(tmp_path: Path) -> Log:
    return Log(tmp_path)


@asynccontextmanager
async def serving(calls: Recorded, log: Log, *names: str) -> AsyncIterator[None]:
    stop = asyncio.Event()
    task = asyncio.create_task(worker_of(calls, log, names).run(stop))
    try:
        yield
    finally:
        stop.set()
        async with asyncio.timeout(PATIENCE_S):
            await task


def test_only_the_end_of_a_call_is_announced(calls: Recorded, url: str) -> None:
    calls.submit("nap", {})
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("LISTEN toolcrib")
        call_id = calls.submit("nap", {})
        with calls.database.write("take") as tx:
            claim = calls.take(tx, call_id, "w")
        assert claim is not None
        assert calls.finish(claim, b"1")
        (found,) = connection.notifies(timeout=30, stop_after=1)
        schema = bytes.fromhex(found.payload.partition("/")[0]).decode()
        more = [one for one in connection.notifies(timeout=0.5) if one.payload == found.payload]
    assert (schema in url, more) == (True, [])


async def test_a_lease_counts_from_the_moment_at_which_the_server_answers_again(
    calls: Recorded, url: str, postgres: PostgresProcess
) -> None:
    runs = durable_runs(calls)
    call_id, run_id = calls.submit("nap", {}), runs.store.create_run(None, RunDraft("a", "{}", "m", "hi", {}))
    with calls.database.write("take") as tx:
        claim, step = calls.take(tx, call_id, "w"), runs.changes.claim(tx, run_id, "w")
    assert claim is not None
    assert step is not None
    other = open_calls(url, 4.0)
    others = durable_runs(other).changes
    assert (other.rescue(), others.rescue()) == ([], [])
    postgres.stop(signal.SIGQUIT)
    with pytest.raises(StateUnavailable):
        other.rescue()
    postgres.start()
    await asyncio.sleep(5)  # As if it had answered only now: from its start, the lease is over.
    assert (other.rescue(), others.rescue()) == ([], [])
    assert calls.finish(claim, b"1")
    assert runs.changes.renew([step]) == [step]


async def test_what_is_lost_from_the_queue_is_sent_again(calls: Recorded, log: Log, url: str) -> None:
    ids = [calls.submit("nap", {"n": n}) for n in range(20)]
    with psycopg.connect(url) as connection:
        connection.execute("DELETE FROM pgqueuer")
    async with serving(calls, log, "nap"):
        for call_id in ids:
            assert (await calls.wait(call_id, PATIENCE_S)).state == "done"
    assert sorted(int(n) for n, _ in log.lines("start")) == list(range(20))


def test_its_tables_are_made_before_the_transaction_that_sends(calls: Recorded, url: str) -> None:
    with calls.database.write() as tx:  # Nothing else may run beside it.
        calls.submit("nap", {}, transaction=tx)
    with psycopg.connect(url) as connection:
        assert connection.execute("SELECT COUNT(*) FROM pgqueuer").fetchone() == (1,)


async def test_a_message_that_a_dead_worker_picked_is_delivered_again(
    calls: Recorded, log: Log, url: str
) -> None:
    call_id = calls.submit("nap", {})
    with psycopg.connect(url) as connection:
        connection.execute(
            "UPDATE pgqueuer SET status = 'picked', queue_manager_id = gen_random_uuid(), heartbeat = NOW()"
        )
    async with serving(calls, log, "nap"):
        assert (await calls.wait(call_id, PATIENCE_S)).state == "done"
    assert len(log.lines("start")) == 1


async def test_what_a_worker_of_this_machine_had_picked_is_delivered_as_soon_as_it_is_dead(
    log: Log, url: str, tmp_path: Path
) -> None:
    calls = open_calls(url, 300.0)
    worker = WorkerProcess(url, tmp_path, "other", lease_s=300.0)
    await asyncio.to_thread(wait_for, lambda: live_workers(calls.database, 300.0), "its entry")
    call_id = calls.submit("nap", {})
    with psycopg.connect(url) as connection:
        connection.execute(
            "UPDATE pgqueuer SET status = 'picked', heartbeat = NOW(),"
            " queue_manager_id = (SELECT CAST(id AS UUID) FROM workers)"
        )
    worker.end()
    async with serving(calls, log, "nap"):
        assert (await calls.wait(call_id, patient(10.0))).state == "done"
        assert [one.name for one in live_workers(calls.database, 300.0)] == [worker_name()]


async def test_a_message_that_comes_twice_is_one_call(calls: Recorded, log: Log) -> None:
    call_id = calls.submit("nap", {"ms": 300})
    for _ in range(5):
        with calls.database.write("twice") as tx:
            calls.dispatcher.send(tx, Delivery("call:nap", call_id))
    async with serving(calls, log, "nap"):
        assert (await calls.wait(call_id, PATIENCE_S)).state == "done"
    assert len(log.lines("start")) == 1
    assert [change.kind for change in calls.changes(call_id)] == ["submitted", "claimed", "done"]


async def test_a_call_with_a_message_is_not_sent_again(calls: Recorded) -> None:
    calls.submit("nap", {})
    later = calls.submit("nap", {}, delay_s=3600)
    assert calls.resend() == 0
    assert calls.find(later).state == "ready"


def test_the_environment_of_another_queue_changes_nothing(
    calls: Recorded, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PGQUEUER_PREFIX", "other_")
    monkeypatch.setenv("PGQUEUER_QUEUE_TABLE", "jobs")
    calls.submit("nap", {})
    with psycopg.connect(url) as connection:
        assert connection.execute("SELECT count(*), min(entrypoint) FROM pgqueuer").fetchone() == (
            1,
            "call:nap",
        )


async def test_the_tables_are_those_of_the_installed_pgqueuer(calls: Recorded) -> None:
    from pgqueuer.queries import Queries

    from toolcrib.runs import serve_postgres

    calls.submit("nap", {})
    database = calls.database
    assert isinstance(database, PostgresDatabase)
    async with await database.server.connect_async() as connection:
        queries = Queries.from_psycopg_connection(connection)
        queries.qbe.settings = serve_postgres.settings(database.server.schema)
        assert (await queries.plan_upgrade()).statements == ()


class Many(Handlers):
    """A million entries, of which one look may not make a list."""

    def __init__(self) -> None:
        self.taken, self.asked = list[str](), list[str]()

    def __contains__(self, entry: object) -> bool:
        self.asked.append(str(entry))
        return str(entry).startswith("call:")

    def __getitem__(self, entry: str) -> Take:
        return lambda _tx, key: self.taken.append(key)

    def __iter__(self) -> Iterator[str]:
        raise AssertionError("all entries are read")

    def __len__(self) -> int:
        return 1_000_000


async def test_a_look_asks_only_about_entries_with_messages(calls: Recorded) -> None:
    dispatcher = dispatcher_for(calls.database)
    with calls.database.write() as tx:
        dispatcher.send(
            tx, *(Delivery(f"{kind}:{n}", f"{kind}{n}") for kind in ("call", "run") for n in "12")
        )
    many, stop = Many(), asyncio.Event()
    task = asyncio.create_task(dispatcher.serve(many, stop=stop))
    await asyncio.to_thread(wait_for, lambda: sorted(many.taken) == ["call1", "call2"], "what is sent")
    stop.set()
    await task
    assert set(many.asked) == {"call:1", "call:2", "run:1", "run:2"}


def test_each_database_has_its_dispatcher(calls: Recorded, tmp_path: Path) -> None:
    assert isinstance(dispatcher_for(calls.database), PgQueuerDispatcher)
    file = open_database(tmp_path, "state", PROJECT)
    assert isinstance(file, SqliteDatabase)
    assert isinstance(dispatcher_for(file), EmbeddedDispatcher)


# --- a project


async def test_a_limit_of_concurrent_calls_counts_over_all_workers(crib: Crib, url: str) -> None:
    crib.shell("slow", limits={"concurrent_calls": 1})
    async with (
        Project.open(crib.root, accept="all", database=url) as one,
        Project.open(crib.root, accept="all", database=url) as two,
    ):
        ids = [one.submit("slow", {"c": "sleep 0.1"}) for _ in range(5)]
        two.calls.serve()
        calls = [await one.calls.wait(call_id, PATIENCE_S) for call_id in ids]
        attempts = [attempt for call_id in ids for attempt in one.calls.stored.attempts(call_id)]
    assert [(call.state, call.snoozes) for call in calls] == [("done", 0)] * 5  # none was taken in vain
    attempts.sort(key=lambda attempt: attempt.began_at)
    for before, after in pairwise(attempts):
        assert before.ended_at is not None
        assert after.began_at >= before.ended_at


async def test_a_call_is_submitted_in_the_transaction_of_the_program(crib: Crib, url: str) -> None:
    async with Project.open(crib.root, accept="all", database=url) as project:

        @project.toolset.tool
        def add(a: int, b: int) -> int:
            """Add."""
            return a + b

        with psycopg.connect(url.partition("&options")[0]) as connection:
            project.submit("add", {"a": 1, "b": 2}, connection=connection)
            connection.rollback()
            assert project.calls.page() == []
            kept = project.submit("add", {"a": 1, "b": 2}, connection=connection)
            assert project.calls.page() == []
        assert (await project.calls.wait(kept, PATIENCE_S)).outcome().value == 3
        async with await psycopg.AsyncConnection.connect(url) as other:
            second = await project.calls.submit_in_async(other, "add", {"a": 2, "b": 2})
        assert (await project.calls.wait(second, PATIENCE_S)).outcome().value == 4
    async with Project.open(crib.root, accept="all", database="sqlite") as project:
        crib.shell("plain")
    async with Project.open(crib.root, accept="all", database="sqlite") as project:
        with psycopg.connect(url) as connection, pytest.raises(InvalidInput, match="in a SQLite file"):
            project.submit("plain", {"c": "true"}, connection=connection)


async def test_workers_in_processes_share_the_calls(
    calls: Recorded, log: Log, url: str, tmp_path: Path
) -> None:
    workers = [WorkerProcess(url, tmp_path, "nap", lease_s=5.0) for _ in range(2)]
    try:
        ids = [calls.submit("nap", {"n": n, "ms": 100}) for n in range(80)]
        for call_id in ids:
            assert (await calls.wait(call_id, PATIENCE_S)).state == "done"
    finally:
        for worker in workers:
            worker.end()
    assert sorted(int(n) for n, _ in log.lines("start")) == list(range(80))


async def test_a_run_whose_message_was_lost_is_sent_again(calls: Recorded, url: str) -> None:
    runs = durable_runs(calls)
    runs.store.create_run(None, RunDraft("a", "{}", "m", "hello", {}))
    assert calls.resend() == 0
    with psycopg.connect(url) as connection:
        connection.execute("DELETE FROM pgqueuer")
    again = open_calls(url, 2.0)
    durable_runs(again)
    assert again.resend() == 1


def test_a_worker_that_is_frozen_in_a_transaction_keeps_no_other_from_renewing(
    calls: Recorded, url: str
) -> None:
    call_id = calls.submit("nap", {})
    with calls.database.write("take") as tx:
        claim = calls.take(tx, call_id, "w")
    assert claim is not None
    frozen = open_calls(url, 2.0)
    with frozen.database.write("calls claim") as tx:
        frozen.submit("nap", {}, transaction=tx)
        assert calls.renew([claim]) == [claim]
        assert calls.submit("nap", {}) != call_id
        assert calls.finish(claim, b"1")


async def test_the_event_loop_goes_on_while_the_server_does_not_answer(calls: Recorded, url: str) -> None:
    call_id = calls.submit("nap", {})
    held = "SELECT COUNT(*) FROM pg_locks WHERE NOT granted AND relation = 'calls'::regclass"

    async def until_it_waits() -> None:
        other.execute("LOCK TABLE calls IN ACCESS EXCLUSIVE MODE")
        calls._ends.notify()
        async with asyncio.timeout(PATIENCE_S):
            while other.execute(held).fetchone() == (0,):  # noqa: ASYNC110 - what is awaited is in a database
                await asyncio.sleep(0.02)
        other.rollback()

    with psycopg.connect(url) as other:
        waiting = asyncio.create_task(calls.wait(call_id, PATIENCE_S))
        await until_it_waits()  # The look at this call.
        await until_it_waits()  # The look that all who wait have in common.
        calls.cancel(call_id)
        assert (await waiting).state == "cancelled"
