"""Runs across the death of their process, and across the days that a person takes to decide."""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
import subprocess
import sys
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.commands import PROGRAM, Forked
from tests.crib import Crib
from tests.integration.runs.mixed_worker import add_tools
from tests.model_servers import ModelServer, Turn, model_server
from tests.postgres import PostgresProcess
from toolcrib.project import Project
from toolcrib.runs import DurableCall
from toolcrib.runs.agents import Agent
from toolcrib.runs.processes.stepper import Stepper
from toolcrib.runs.sessions import ENDED
from toolcrib.state import IN_FILE, named_database

ROOT = Path(__file__).parents[3]
PATHS = {"anthropic": "", "openai": "/v1"}


def provided(crib: Crib, api: str, server: ModelServer) -> None:
    provider = {"api": api, "base_url": server.url + PATHS[api], "key": "FAKE_KEY"}
    crib.write(".toolcrib/config.yml", json.dumps({"models": {"providers": {"fake": provider}}}))
    crib.trust()
    crib.secrets["FAKE_KEY"] = "k"


def served(crib: Crib, run_id: str) -> Forked:
    script = Path(__file__).with_name("served_run.py")
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, str(script), str(crib.root), run_id]
    return Forked(command, stdout=subprocess.PIPE, text=True, env=env)


def output_of(process: Forked) -> str:
    return str(process.communicate()[0])


@pytest.mark.parametrize("api", ["anthropic", pytest.param("openai", marks=pytest.mark.soak)])
async def test_a_streaming_run_survives_kill_9_in_a_model_step_and_in_a_tool(crib: Crib, api: str) -> None:
    gate = threading.Event()
    looks = [("look", {"place": "attic"}), ("look", {"place": "cellar"})]
    turns = [Turn("I will |look.", gate=gate), Turn("I will |look.", looks), Turn("Nothing |there.")]
    with model_server(*turns) as server:
        provided(crib, api, server)
        async with crib.open() as project:

            @project.toolset.tool(idempotent=True)
            def look(place: str) -> str:
                """Look at a place."""
                raise AssertionError(place)

            agent = Agent(
                "a", f"fake:{'claude-sonnet-5' if api == 'anthropic' else 'gpt-4o'}", tools=("look",)
            )
            run_id = project.runs.start(None, agent, "What is there?", stream=True)
        # The first process dies while the model answers, the second one in a tool.
        first = served(crib, run_id)
        while not server.requests:
            assert first.poll() is None
            await asyncio.sleep(0.05)
        first.kill()
        assert (await asyncio.to_thread(output_of, first)) == ""
        gate.set()
        second = served(crib, run_id)
        assert await asyncio.to_thread(output_of, second) == ""
        assert second.returncode == -signal.SIGKILL
        assert await asyncio.to_thread(output_of, served(crib, run_id)) == "done Nothing there.\n"
    async with crib.open() as project:
        timeline = project.runs.timeline(run_id)
        calls = timeline["iterations"][0]["calls"]
        assert [(call["name"], call["state"]) for call in calls] == [("look", "done"), ("look", "done")]
        assert len(timeline["iterations"]) == 2
        kinds = [event.kind for event in project.runs.store.events.page(run_id)]
        assert kinds.count("answered") == 2
        assert kinds.count("call_ended") == 2
        assert "rescued" in kinds
    assert (crib.root / "looked-cellar").read_text() == "xx"
    assert len(server.requests) == 3


def steps_of(worker: int) -> int:
    """The process in which a worker makes the steps of runs."""
    for one in Path("/proc").iterdir():
        with suppress(OSError):
            parent = (one / "stat").read_text().rpartition(")")[2].split()[1]
            if parent == str(worker) and b"worker.child\0steps" in (one / "cmdline").read_bytes():
                return int(one.name)
    raise AssertionError(worker)


async def test_the_first_run_of_an_agent_finds_the_libraries_of_models_loaded(crib: Crib) -> None:
    agent = {"name": "a", "description": "Answers.", "model": "scripted", "script": [{"text": "Yes."}]}
    crib.write(".toolcrib/agents/a.yml", json.dumps({**agent, "instructions": "Answer."}))
    crib.trust()
    folders = {"root": str(crib.root), "data": None, "app": None}
    settings = {**folders, "database": named_database(), "memory_bytes": None}
    stepper = Stepper((sys.executable, "-P", "-m", "toolcrib.project.worker.child", "steps"), settings)
    try:
        await stepper.start()
        async with asyncio.timeout(120):
            while not stepper.has_loaded:  # noqa: ASYNC110 - another process says it
                await asyncio.sleep(0.05)
    finally:
        await stepper.close()


