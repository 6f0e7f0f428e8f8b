"""The states of runs on every driver: each change happens once, whoever asks for it and how often."""

from __future__ import annotations

import json
import os
import threading
import uuid
from collections.abc import Collection, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import psycopg
import pytest

from tests.databases import Address, clocked, open_database
from tests.guarded import Wall
from tests.postgres import PostgresProcess
from tests.processes import FORKS
from toolcrib.core.decision import Fail
from toolcrib.errors import ConflictError, InvalidInput, NotFoundError, ToolFailed
from toolcrib.runs import ClaimedCall, DurableCalls
from toolcrib.runs.sessions import (
    ClaimedRun,
    ModelStep,
    NewUse,
    RunDraft,
    RunStore,
    RunTransitions,
    RunTree,
    Usage,
)
from toolcrib.runs.sessions.events import RunNotes
from toolcrib.state import LEASE_S, PROJECT, Transaction


class SentRuns(RunStore):
    """Keeps the ids of runs that were sent to workers, which there are none of."""

    sent: list[str]

    def send(self, tx: Transaction, run_id: str, delay_s: float) -> None:
        tx.after_commit.append(lambda: self.sent.append(run_id))


class Machine:
    """Runs and calls over one database, and what was sent to workers."""

    def __init__(self, address: Address, wall: Wall) -> None:
        self.wall = wall
        self.database = clocked(open_database(address, "state", PROJECT), wall)
        self.calls = DurableCalls(self.database)
        self.store = SentRuns(self.calls)
        self.sent = self.store.sent = list[str]()
        self.runs = RunTransitions(self.store)
        self.tree = RunTree(self.store)
        self.calls.on_end.append(self.runs.call_ended)

    def start(self, session: str | None = None, prompt: str = "hello") -> str:
        return self.store.create_run(session, RunDraft("a", "{}", "m", prompt, {"tenant": 7}))

    def claim(self, run_id: str, worker: str = "w", *, begins: bool = True) -> ClaimedRun | None:
        with self.database.write("claim") as tx:
            return self.runs.claim(tx, run_id, worker, begins=begins)

    def taken(self, run_id: str) -> ClaimedRun:
        claim = self.claim(run_id)
        assert claim is not None
        return claim

    def step(self, claim: ClaimedRun, *uses: NewUse, usage: Usage | None = None) -> bool:
        return self.runs.step(claim, self.response(usage or Usage(10, 5, 0.25)), uses)

    def finish(self, run_id: str, answer: str = "done") -> bool:
        return self.runs.finish(self.taken(run_id), self.response(Usage(1, 1, 0.0)), answer)

    def response(self, usage: Usage) -> ModelStep:
        return ModelStep(b'{"kind": "response", "parts": []}', "m", usage, self.wall.now, 0.5)

    def take_call(self, run_id: str, position: int = 0) -> ClaimedCall:
        use = [one for one in self.store.uses(run_id) if one.position == position][-1]
        assert use.call_id is not None
        with self.database.write("claim") as tx:
            claim = self.calls.take(tx, use.call_id, "w")
        assert claim is not None
        return claim

    def lose(self, run_id: str, times: int, *, begins: bool = True) -> None:
        """Let workers die that have taken a step."""
        for _ in range(times):
            assert self.claim(run_id, begins=begins) is not None
            self.wall.now += LEASE_S
            assert self.runs.rescue() == [run_id]

    def kinds(self, run_id: str) -> list[str]:
        return [event.kind for event in self.store.events.page(run_id)]

    def results(self, run_id: str) -> list[tuple[str, str, str]]:
        message = [one for one in self.store.messages(run_id) if one.kind == "results"][-1]
        parts = json.loads(message.content)["parts"]
        return [(part["tool_call_id"], part["content"], part["outcome"]) for part in parts]


def tool(name: str = "t", use_id: str = "u1", run_id: str = "r") -> NewUse:
    return NewUse(use_id, name, "{}", call={"tool": name, "arguments": {}, "run_id": run_id})


OK = b'{"status": "ok", "value": "sunny", "meta": {}}'


@pytest.fixture
def machine(address: Address) -> Machine:
    return Machine(address, Wall())


