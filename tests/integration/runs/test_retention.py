"""What ended long ago is removed, on every driver, and nothing else."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.databases import Address, clocked, open_database
from tests.guarded import Wall
from tests.integration.runs.test_calls import claimed
from toolcrib.runs import DurableCalls, retention
from toolcrib.runs.retention import _DUE_RUNS, Pruned, Pruner, Retention
from toolcrib.runs.sessions import RunDraft, durable_runs
from toolcrib.runs.sessions.durable import DurableRuns
from toolcrib.state import PROJECT, Database

DAY = 86_400
TABLES = ("calls", "call_events", "call_attempts", "runs", "run_events", "run_messages", "sessions")


@pytest.fixture
def wall() -> Wall:
    return Wall()


@pytest.fixture
def database(address: Address, wall: Wall) -> Database:
    return clocked(open_database(address, "state", PROJECT), wall)


@pytest.fixture
def both(database: Database) -> DurableRuns:
    return durable_runs(DurableCalls(database))


def rows(database: Database) -> dict[str, int]:
    return {table: database.rows(f"SELECT COUNT(*) FROM {table}")[0][0] for table in TABLES}


def draft() -> RunDraft:
    return RunDraft("agent", "{}", "scripted", "do it")


def test_calls_go_thirty_days_after_their_end(database: Database, both: DurableRuns, wall: Wall) -> None:
    calls, pruner = both.calls, Pruner(database, Retention())
    old, again, waits = (calls.submit("t", {"n": n}) for n in range(3))
    assert calls.finish(claimed(calls), b"1")
    calls.cancel(again)
    wall.now += 10 * DAY
    young = calls.submit("t", {})
    calls.cancel(young)
    wall.now += 20 * DAY - 1
    assert pruner.prune() == Pruned()
    wall.now += 2
    calls.retry(again)
    assert pruner.prune() == Pruned(calls=1)
    assert {one.id for one in calls.page()} == {again, waits, young}
    assert old not in {call for (call,) in database.rows("SELECT call_id FROM call_events")}
    assert database.rows("SELECT COUNT(*) FROM call_attempts") == [(0,)]
    wall.now += 30 * DAY
    assert pruner.prune() == Pruned(calls=1)
    assert {one.id for one in calls.page()} == {again, waits}


def test_a_run_goes_with_all_that_belongs_to_it(database: Database, both: DurableRuns, wall: Wall) -> None:
    pruner = Pruner(database, Retention())
    run = both.store.create_run(None, draft())
    call = both.calls.submit("t", {}, run_id=run)
    both.calls.cancel(call)
    both.tree.cancel(run)
    kept = both.store.create_run(None, draft())
    wall.now += 89 * DAY
    assert pruner.prune() == Pruned()
    wall.now += 2 * DAY
    assert pruner.prune() == Pruned(runs=1)
    assert [one.id for one in both.store.page()] == [kept]
    left = rows(database)
    assert (left["calls"], left["call_events"], left["sessions"]) == (0, 0, 1)
    assert {run_id for (run_id,) in database.rows("SELECT run_id FROM run_events")} == {kept}
    assert {run_id for (run_id,) in database.rows("SELECT run_id FROM run_messages")} == {kept}


def test_a_run_of_more_calls_than_one_statement_takes_goes_too(
    database: Database, both: DurableRuns, wall: Wall, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retention, "_TOGETHER", 2)
    run = both.store.create_run(None, draft())
    for number in range(5):
        both.calls.cancel(both.calls.submit("t", {"n": number}, run_id=run))
    both.tree.cancel(run)
    wall.now += 91 * DAY
    assert Pruner(database, Retention()).prune() == Pruned(runs=1)
    assert set(rows(database).values()) == {0}


def test_a_session_keeps_its_runs_while_it_continues(
    database: Database, both: DurableRuns, wall: Wall
) -> None:
    pruner = Pruner(database, Retention())
    session = both.store.create_session()
    both.tree.cancel(both.store.create_run(session, draft()))
    wall.now += 60 * DAY
    later = both.store.create_run(session, draft())
    wall.now += 60 * DAY
    assert pruner.prune() == Pruned()
    both.tree.cancel(later)
    wall.now += 91 * DAY
    assert pruner.prune() == Pruned(runs=2)
    assert set(rows(database).values()) == {0}


def test_failed_runs_are_kept_longer(database: Database, both: DurableRuns, wall: Wall) -> None:
    pruner = Pruner(database, Retention(runs_days=1, failed_days=3))
    failed, cancelled = both.store.create_run(None, draft()), both.store.create_run(None, draft())
    both.tree.cancel(failed)
    both.tree.cancel(cancelled)
    with database.write() as tx:
        tx.run("UPDATE runs SET state = 'failed' WHERE id = ?", failed)
    wall.now += 2 * DAY
    pruner.beat()
    assert [one.id for one in both.store.page()] == [failed]
    wall.now += 2 * DAY
    assert Pruner(database, Retention(runs_days=1, failed_days=3)).prune() == Pruned(runs=1)


def test_the_file_shrinks(tmp_path: Path, wall: Wall) -> None:
    database: Any = clocked(open_database(tmp_path, "state", PROJECT), wall)
    calls = DurableCalls(database)
    for _ in range(600):
        calls.submit("t", {"text": "x" * 4_000})
    calls.cancel_all(tool="t")

    def pages() -> int:
        return int(database.rows("PRAGMA page_count")[0][0])

    before = pages()
    wall.now += 31 * DAY
    assert Pruner(database, Retention()).prune() == Pruned(calls=600)
    assert pages() < before / 3


@pytest.mark.parametrize(("how", "index"), [("<>", "runs_ended"), ("=", "runs_failed")])
def test_a_look_at_what_is_due_reads_nothing_that_is_kept(tmp_path: Path, how: str, index: str) -> None:
    """The cost stays the same beside a million failed runs, which are kept longer than others."""
    with open_database(tmp_path / "state.db", "state", PROJECT).write() as tx:
        plan = tx.all(f"EXPLAIN QUERY PLAN {_DUE_RUNS.format(how)}", 1.0, 1.0, 20)
    assert any(f"USING INDEX {index}" in step[-1] and "ended_at<?" in step[-1] for step in plan), plan
