"""Tasks for agents, and for command-line agents: a program with their arguments stands for those."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.crib import Crib
from toolcrib import Agent, Project
from toolcrib.errors import ConflictError, NotFoundError, StateUnavailable, ToolFailed, UsageError
from toolcrib.project.authoring.starter import PROGRAMS, add_program
from toolcrib.project.durable.tasks import AgentOutput
from toolcrib.spec import Caller

PROGRAM = Path(__file__).parents[2] / "data" / "agents" / "program.py"
KEYS = ("ANTHROPIC_API_KEY", "CODEX_API_KEY", "GEMINI_API_KEY")


def stand_in(crib: Crib, program: str) -> None:
    """Put a stand-in for the program, which this machine does not have, into the project; its tool stays."""
    source = PROGRAM.read_text()
    crib.write(f"bin/{program}", f"#!{Path(sys.executable).resolve()}\n{source}", 0o755)
    script = crib.home / "tools" / program / "run.sh"
    script.write_text(script.read_text().replace(f"exec {program} ", f'exec "$PWD/bin/{program}" '))
    manifest = crib.home / "tools" / program / "tool.yml"
    folder = str(Path(sys.executable).resolve().parents[1])  # the stand-in's interpreter
    manifest.write_text(manifest.read_text().replace('read: ["."]', f'read: [".", "{folder}"]'))


@pytest.fixture
def own(tmp_path: Path) -> Crib:
    return Crib(tmp_path / "project")


@pytest.mark.usefixtures("kernel")
@pytest.mark.parametrize("program", PROGRAMS)
async def test_a_program_gets_tasks_with_context_and_goes_on_with_its_session(
    own: Crib, program: str
) -> None:
    add_program(own.open().place, program)
    stand_in(own, program)
    own.secrets.update(dict.fromkeys(KEYS, "sk-a-secret-of-the-test"))
    own.write("AGENTS.md", "Use tabs.\n")
    own.write(".toolcrib/memories/style.md", "The user is called Ada.\n")
    async with own.open() as project:
        chunks: list[str] = []
        first = await project.tasks.run(
            "Name the tests", program, on_event=lambda event: chunks.append(event.text)
        )
        second = await project.tasks.run("And the docs", session=first["session"])
        with pytest.raises(ToolFailed, match="ended without an answer: the model refused"):
            await project.tasks.run("Please fail", session=first["session"])
        other = await project.tasks.run("From the start", program)
        await project.aclose()

    assert first["answer"] == f"task 1 of {program}: Name the tests"
    assert second["answer"] == f"task 2 of {program}: And the docs"
    assert other["answer"] == f"task 1 of {program}: From the start"
    assert (first["agent"], second["session"]) == (program, first["session"])
    log = (own.root / first["log"]).read_text()
    assert "a warning that is no event" in log
    assert log.startswith("".join(chunks))
    assert "sk-a-secret" not in log
    (record,) = [one for one in (own.home / "agent_sessions").iterdir() if first["session"] in one.name]
    theirs = json.loads(record.read_text())["agents"][program]
    (state,) = own.root.rglob(f"{theirs}.json")
    began = "# AGENTS.md\n\nUse tabs.\n\n# .toolcrib/memories/style.md\n\nThe user is called Ada.\n\n"
    tasks = [f"{began}# The task\n\nName the tests", "And the docs", "Please fail"]
    assert json.loads(state.read_text()) == tasks


async def test_an_agent_gets_the_task_that_its_description_fits(own: Crib) -> None:
    async with own.open() as project:
        for name, about in {
            "reviewer": "Reviews code for security problems and style.",
            "forecaster": "Knows the weather of any city.",
            "writer": "Writes release notes and documentation.",
        }.items():
            answer = f"{name}: {{{{prompt}}}}"
            project.agents.add(Agent(name, "scripted", description=about, script=({"text": answer},)))

        def chosen(task: str) -> list[str]:
            return [one.name for one in project.tasks.choose(task)]

        assert chosen("What is the weather in Oslo today?") == ["forecaster"]
        assert chosen("Please look at this patch for security problems")[0] == "reviewer"
        assert chosen("documentation of the parser")[0] == "writer"
        assert chosen("weather") == chosen("weather") == ["forecaster"]
        assert chosen("zzz") == chosen("…") == []

        done = await project.tasks.run("How is the weather?")
        again = await project.tasks.run("And security?", session=done["session"])
        moved = await project.tasks.run("Check that.", "reviewer", done["session"])
        with pytest.raises(UsageError, match="no agent's description fits"):
            await project.tasks.run("zzz")
        with pytest.raises(NotFoundError, match="no agent 'reviewr'"):
            await project.tasks.run("Hm", "reviewr")
        with pytest.raises(NotFoundError, match="no session"):
            await project.tasks.run("Hm", "reviewer", "../../config")
        other = Caller("other", frozenset({"invoke"}))
        with pytest.raises(NotFoundError, match="of tasks"):  # it is not this caller's
            await project.tasks.run("Hm", "reviewer", done["session"], caller="token:other", identity=other)

    assert (done["agent"], again["agent"], moved["agent"]) == ("forecaster", "forecaster", "reviewer")
    assert (again["answer"], moved["answer"]) == ("forecaster: And security?", "reviewer: Check that.")


async def test_one_task_of_a_session_runs_at_a_time(own: Crib) -> None:
    async with own.open() as project:

        async def nested() -> str:
            with pytest.raises(ConflictError, match="another task of the session"):
                await project.tasks.run("Me too", "a", started["session"])
            return "refused"

        project.toolset.register(nested)
        script: tuple[dict[str, Any], ...] = ({"calls": [{"tool": "nested"}]}, {"text": "{{result}}"})
        project.agents.add(Agent("a", "scripted", script=({"text": "ready"},)))
        project.agents.add(Agent("b", "scripted", tools=("nested",), script=script))
        started = await project.tasks.run("Begin", "a")

        assert (await project.tasks.run("Go", "b", started["session"]))["answer"] == "refused"

        record = own.home / "agent_sessions" / f"{started['session']}.json"
        for damaged in (record.read_text() + "}", "[1]"):
            record.write_text(damaged)
            with pytest.raises(StateUnavailable, match="is damaged"):
                await project.tasks.run("Go on", "a", started["session"])
        record.parent.rename(own.root / "elsewhere")
        record.parent.symlink_to(own.root / "elsewhere")
        with pytest.raises(StateUnavailable, match="is a link"):
            await project.tasks.run("Begin", "a")


def test_output_that_is_no_event_is_passed_over_and_no_session_is_an_option() -> None:
    output = AgentOutput()
    output.feed('{"type": "result", "session_id": "--dangerous", "resul')
    output.feed('t": "done"}\n[1]\n{broken\nnull')
    output.end()

    assert (output.session, output.answer, output.error) == (None, "done", None)


def test_a_program_is_added_once(own: Crib) -> None:
    project: Project = own.open()
    add_program(project.place, "claude")
    with pytest.raises(ConflictError):
        add_program(project.place, "claude")

    assert [one.as_dict() for one in own.open().diagnostics] == []