def test_a_run_without_calls(machine: Machine) -> None:
    run_id = machine.start()
    run = machine.store.find(run_id)
    assert (run.state, run.root_id, json.loads(run.variables)) == ("ready", run_id, {"tenant": 7})
    assert machine.sent == [run_id]
    claim = machine.taken(run_id)
    assert machine.claim(run_id, "other") is None
    assert machine.runs.finish(claim, machine.response(Usage(10, 5, 0.25)), "hi")
    assert not machine.runs.finish(claim, machine.response(Usage(10, 5, 0.25)), "again")
    run = machine.store.find(run_id)
    assert (run.state, run.answer, run.iteration, run.usage) == ("done", "hi", 1, Usage(10, 5, 0.25))
    assert [one.kind for one in machine.store.messages(run_id)] == ["prompt", "response"]
    assert machine.kinds(run_id) == ["created", "answered", "done"]


def test_the_last_call_makes_the_run_ready_and_sends_it_once(machine: Machine) -> None:
    run_id = machine.start()
    uses = [tool(use_id=f"u{number}", run_id=run_id) for number in range(3)]
    assert machine.step(machine.taken(run_id), *uses)
    machine.sent.clear()
    claims = [machine.take_call(run_id, position) for position in range(3)]
    assert machine.calls.finish(claims[1], OK)
    assert machine.calls.finish(claims[0], OK)
    assert machine.store.find(run_id).state == "waiting"
    assert machine.claim(run_id) is None
    assert not machine.sent
    assert machine.calls.finish(claims[2], OK)
    assert not machine.calls.finish(claims[2], OK)
    assert (machine.store.find(run_id).state, machine.sent) == ("ready", [run_id])
    assert machine.results(run_id) == [(f"u{number}", "sunny", "success") for number in range(3)]
    assert machine.finish(run_id)
    assert machine.store.find(run_id).usage == Usage(11, 6, 0.25)


def test_calls_that_end_at_once_in_threads_continue_the_run_once(machine: Machine) -> None:
    run_id = machine.start()
    uses = [tool(use_id=f"u{number}", run_id=run_id) for number in range(8)]
    assert machine.step(machine.taken(run_id), *uses)
    machine.sent.clear()
    claims = [machine.take_call(run_id, position) for position in range(8)]
    threads = [threading.Thread(target=machine.calls.finish, args=(claim, OK)) for claim in claims]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (machine.store.find(run_id).state, machine.sent) == ("ready", [run_id])


def test_failures_are_shown_to_the_model_each_in_its_own_words(machine: Machine) -> None:
    run_id = machine.start()
    refused = NewUse("u2", "rm", "{}", answer="Invalid input: there is no tool named 'rm'")
    assert machine.step(machine.taken(run_id), tool(use_id="u1"), refused, tool(use_id="u3"))
    failure = Fail(ToolFailed("connection refused"))
    with machine.database.write() as tx:
        tx.run("UPDATE calls SET state = 'ready'")
    assert machine.calls.decide(machine.take_call(run_id, 0), failure)
    machine.calls.cancel(machine.take_call(run_id, 2).id)
    assert machine.results(run_id) == [
        ("u1", "Tool call failed: connection refused", "failed"),
        ("u2", "Invalid input: there is no tool named 'rm'", "failed"),
        ("u3", "Cancelled: the call was cancelled", "failed"),
    ]


def test_refused_calls_alone_continue_the_run_at_once(machine: Machine) -> None:
    run_id = machine.start()
    machine.step(machine.taken(run_id), NewUse("u1", "rm", "{}", answer="Invalid input: no"))
    assert machine.store.find(run_id).state == "ready"
    assert machine.sent == [run_id, run_id]
    assert machine.results(run_id) == [("u1", "Invalid input: no", "failed")]


