"""Durable calls on every driver: the same steps give the same history, whatever is killed or frozen."""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
import time
from collections.abc import Iterable, Iterator
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import pytest

from tests.databases import Address, clocked, close_databases, open_database
from tests.guarded import Wall
from tests.processes import FORKS
from toolcrib.core.attempt import AttemptPolicy, decide
from toolcrib.errors import (
    ConflictError,
    IdempotencyConflict,
    NotFoundError,
    ToolCancel,
    ToolDiscard,
    ToolFailed,
    ToolSnooze,
)
from toolcrib.runs import ClaimedCall, DurableCalls, EmbeddedDispatcher, Take, entry_of
from toolcrib.runs.questions import Waits
from toolcrib.spec import Retry
from toolcrib.state import LEASE_S, PROJECT, Database

POLICY = AttemptPolicy(Retry(2, 0.0))


def opened(address: Address) -> Database:
    return open_database(address, "state", PROJECT)


@pytest.fixture
def wall() -> Wall:
    return Wall()


@pytest.fixture
def calls(address: Address, wall: Wall) -> DurableCalls:
    return DurableCalls(clocked(opened(address), wall))


def claim_next(
    calls: DurableCalls, tools: Iterable[str], worker: str, *, begins: bool = True
) -> ClaimedCall | None:
    """Take the next call, as a worker of these tools would."""
    taken: list[ClaimedCall | None] = []
    dispatcher = calls.dispatcher
    assert isinstance(dispatcher, EmbeddedDispatcher)
    handlers: dict[str, Take] = dict.fromkeys(
        map(entry_of, tools), lambda tx, key: taken.append(calls.take(tx, key, worker, begins=begins))
    )
    dispatcher.take(handlers)
    return taken[0] if taken else None


def claimed(calls: DurableCalls, worker: str = "w", *tools: str) -> ClaimedCall:
    claim = claim_next(calls, tools or ("t",), worker)
    assert claim is not None
    return claim


def history(calls: DurableCalls, call_id: str) -> list[str]:
    return [f"{change.kind} {change.detail}".strip() for change in calls.changes(call_id)]


def ended(calls: DurableCalls, claim: ClaimedCall, error: Exception) -> bool:
    return calls.decide(claim, decide(error, POLICY, claim.attempt, 0.5))


# --- one call


def test_a_call_is_stored_taken_and_recorded(calls: DurableCalls) -> None:
    call_id = calls.submit("t", {"n": 1}, caller="ada")
    assert calls.find(call_id).state == "ready"
    claim = claimed(calls)
    assert (claim.id, claim.tool, claim.arguments, claim.caller) == (call_id, "t", b'{"n": 1}', "ada")
    assert (claim.epoch, claim.attempt) == (1, 1)
    assert claim_next(calls, ["t"], "other") is None
    assert calls.finish(claim, b"2")
    assert not calls.finish(claim, b"3")
    call = calls.find(call_id)
    assert (call.state, call.result, call.attempts) == ("done", b"2", 1)
    assert history(calls, call_id) == ["submitted", "claimed w", "done"]
    (attempt,) = calls.attempts(call_id)
    assert (attempt.worker, attempt.ending) == ("w", "done")


def test_results_that_are_recorded_together_do_not_depend_on_each_other(calls: DurableCalls) -> None:
    ids = [calls.submit("t", {"n": n}) for n in range(3)]
    claims = [claimed(calls) for _ in ids]
    calls.cancel(ids[1])
    recorded = calls.finish_all([(claim, b"1") for claim in reversed(claims)])
    assert {claim.id for claim in recorded} == {ids[0], ids[2]}
    assert [calls.find(one).state for one in ids] == ["done", "cancelled", "done"]
    assert history(calls, ids[1]) == ["submitted", "claimed w", "cancelled"]
    assert [one.ending for one in calls.attempts(ids[2])] == ["done"]


def test_a_regular_error_is_retried_and_then_fails(calls: DurableCalls) -> None:
    call_id = calls.submit("t", {})
    assert ended(calls, claimed(calls), ToolFailed("first"))
    claim = claimed(calls)
    assert claim.attempt == 2
    assert ended(calls, claim, ToolFailed("second"))
    call = calls.find(call_id)
    assert (call.state, call.attempts) == ("failed", 2)
    assert json.loads(call.error or "")["message"] == "second"
    assert [one.ending for one in calls.attempts(call_id)] == ["retry", "failed"]


@pytest.mark.parametrize(
    ("error", "state"), [(ToolDiscard("bad"), "discarded"), (ToolCancel("never"), "cancelled")]
)
def test_what_the_tool_gives_up_ends_at_once(error: Exception, state: str, calls: DurableCalls) -> None:
    call_id = calls.submit("t", {})
    assert ended(calls, claimed(calls), error)
    assert calls.find(call_id).state == state
    assert claim_next(calls, ["t"], "w") is None