@pytest.mark.timeout(300)
async def test_the_process_of_a_workers_steps_dies_and_the_run_goes_on(crib: Crib) -> None:
    gate = threading.Event()
    with model_server(Turn("never", gate=gate), Turn("Here I am.")) as server:
        provided(crib, "anthropic", server)
        command = [PROGRAM, "worker", "--root", str(crib.root), "--concurrency", "1"]
        worker = Forked(command, env={**os.environ, "FAKE_KEY": "k"}, stderr=subprocess.PIPE, text=True)
        try:
            async with crib.open() as project:
                run_id = project.runs.start(None, Agent("a", "fake:claude-sonnet-5"), "Hello")
                async with asyncio.timeout(120):
                    while not server.requests:  # noqa: ASYNC110 - another process sends it
                        await asyncio.sleep(0.05)
                os.kill(steps_of(worker.pid), signal.SIGKILL)
                gate.set()
                run = await project.runs.store.wait(run_id, 120)
                assert run.answer == "Here I am."
                events = [event.kind for event in project.runs.store.events.page(run_id)]
                assert events == ["created", "rescued", "answered", "done"]
            worker.terminate()
            assert worker.wait() == 0
        finally:
            worker.kill()
            worker.communicate()


async def asked(project: Project, run_id: str) -> DurableCall:
    """The call of a run, once it waits for a person."""
    async with asyncio.timeout(100):
        while not (calls := project.calls.page("waiting")):
            assert (await project.runs.wait(run_id, 0.05)).state not in ENDED
    return calls[0]


async def test_a_run_waits_for_a_person_with_nothing_held(crib: Crib) -> None:
    crib.tool(
        "tidy",
        "command",
        {"entrypoint": "echo", "args": ["tidied"]},
        approval={"required": True, "reason": "Removes files"},
        outputs={"format": "text"},
    )
    script = ({"calls": [{"tool": "tidy"}]}, {"text": "{{result}}"})
    async with crib.open() as project:
        agent = Agent("a", "scripted", tools=("tidy",), script=script)
        run_id = project.runs.start(None, agent, "Tidy up.")
        call = await asked(project, run_id)
        assert (call.state, call.worker) == ("waiting", None)
    # Days later, in other processes: a person decides, and a worker goes on.
    async with crib.open() as project:
        (view,) = project.approval_service.list("pending")
        assert view.approval.caller == "agent:a"
        project.approval_service.approve(view.approval.id, "olga")
    async with crib.open() as project:
        run = await project.runs.wait(run_id, 100)
        assert (run.state, (run.answer or "").strip()) == ("done", "tidied")
        assert run.active_s < 3


async def test_a_denial_is_an_answer_for_the_model(crib: Crib) -> None:
    crib.tool(
        "tidy",
        "command",
        {"entrypoint": "echo", "args": ["tidied"]},
        approval={"required": True, "reason": "Removes files"},
    )
    script = ({"calls": [{"tool": "tidy"}]}, {"text": "{{result}}"})
    async with crib.open() as project:
        run_id = project.runs.start(None, Agent("a", "scripted", tools=("tidy",), script=script), "Tidy up.")
        await asked(project, run_id)
        (view,) = project.approval_service.list("pending")
        project.approval_service.deny(view.approval.id, "olga", "not today")
        run = await project.runs.wait(run_id, 100)
        assert run.state == "done"
        assert (run.answer or "").startswith("Tool call failed: ")
        assert "not today" in (run.answer or "")


@pytest.mark.usefixtures("each_database")
async def test_more_runs_of_one_agent_than_may_ask_wait_in_turn(crib: Crib) -> None:
    step = {"tool": "pay", "arguments": {"to": "{{prompt}}"}}
    agent = Agent("a", "scripted", tools=("pay",), script=({"calls": [step]}, {"text": "{{result}}"}))
    async with crib.open() as project:

        @project.toolset.tool(approval="it is dear")
        def pay(to: str) -> str:
            """Pay."""
            return to

        ids = [project.runs.start(None, agent, f"run {number}") for number in range(104)]
        project.calls.serve()
        decided = 0
        while len(project.calls.page("waiting", 500)) < len(ids):
            assert not project.approval_service.list("pending", 101)[100:]
            await asyncio.sleep(0.05)
        while decided < len(ids):
            waiting = project.approval_service.list("pending", 101)
            assert len(waiting) <= 100
            for view in waiting[:60]:
                project.approval_service.approve(view.approval.id, "olga")
                decided += 1
            await asyncio.sleep(0.05)
        ended = [await project.runs.wait(one) for one in ids]
        assert [run.answer for run in ended] == [f"run {number}" for number in range(len(ids))]
        assert all(call.snoozes == 0 for call in project.calls.page("done", 500))