def test_two_runs_of_a_session_take_turns(machine: Machine) -> None:
    session = machine.store.create_session(metadata={"customer": 3})
    first, second, third = (machine.start(session, word) for word in ("one", "two", "three"))
    assert [machine.store.find(one).state for one in (first, second, third)] == ["ready", "queued", "queued"]
    assert machine.claim(second) is None
    machine.tree.cancel(second)
    assert machine.finish(first, "eins")
    assert machine.store.find(third).state == "ready"
    assert machine.sent == [first, third]
    seen = machine.store.conversation(machine.store.find(third))
    assert [(one.kind, one.content) for one in seen if one.kind == "prompt"] == [
        ("prompt", b"one"),
        ("prompt", b"two"),
        ("prompt", b"three"),
    ]
    assert machine.finish(third)
    assert machine.store.session(session).active_run is None


def test_a_sub_agents_run_is_a_call_of_its_parent(machine: Machine) -> None:
    parent = machine.start()
    child = RunDraft("b", "{}", "m", "find it", {"tenant": 7})
    assert machine.step(machine.taken(parent), NewUse("u1", "b", '{"prompt": "find it"}', child=child))
    below = machine.store.tree(parent)[1]
    assert (below.parent_id, below.root_id, below.depth, below.state) == (parent, parent, 1, "ready")
    assert json.loads(below.variables) == {"tenant": 7}
    assert machine.finish(below.id, "found")
    run = machine.store.find(parent)
    assert (run.state, run.usage) == ("ready", Usage(11, 6, 0.25))
    assert machine.results(parent) == [("u1", "found", "success")]
    assert [one.kind for one in machine.store.conversation(machine.store.find(below.id))] == [
        "prompt",
        "response",
    ]


def test_a_run_in_the_middle_is_followed_with_those_below_it(machine: Machine) -> None:
    parent = machine.start()
    for number in ("1", "2"):
        above = machine.store.tree(parent)[-1].id
        draft = RunDraft(number, "{}", "m", "p")
        assert machine.step(machine.taken(above), NewUse(f"u{number}", number, "{}", child=draft))
    top, middle, last = (run.id for run in machine.store.tree(parent))
    events = machine.store.events
    assert {one.run_id for one in events.page(middle, tree=True)} == {middle, last}
    assert {one.run_id for one in events.page(top, tree=True)} == {top, middle, last}
    assert {one.run_id for one in events.page(middle)} == {middle}


def test_cancelling_a_tree_ends_everything_below_and_refuses_late_results(machine: Machine) -> None:
    parent = machine.start()
    child = NewUse("u1", "b", "{}", child=RunDraft("b", "{}", "m", "p"))
    assert machine.step(machine.taken(parent), child, tool(use_id="u2", run_id=parent))
    call = machine.take_call(parent, 1)
    below = machine.store.tree(parent)[1].id
    late = machine.taken(below)
    assert sorted(machine.tree.cancel(parent)) == sorted([parent, below])
    assert [run.state for run in machine.store.tree(parent)] == ["cancelled", "cancelled"]
    assert not machine.runs.finish(late, machine.response(Usage()), "late")
    assert not machine.calls.finish(call, OK)
    assert machine.calls.find(call.id).state == "cancelled"
    assert not machine.runs.renew([late])
    with pytest.raises(ConflictError):
        machine.tree.cancel(parent)
    # A question without its answers is never shown to a model.
    assert [one.kind for one in machine.store.messages(parent)] == ["prompt"]
    assert len(machine.store.messages(parent, every=True)) == 2


def with_calls(machine: Machine, count: int) -> tuple[str, list[ClaimedCall]]:
    """A run whose calls all run."""
    run_id = machine.start()
    uses = [tool(use_id=f"u{n}", run_id=run_id) for n in range(count)]
    assert machine.step(machine.taken(run_id), *uses)
    return run_id, [machine.take_call(run_id, n) for n in range(count)]


def _die_in_cancel(address: Address, run_id: str) -> None:
    machine = Machine(address, Wall())
    machine.calls.on_end.append(lambda *_: os._exit(9))
    machine.tree.cancel(run_id)