def test_a_hundred_snoozes_are_no_attempts(calls: DurableCalls, wall: Wall) -> None:
    call_id = calls.submit("t", {})
    for _ in range(100):
        claim = claimed(calls)
        assert claim.attempt == 1
        assert ended(calls, claim, ToolSnooze(60, "not yet"))
        assert claim_next(calls, ["t"], "w") is None
        wall.now += 60
    assert calls.finish(claimed(calls), b"1")
    call = calls.find(call_id)
    assert (call.state, call.attempts, call.snoozes) == ("done", 1, 100)


def test_a_tool_that_asks_for_no_pause_again_and_again_gets_one(calls: DurableCalls, wall: Wall) -> None:
    calls.submit("t", {})
    for _ in range(101):
        assert ended(calls, claimed(calls), ToolSnooze(0, "not yet"))
    assert claim_next(calls, ["t"], "w") is None
    wall.now += 1
    assert claimed(calls).snoozes == 101


def test_priority_then_time_then_order_and_only_known_tools(calls: DurableCalls, wall: Wall) -> None:
    late = calls.submit("t", {}, delay_s=10)
    first, second = calls.submit("t", {}), calls.submit("t", {})
    urgent = calls.submit("t", {}, priority=5)
    foreign = calls.submit("other", {})
    assert [claimed(calls).id for _ in range(3)] == [urgent, first, second]
    assert claim_next(calls, ["t"], "w") is None
    wall.now += 10
    assert claimed(calls).id == late
    assert claimed(calls, "w", "t", "other").id == foreign
    assert claim_next(calls, [], "w") is None


def test_a_key_is_one_call(calls: DurableCalls) -> None:
    call_id = calls.submit("t", {"n": 1}, idempotency_key="k")
    assert calls.submit("t", {"n": 1}, idempotency_key="k") == call_id
    assert calls.submit("t", {"n": 1}, idempotency_key="k", caller="other") != call_id
    with pytest.raises(IdempotencyConflict):
        calls.submit("t", {"n": 2}, idempotency_key="k")
    assert history(calls, call_id) == ["submitted"]


def test_a_call_in_a_transaction_that_fails_never_was(calls: DurableCalls, address: Address) -> None:
    db, ids = opened(address), []

    def fail() -> None:
        with db.write() as tx:
            ids.append(calls.submit("t", {}, transaction=tx))
            raise LookupError

    with pytest.raises(LookupError):
        fail()
    with pytest.raises(NotFoundError):
        calls.find(ids[0])
    assert claim_next(calls, ["t"], "w") is None


def test_what_was_cancelled_takes_no_result_and_may_be_tried_again(calls: DurableCalls) -> None:
    call_id = calls.submit("t", {})
    claim = claimed(calls)
    calls.cancel(call_id)
    assert not calls.finish(claim, b"late")
    assert calls.renew([claim]) == []
    with pytest.raises(ConflictError, match=f"call {call_id} has ended: it is cancelled"):
        calls.cancel(call_id)
    calls.retry(call_id)
    assert calls.finish(claimed(calls), b"1")
    with pytest.raises(ConflictError, match=f"call {call_id} is done; only a call"):
        calls.retry(call_id)
    with pytest.raises(NotFoundError):
        calls.retry("nothing")
    assert history(calls, call_id) == ["submitted", "claimed w", "cancelled", "retried", "claimed w", "done"]
    assert [one.ending for one in calls.attempts(call_id)] == ["cancelled", "done"]


def test_a_worker_that_ends_gives_its_calls_back_and_nothing_failed(calls: DurableCalls) -> None:
    call_id = calls.submit("t", {})
    assert calls.hand_back(claimed(calls))
    assert claimed(calls, "other").attempt == 1
    assert history(calls, call_id) == ["submitted", "claimed w", "handed_back", "claimed other"]


def test_pages_of_calls(calls: DurableCalls, wall: Wall) -> None:
    ids = []
    for _ in range(5):
        ids.append(calls.submit("t", {}))
        wall.now += 1
    calls.finish(claimed(calls), b"1")
    newest = calls.page(limit=2)
    assert [call.id for call in newest] == [ids[4], ids[3]]
    assert [call.id for call in calls.page(before=ids[3])] == [ids[2], ids[1], ids[0]]
    assert [call.id for call in calls.page("done")] == [ids[0]]


# --- silent workers


