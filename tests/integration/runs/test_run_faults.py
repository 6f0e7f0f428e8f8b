"""Runs across the death of their process, and across the days that a person takes to decide."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from tests.crib import Crib
from tests.model_servers import ModelServer, Turn, model_server
from toolcrib.project import Project
from toolcrib.runs import DurableCall
from toolcrib.runs.agents import Agent
from toolcrib.runs.sessions import ENDED

ROOT = Path(__file__).parents[3]
PATHS = {"anthropic": "", "openai": "/v1"}


def provided(crib: Crib, api: str, server: ModelServer) -> None:
    provider = {"api": api, "base_url": server.url + PATHS[api], "key": "FAKE_KEY"}
    crib.write(".toolcrib/config.yml", json.dumps({"models": {"providers": {"fake": provider}}}))
    crib.trust()
    crib.secrets["FAKE_KEY"] = "k"


def served(crib: Crib, run_id: str) -> subprocess.Popen[str]:
    script = Path(__file__).with_name("served_run.py")
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, str(script), str(crib.root), run_id]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=env)


def output_of(process: subprocess.Popen[str]) -> str:
    return process.communicate(timeout=60)[0]


@pytest.mark.parametrize("api", ["anthropic", "openai"])
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


async def asked(project: Project, run_id: str) -> DurableCall:
    """The call of a run, once it waits for a person."""
    async with asyncio.timeout(60):
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
        run = await project.runs.wait(run_id, 30)
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
        run = await project.runs.wait(run_id, 30)
        assert run.state == "done"
        assert (run.answer or "").startswith("Tool call failed: ")
        assert "not today" in (run.answer or "")