def test_a_run_and_its_calls_are_cancelled_together_or_not_at_all(address: Address, machine: Machine) -> None:
    run_id, calls = with_calls(machine, 2)
    process = FORKS.Process(target=_die_in_cancel, args=(address, run_id))
    process.start()
    process.join()
    assert process.exitcode == 9
    assert machine.store.find(run_id).state == "waiting"
    assert {machine.calls.find(one.id).state for one in calls} == {"running"}
    assert machine.calls.finish(calls[0], OK)
    assert machine.tree.cancel(run_id) == [run_id]
    assert [machine.calls.find(one.id).state for one in calls] == ["done", "cancelled"]
    assert all(use.ended_at is not None for use in machine.store.uses(run_id))
    assert machine.kinds(run_id)[-1] == "cancelled"


def test_a_run_is_cancelled_while_its_calls_end(machine: Machine) -> None:
    for _ in range(5):
        run_id, calls = with_calls(machine, 6)
        with ThreadPoolExecutor() as pool:
            ends = [pool.submit(machine.calls.finish, one, OK) for one in calls[::-1]]
            kept = pool.submit(machine.calls.renew, calls[::-1])
            cancelled = pool.submit(machine.tree.cancel, run_id)
        assert cancelled.result() == [run_id]
        kept.result()
        recorded = [machine.calls.find(one.id).state == "done" for one in calls[::-1]]
        assert [end.result() for end in ends] == recorded
        assert {machine.calls.find(one.id).state for one in calls} <= {"done", "cancelled"}
        assert machine.store.find(run_id).state == "cancelled"


def test_calls_are_rescued_while_a_worker_ends_one_of_them(postgres: PostgresProcess) -> None:
    """The worker has the call and waits for the events of runs, so a rescuer must not have these."""
    url = postgres.url(f"test_{uuid.uuid4().hex}")
    machine = Machine(url, Wall())
    lost_run, (lost,) = with_calls(machine, 1)
    machine.wall.now += 1.0
    slow_run, (slow,) = with_calls(machine, 1)
    machine.wall.now += 60.0
    worker = Machine(url, machine.wall)
    has_call, go_on = threading.Event(), threading.Event()

    def hold(_tx: Transaction, _id: str, _state: str) -> None:
        has_call.set()
        assert go_on.wait(100)

    worker.calls.on_end.insert(0, hold)
    with ThreadPoolExecutor() as pool:
        end = pool.submit(worker.calls.finish, slow, OK)
        assert has_call.wait(100)
        rescue = pool.submit(machine.calls.rescue)
        until_it_waits(url, rescue)
        go_on.set()
        assert end.result()
        assert rescue.result() == [lost.id]
    assert [machine.calls.find(one.id).state for one in (lost, slow)] == ["unknown", "done"]
    assert [machine.store.find(one).state for one in (lost_run, slow_run)] == ["ready", "ready"]


def until_it_waits(url: str, work: Future[Any]) -> None:
    """Return once this work waits for another transaction, or is over."""
    with psycopg.connect(url, autocommit=True) as watch:
        while (
            not work.done() and watch.execute("SELECT 1 FROM pg_locks WHERE NOT granted").fetchone() is None
        ):
            pass


@pytest.mark.timeout(60)
def test_a_run_that_is_created_while_the_one_before_it_ends_has_its_turn(postgres: PostgresProcess) -> None:
    url = postgres.url(f"test_{uuid.uuid4().hex}")
    machine, other = Machine(url, Wall()), Machine(url, Wall())
    session = machine.store.create_session()
    first = machine.start(session)
    claim = machine.taken(first)
    insert = RunStore.insert_run
    with ThreadPoolExecutor() as pool:
        ends: list[Future[bool]] = []

        def slowly(notes: RunNotes, row: Mapping[str, Any], messages: Any = None) -> None:
            ends.append(pool.submit(other.runs.finish, claim, other.response(Usage()), "done"))
            until_it_waits(url, ends[0])
            insert(notes, row, messages)

        machine.store.insert_run = slowly  # type: ignore[method-assign]
        second = machine.start(session)
        assert ends[0].result()
    assert machine.store.find(second).state == "ready"
    assert machine.store.session(session).active_run == second