def test_the_call_of_a_silent_worker_is_taken_over_and_its_late_result_refused(
    calls: DurableCalls, wall: Wall
) -> None:
    call_id = calls.submit("t", {}, repeatable=True)
    frozen = claimed(calls, "frozen")
    wall.now += LEASE_S - 1
    assert calls.renew([frozen]) == [frozen]
    wall.now += LEASE_S - 0.1
    assert calls.rescue() == []
    wall.now += 0.1
    assert calls.rescue() == [call_id]
    taken = claimed(calls, "other")
    assert (taken.epoch, taken.attempt) == (2, 1)
    assert not calls.finish(frozen, b"late")
    assert not calls.hand_back(frozen)
    assert not calls.suspend(frozen, Waits(room="w"))
    assert calls.renew([frozen, taken]) == [taken]
    assert calls.finish(taken, b"1")
    assert history(calls, call_id) == ["submitted", "claimed frozen", "lost ready", "claimed other", "done"]


def test_a_call_outlives_the_sleep_of_its_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mine, other = (DurableCalls(opened(tmp_path), lease_s=1.0) for _ in range(2))
    call_id = mine.submit("t", {})
    claim = claimed(mine)
    awake = time.time
    monkeypatch.setattr(time, "time", lambda: awake() + 3600)
    assert other.rescue() == []  # Its worker woke up at the same time, and may renew it first.
    assert mine.renew([claim]) == [claim]
    deadline = time.monotonic() + 100
    while other.rescue() != [call_id]:  # It has died now.
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_what_may_not_run_twice_ends_unknown(calls: DurableCalls, wall: Wall) -> None:
    call_id = calls.submit("t", {})
    claim = claimed(calls)
    wall.now += LEASE_S
    assert calls.rescue() == [call_id]
    call = calls.find(call_id)
    assert call.state == "unknown"
    assert json.loads(call.error or "")["details"] == {"outcome": "unknown"}
    assert not calls.finish(claim, b"late")
    calls.retry(call_id)
    assert calls.finish(claimed(calls), b"1")


def test_a_call_that_kills_its_workers_is_rescued_three_times(calls: DurableCalls, wall: Wall) -> None:
    call_id = calls.submit("t", {}, repeatable=True)
    for _ in range(4):
        claimed(calls)
        wall.now += LEASE_S
        assert calls.rescue() == [call_id]
    assert claim_next(calls, ["t"], "w") is None
    call = calls.find(call_id)
    assert (call.state, call.rescues) == ("failed", 4)


def test_what_a_dead_worker_had_not_begun_is_handed_back(calls: DurableCalls, wall: Wall) -> None:
    call_id = calls.submit("t", {})
    for _ in range(5):
        assert claim_next(calls, ["t"], "w", begins=False) is not None
        wall.now += LEASE_S
        assert calls.rescue() == [call_id]
    call = calls.find(call_id)
    assert (call.state, call.rescues, call.attempts) == ("ready", 0, 0)
    assert history(calls, call_id) == ["submitted", *["claimed w", "handed_back"] * 5]
    claim = claim_next(calls, ["t"], "w", begins=False)
    assert claim is not None
    calls.begin(claim, "w")
    wall.now += LEASE_S
    assert calls.rescue() == [call_id]
    assert calls.find(call_id).state == "unknown"
    with pytest.raises(ConflictError):
        calls.begin(claim, "w")


@pytest.mark.parametrize("kind", ["retry", "snooze", "waits", "handed_back"])
def test_rescues_count_since_the_last_recorded_attempt(calls: DurableCalls, wall: Wall, kind: str) -> None:
    call_id = calls.submit("t", {}, repeatable=True)

    def lose(times: int) -> None:
        for _ in range(times):
            claimed(calls)
            wall.now += LEASE_S
            assert calls.rescue() == [call_id]

    lose(3)
    claim = claimed(calls)
    if kind == "waits":
        assert calls.suspend(claim, Waits(room="w"))
        assert calls.wake_decided() == [call_id]
    elif kind == "handed_back":
        assert calls.hand_back(claim)
    else:
        assert ended(calls, claim, ToolFailed("away") if kind == "retry" else ToolSnooze(0.0, "busy"))
    lose(1)
    call = calls.find(call_id)
    assert (call.state, call.rescues) == (("failed", 4) if kind == "handed_back" else ("ready", 1))


# --- processes


async def test_who_waits_is_woken_by_the_process_that_records(address: Address) -> None:
    calls = DurableCalls(opened(address))
    call_id = calls.submit("t", {}, repeatable=True)
    worker = start(address, ("t",))
    call = await calls.wait(call_id, 100)
    assert (call.state, call.result) == ("done", b"1")
    kill(worker)
    assert (await calls.wait(calls.submit("t", {}), 0)).state == "ready"


