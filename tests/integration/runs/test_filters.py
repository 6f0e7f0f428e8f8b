"""Filters of calls and runs, and changes of all that match, on every driver."""

from __future__ import annotations

import sys
from typing import Any

import pytest

from tests.crib import Crib
from tests.databases import Address, clocked, open_database
from tests.guarded import Wall
from tests.integration.runs.test_calls import claimed
from toolcrib import Toolset
from toolcrib.errors import IdempotencyConflict, InvalidInput
from toolcrib.project import Project
from toolcrib.runs import DurableCalls
from toolcrib.runs.agents import Agent
from toolcrib.runs.filters import Filters, changeable
from toolcrib.state import PROJECT


@pytest.fixture
def wall() -> Wall:
    return Wall()


@pytest.fixture
def calls(address: Address, wall: Wall) -> DurableCalls:
    return DurableCalls(clocked(open_database(address, "state", PROJECT), wall))


def test_calls_are_filtered_by_each_condition_and_by_all_together(calls: DurableCalls, wall: Wall) -> None:
    begun = wall.now
    ids = []
    for tool, caller, session in (("a", "cli", "s"), ("a", "token:x", None), ("b", "cli", "s")):
        ids.append(calls.submit(tool, {}, caller=caller, session_id=session))
        wall.now += 60
    cases: list[tuple[Filters, list[int]]] = [
        ({}, [2, 1, 0]),
        ({"tool": "a"}, [1, 0]),
        ({"caller": "token:x"}, [1]),
        ({"session_id": "s"}, [2, 0]),
        ({"since": begun + 60}, [2, 1]),
        ({"until": begun + 60}, [0]),
        ({"since": begun + 1, "until": begun + 119}, [1]),
        ({"tool": "a", "session_id": "s", "state": "ready"}, [0]),
        ({"state": ["running", "waiting"]}, []),
        ({"state": []}, []),
        ({"tool": None, "agent": "nobody"}, []),
    ]
    for filters, expected in cases:
        assert [one.id for one in calls.page(**filters)] == [ids[at] for at in expected], filters
        assert calls.count(**filters) == len(expected), filters
    assert [one.id for one in calls.page(tool="a", before=ids[1])] == [ids[0]]


def test_all_that_match_are_cancelled_and_retried_and_no_others(calls: DurableCalls) -> None:
    first, *others = (calls.submit("a", {"n": n}) for n in range(450))
    other = calls.submit("b", {})
    assert calls.finish(claimed(calls, "w", "a"), b'{"status": "ok", "value": 1}')
    assert calls.count(**changeable("calls", "cancel", {"tool": "a"})) == 449
    assert sorted(calls.cancel_all(tool="a")) == others
    assert calls.cancel_all(tool="a") == []
    assert (calls.find(first).state, calls.find(other).state) == ("done", "ready")
    assert calls.retry_all(tool="a", state="done") == []
    assert sorted(calls.retry_all(tool="a")) == others
    assert calls.find(others[-1]).state == "ready"
    assert claimed(calls, "w", "a").id == others[0]


@pytest.fixture
def project(crib: Crib) -> Project:
    return crib.open()


def test_many_calls_are_stored_together_or_not_at_all(project: Project) -> None:
    @project.toolset.tool
    def add(a: int, b: int = 0) -> int:
        """Add."""
        return a + b

    def call(a: Any, **more: Any) -> dict[str, Any]:
        return {"tool": "add", "arguments": {"a": a}, **more}

    ids = project.calls.submit_many(call(n, priority=n) for n in range(1_000))
    assert [one.id for one in project.calls.page(limit=2)] == [ids[-1], ids[-2]]
    assert (project.calls.find(ids[7]).priority, project.calls.count(tool="add")) == (7, 1_000)
    with pytest.raises(InvalidInput, match=r"^call 2: ") as refused:
        project.calls.submit_many([call(1), call("x"), call(3)])
    assert refused.value.details["index"] == 1
    assert project.calls.count() == 1_000
    keyed = project.calls.submit_many([call(1, idempotency_key="z"), call(2), call(3, idempotency_key="y")])
    assert project.calls.submit_many([call(1, idempotency_key="z")]) == keyed[:1]
    with pytest.raises(IdempotencyConflict):
        project.calls.submit_many([call(9), call(8, idempotency_key="y")])
    assert project.calls.count() == 1_003


def test_many_calls_of_a_tool_of_another_process_look_it_up_once(project: Project) -> None:
    other = Toolset()

    @other.tool
    def add(a: int) -> int:
        """Add."""
        return a

    project.calls.known.record([(other.bound("add").tool, True, False)])
    asked = list[str]()
    sys.setprofile(lambda _, event, what: asked.append(what.__name__) if event == "c_call" else None)
    try:
        project.calls.submit_many([{"tool": "add", "arguments": {"a": a}} for a in range(1_000)])
    finally:
        sys.setprofile(None)
    assert project.calls.count(tool="add") == 1_000
    assert asked.count("execute") < 50


async def test_runs_are_filtered_and_changed_together(crib: Crib) -> None:
    async with crib.open() as project:

        @project.toolset.tool
        def say(word: str) -> str:
            """Say."""
            return word

        script: Any = ({"calls": [{"tool": "say", "arguments": {"word": "x"}}]}, {"text": "said"})
        project.agents.add(Agent(name="says", model="scripted", tools=("say",), script=script))
        project.agents.add(Agent(name="quiet", model="scripted", script=({"text": "…"},)))
        said = await project.runs.run(None, "says", "now")
        waits = [project.runs.start(None, name, "later") for name in ("quiet", "says", "quiet")]
        assert [run.id for run in project.runs.page(tool="say")] == [said.id]
        assert [call.run_id for call in project.calls.page(agent="says")] == [said.id]
        assert project.runs.store.counts() | {"done": 1} == project.runs.store.counts()
        assert project.runs.count("cancel", agent="quiet") == 2
        changed = project.runs.cancel_all(agent="quiet")
        assert (sorted(changed.done), changed.refused) == ([waits[0], waits[2]], {})
        assert project.runs.find(waits[1]).state != "cancelled"
        assert sorted(project.runs.retry_all(agent="quiet").done) == [waits[0], waits[2]]
        project.agents.add(Agent(name="two", model="scripted", script=({"text": "…"},)))
        session = project.runs.create_session()
        first = project.runs.start(session, "two", "one")
        project.runs.cancel(first)
        await project.runs.run(session, "two", "two")
        refused = project.runs.retry_all(agent="two")
        assert (refused.done, list(refused.refused)) == ([], [first])
        assert "the session has continued" in refused.refused[first]


def test_the_store_names_no_time_before_its_first_id(calls: DurableCalls, wall: Wall) -> None:
    """A call is in exactly one of two spans that meet, whatever its millisecond."""
    for _ in range(20):
        calls.submit("t", {})
        wall.now += 0.0007
    edge = wall.now - 0.005
    assert calls.count(since=edge) + calls.count(until=edge) == 20