@pytest.mark.timeout(60)
def test_of_queued_runs_the_next_has_its_turn_though_one_is_being_cancelled(
    postgres: PostgresProcess,
) -> None:
    url = postgres.url(f"test_{uuid.uuid4().hex}")
    machine, other = Machine(url, Wall()), Machine(url, Wall())
    session = machine.store.create_session()
    first, second, third = (machine.start(session) for _ in range(3))
    claim = machine.taken(first)
    with ThreadPoolExecutor() as pool:
        ends: list[Future[bool]] = []

        @contextmanager
        def slowly(_tx: Transaction, _ids: Collection[str]) -> Iterator[None]:
            yield
            ends.append(pool.submit(other.runs.finish, claim, other.response(Usage()), "done"))
            until_it_waits(url, ends[0])

        machine.calls.cancelling = slowly  # type: ignore[assignment, method-assign]
        assert machine.tree.cancel(second) == [second]
        assert ends[0].result()
    assert machine.store.find(third).state == "ready"
    assert machine.store.session(session).active_run == third


def test_a_run_that_was_cancelled_in_its_queue_waits_again_once_retried(machine: Machine) -> None:
    session = machine.store.create_session()
    first, second = machine.start(session), machine.start(session)
    machine.tree.cancel(second)
    machine.tree.retry(second)
    assert machine.claim(second) is None
    assert machine.finish(first)
    assert machine.sent == [first, second]
    assert machine.finish(second)


def test_a_failing_model_step_waits_in_the_table(machine: Machine) -> None:
    run_id = machine.start()
    assert machine.runs.again(machine.taken(run_id), 30, ToolFailed("busy"), 0.1)
    assert machine.claim(run_id) is None
    machine.wall.now += 30
    claim = machine.taken(run_id)
    assert (claim.run.failures, claim.run.epoch) == (1, 2)
    assert machine.runs.again(claim, 0, None, 0.0)
    assert machine.store.find(run_id).failures == 1
    assert machine.runs.fail(machine.taken(run_id), ToolFailed("gave up"))
    run = machine.store.find(run_id)
    assert run.state == "failed"
    assert json.loads(run.error or "")["message"] == "gave up"
    assert machine.kinds(run_id) == ["created", "model_failed", "handed_back", "failed"]


def test_a_worker_that_renews_its_lease_while_others_look_for_lost_runs_keeps_its_step(
    machine: Machine,
) -> None:
    run_id = machine.start()
    machine.lose(run_id, 3)
    claim = machine.taken(run_id)
    machine.wall.now += LEASE_S
    read = machine.database.read

    @contextmanager
    def read_and_renew() -> Iterator[Transaction]:
        with read() as tx:
            yield tx
        assert machine.runs.renew([claim]) == [claim]

    machine.database.read = read_and_renew  # type: ignore[method-assign]
    assert machine.runs.rescue() == []
    assert machine.runs.finish(claim, machine.response(Usage()), "hi")


def test_a_dead_workers_step_is_taken_over_and_its_late_answer_refused(machine: Machine) -> None:
    run_id = machine.start()
    frozen = machine.taken(run_id)
    machine.wall.now += LEASE_S - 1
    assert machine.runs.renew([frozen]) == [frozen]
    machine.wall.now += LEASE_S - 1
    assert machine.runs.rescue() == []
    machine.wall.now += 2
    assert machine.runs.rescue() == [run_id]
    assert machine.finish(run_id, "new")
    assert not machine.runs.finish(frozen, machine.response(Usage()), "old")
    assert machine.store.find(run_id).answer == "new"


def test_a_step_that_kills_its_workers_fails_in_the_end(machine: Machine) -> None:
    run_id = machine.start()
    machine.lose(run_id, 4)
    assert machine.store.find(run_id).state == "failed"


def test_only_steps_that_began_and_had_no_end_count(machine: Machine) -> None:
    run_id = machine.start()
    machine.lose(run_id, 5, begins=False)
    machine.lose(run_id, 3)
    assert machine.runs.again(machine.taken(run_id), 0, ToolFailed("busy"), 0.1)
    machine.lose(run_id, 3)
    assert machine.runs.again(machine.taken(run_id), 0, None, 0.0)
    claim = machine.claim(run_id, begins=False)
    assert claim is not None
    machine.runs.begin(claim, "w")
    machine.wall.now += LEASE_S
    assert machine.runs.rescue() == [run_id]
    assert machine.store.find(run_id).state == "failed"
    kinds = ["handed_back"] * 5 + ["rescued"] * 3 + ["model_failed"] + ["rescued"] * 3 + ["handed_back"]
    assert machine.kinds(run_id) == ["created", *kinds, "failed"]