def _take_and_die(address: Address) -> None:
    assert claim_next(DurableCalls(opened(address)), ["t"], "victim") is not None
    os._exit(1)


@pytest.mark.parametrize("repeatable", [True, False])
def test_a_dead_process_of_this_machine_is_seen_at_once(address: Address, repeatable: bool) -> None:
    calls = DurableCalls(opened(address), lease_s=3600)
    call_id = calls.submit("t", {}, repeatable=repeatable)
    mine = calls.submit("mine", {})
    claim = claim_next(calls, ["mine"], "w")
    victim = FORKS.Process(target=_take_and_die, args=(address,))
    victim.start()
    victim.join()
    assert calls.rescue() == [call_id]
    assert calls.find(call_id).state == ("ready" if repeatable else "unknown")
    assert claim is not None
    assert calls.renew([claim]) == [claim]  # Nobody took what a living process has.
    assert calls.find(mine).state == "running"


def _work(address: Address, tools: tuple[str, ...]) -> None:
    """A worker: takes calls, runs each for a moment, and takes over from silent ones."""
    calls = DurableCalls(opened(address), lease_s=1.0)
    while True:
        calls.rescue()
        claim = claim_next(calls, tools, f"{os.getpid()}")
        if claim is None:
            time.sleep(0.02)
            continue
        time.sleep(0.01)
        calls.finish(claim, b"1")


def start(address: Address, tools: tuple[str, ...]) -> BaseProcess:
    worker = FORKS.Process(target=_work, args=(address, tools))
    worker.start()
    return worker


def kill(worker: BaseProcess) -> None:
    os.kill(worker.pid or 0, signal.SIGKILL)
    worker.join()


def alternating() -> Iterator[tuple[str, ...]]:
    while True:
        yield from (("a", "b"), ("b", "c"), ("a", "c"))


def test_calls_outlive_their_workers_none_is_lost_or_recorded_twice(address: Address) -> None:
    calls = DurableCalls(opened(address), lease_s=1.0)
    ids = [calls.submit("abc"[number % 3], {"n": number}, repeatable=True) for number in range(120)]
    chance, sets = random.Random(7), alternating()
    workers = [start(address, next(sets)) for _ in range(3)]
    for _ in range(4):
        time.sleep(chance.uniform(0.3, 1.0))
        victim = workers.pop(chance.randrange(3))
        kill(victim)
        workers.append(start(address, next(sets)))
    frozen = workers[0]
    os.kill(frozen.pid or 0, signal.SIGSTOP)
    time.sleep(1.5)
    os.kill(frozen.pid or 0, signal.SIGCONT)
    states: dict[str, Any] = {}
    while set(states.values()) != {"done"}:
        states = {call_id: calls.find(call_id).state for call_id in ids}
        time.sleep(0.1)
    for worker in workers:
        kill(worker)
    for call_id in ids:
        assert history(calls, call_id).count("done") == 1
        assert [one.ending for one in calls.attempts(call_id)].count("done") == 1
        assert calls.find(call_id).attempts == 1
    close_databases()


def _claim_all(address: Address, queue: Any) -> None:
    calls = DurableCalls(opened(address), lease_s=60)
    mine = []
    while (claim := claim_next(calls, ["t"], "w")) is not None:
        mine.append(claim.id)
    queue.put(mine)
    close_databases()


def test_of_four_processes_exactly_one_gets_each_call(address: Address) -> None:
    calls = DurableCalls(opened(address))
    ids = {calls.submit("t", {}) for _ in range(80)}
    queue = FORKS.Queue()
    workers = [FORKS.Process(target=_claim_all, args=(address, queue)) for _ in range(4)]
    for worker in workers:
        worker.start()
    taken = [call_id for _ in workers for call_id in queue.get(timeout=110)]
    for worker in workers:
        worker.join()
    assert sorted(taken) == sorted(ids)


def test_the_event_loop_is_free_while_one_waits(address: Address) -> None:
    calls = DurableCalls(opened(address))
    call_id = calls.submit("t", {})

    async def both() -> None:
        waiting = asyncio.create_task(calls.wait(call_id, 100))
        await asyncio.sleep(0)
        calls.finish(claimed(calls), b"1")
        assert (await waiting).state == "done"

    asyncio.run(both())


def test_where_nothing_runs_or_waits_each_second_takes_no_transaction(
    calls: DurableCalls, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls.submit("a", {})
    monkeypatch.setattr(calls.database, "read", lambda: pytest.fail("a transaction"))
    assert (calls.rescue(), calls.wake_decided()) == ([], [])
    assert calls.ready_tools() == ["a"]