class Size(NamedTuple):
    """How much is done, how many workers are killed at most and at least, and after how many events."""

    runs: int
    kills: int
    least: int
    every: int


SMALL = Size(runs=6, kills=3, least=2, every=15)
FULL = Size(runs=125, kills=10, least=8, every=60)
"""500 calls, and 250 runs."""
KILLS = [
    pytest.param("sqlite", SMALL, False, id="sqlite"),
    pytest.param("sqlite", FULL, False, id="sqlite-full", marks=pytest.mark.soak),
    pytest.param("postgres", FULL, True, id="postgres-restarted-full", marks=pytest.mark.soak),
]


def mixed_worker(crib: Crib) -> Forked:
    command = [sys.executable, "-m", "tests.integration.runs.mixed_worker", str(crib.root)]
    return Forked([*command, named_database() or IN_FILE], cwd=ROOT)


@pytest.mark.usefixtures("each_database")
@pytest.mark.parametrize(("each_database", "size", "restarts"), KILLS, indirect=["each_database"])
async def test_runs_of_all_kinds_survive_random_kills(
    crib: Crib, size: Size, restarts: bool, request: pytest.FixtureRequest
) -> None:
    crib.tool(
        "tidy",
        "command",
        {"entrypoint": "echo", "args": ["tidied"]},
        {"room": {"type": "string"}},
        approval={"required": True, "reason": "Removes files"},
        annotations={"idempotent": True},
        outputs={"format": "text"},
    )
    first = [{"tool": "nap", "arguments": {"ms": 150}}, {"tool": "later"}]
    first.append({"tool": "below", "arguments": {"prompt": "go"}})
    below = Agent("below", "scripted", tools=("nap",), script=({"calls": first[:1]}, {"text": "slept"}))

    def above(number: int) -> Agent:
        tidy = {"calls": [{"tool": "tidy", "arguments": {"room": str(number)}}]}
        script = ({"calls": first}, tidy, {"text": "over"})
        return Agent("above", "scripted", tools=("nap", "later", "tidy"), agents=("below",), script=script)

    chance, left = random.Random(7), size.kills
    async with crib.open() as project:
        add_tools(project)
        project.agents.add(below)
        workers = [mixed_worker(crib) for _ in range(4)]
        try:
            ids = [project.runs.start(None, above(number), "go") for number in range(size.runs)]
            due = size.every
            async with asyncio.timeout(300 + size.kills * 30):
                while any(one.state not in ENDED for one in project.runs.page(limit=500)):
                    # A few: while many are decided, workers go through too much for a kill to be due in time.
                    for view in project.approval_service.list("pending")[:5]:
                        project.approval_service.approve(view.approval.id, "olga")
                    if left and (now := project.runs.store.events.last) >= due:
                        due, victim = now + chance.randint(1, 2 * size.every), chance.randrange(4)
                        workers[victim].kill()
                        workers[victim].wait()
                        workers[victim] = mixed_worker(crib)
                        left -= 1
                        if restarts and left == size.kills // 2:
                            restart(request.getfixturevalue("postgres"))
                    await asyncio.sleep(0.05)
        finally:
            for worker in workers:
                worker.kill()
                worker.wait()
        assert size.kills - left >= size.least
        waited = [require_whole(project, one) for one in ids]
        assert any(waited)


def restart(server: PostgresProcess) -> None:
    server.stop(signal.SIGQUIT)
    server.start()


def require_whole(project: Project, run_id: str) -> bool:
    """Check that a run has lost nothing and done nothing twice. Return True if it waited for a person."""
    tree = project.runs.tree(run_id)
    assert [(one.agent, one.state, one.iteration) for one in tree] == [
        ("above", "done", 3),
        ("below", "done", 2),
    ]
    kinds = [event.kind for event in project.runs.store.events.page(run_id, tree=True, limit=1_000)]
    assert {kind: kinds.count(kind) for kind in ("answered", "call", "call_ended", "done")} == {
        "answered": 5,
        "call": 5,
        "call_ended": 5,
        "done": 2,
    }
    calls: dict[str, Any] = {}
    for one in tree:
        for use in project.runs.store.uses(one.id):
            if use.call_id is not None:
                history = [change.kind for change in project.calls.stored.changes(use.call_id)]
                call = project.calls.find(use.call_id)
                assert (call.state, history.count("done")) == ("done", 1), (call.error, history)
                calls[use.name] = call, history
    assert calls["later"][0].snoozes == 2
    return "waits" in calls["tidy"][1]