def two_iterations(machine: Machine) -> str:
    run_id = machine.start()
    for number in (1, 2):
        machine.step(machine.taken(run_id), tool(use_id=f"u{number}", run_id=run_id))
        machine.calls.finish(machine.take_call(run_id), OK)
    return run_id


def test_a_failed_run_goes_on_after_an_iteration(machine: Machine) -> None:
    run_id = two_iterations(machine)
    machine.step(machine.taken(run_id), tool(use_id="u3", run_id=run_id))
    with pytest.raises(ConflictError):
        machine.tree.retry(run_id)
    machine.tree.cancel(run_id)
    machine.tree.retry(run_id)
    kinds = [one.kind for one in machine.store.messages(run_id)]
    assert kinds == ["prompt", "response", "results", "response", "results"]
    machine.tree.cancel(run_id)
    with pytest.raises(NotFoundError):
        machine.tree.retry(run_id, 3)
    machine.tree.retry(run_id, 1)
    assert [one.kind for one in machine.store.messages(run_id)] == kinds[:3]
    assert machine.finish(run_id, "second try")
    with pytest.raises(NotFoundError):  # The retry has replaced it.
        machine.tree.fork(run_id, 3, "and then?")
    assert machine.store.find(run_id).iteration == 4
    assert [one.live for one in machine.store.iterations(run_id)] == [1, 0, 0, 1]
    assert machine.store.session(machine.store.find(run_id).session_id).active_run is None


def test_a_fork_sees_what_the_model_saw_then(machine: Machine) -> None:
    run_id = two_iterations(machine)
    machine.finish(run_id, "first way")
    other = machine.tree.fork(run_id, 1)
    forked = machine.store.find(other)
    assert (forked.state, forked.forked_from) == ("ready", run_id)
    assert forked.session_id != machine.store.find(run_id).session_id
    assert [one.kind for one in machine.store.conversation(forked)] == ["prompt", "response", "results"]
    assert machine.finish(other, "other way")
    with pytest.raises(InvalidInput):
        machine.tree.fork(run_id)
    asked = machine.store.find(machine.tree.fork(run_id, prompt="and then?"))
    assert [one.kind for one in machine.store.conversation(asked)][-2:] == ["response", "prompt"]
    assert machine.store.find(run_id).answer == "first way"


def test_a_summary_replaces_what_was_before_it_for_the_model_only(machine: Machine) -> None:
    run_id = two_iterations(machine)
    claim = machine.taken(run_id)
    assert machine.runs.add_summary(claim, b"so far: sunny", Usage(100, 10, None), 1.0)
    assert [one.kind for one in machine.store.conversation(claim.run)] == ["summary"]
    assert len(machine.store.messages(run_id)) == 6
    assert machine.runs.finish(claim, machine.response(Usage(1, 1, 0.5)), "done")
    assert machine.store.find(run_id).usage == Usage(121, 21, None)


async def test_events_are_followed_from_any_number(machine: Machine) -> None:
    run_id = two_iterations(machine)
    other = machine.start()
    machine.finish(run_id)
    every = [event async for event in machine.store.events.follow(run_id)]
    assert [event.number for event in every] == sorted(event.number for event in every)
    assert every[-1].kind == "done"
    rest = [event async for event in machine.store.events.follow(run_id, every[3].number)]
    assert rest == every[4:]
    assert {event.run_id for event in machine.store.events.page()} == {run_id, other}


def test_ids_are_found_by_their_beginning(machine: Machine) -> None:
    run_id = machine.start()
    assert machine.store.resolve(run_id[:30]) == run_id
    machine.start()
    with pytest.raises(ConflictError):
        machine.store.resolve(run_id[:4])
    with pytest.raises(NotFoundError) as missing:
        machine.store.resolve("zz")
    assert missing.value.hint == "To see all: toolcrib runs list"
    with pytest.raises(NotFoundError):
        machine.store.find("x")
