"""Workflows in files: in sequence, side by side, with conditions, lists, agents and other workflows."""

from __future__ import annotations

import asyncio
import json
import linecache
import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest

from tests.commands import Forked, complete
from tests.crib import Crib
from toolcrib.errors import (
    DefinitionError,
    InvalidInput,
    ManifestError,
    NotFoundError,
    NotTrusted,
    ToolFailed,
)
from toolcrib.guard import Ledger
from toolcrib.manifest import diagnostics_of
from toolcrib.project import Project
from toolcrib.runs.agents import Agent
from toolcrib.runs.workflows import Workflow, read_workflow
from toolcrib.state import Vault

REPORT = """
name: report
description: Collects facts and writes about them
inputs:
  schema:
    type: object
    additionalProperties: false
    required: [topics]
    properties:
      topics: {type: array, items: {type: string}, description: What about}
      loud: {type: boolean, default: false, description: Louder (default false)}
steps:
  - id: facts
    tool: fact
    foreach: ${topics}
    args: {topic: "${item}", number: "${index}"}
  - id: draft
    agent: writer
    prompt: "Write about ${steps.facts.value[0].text}"
  - id: shouted
    workflow: shout
    when: ${loud}
    args: {text: "${steps.draft.value}"}
output:
  draft: ${steps.draft.value}
  shouted: ${steps.shouted.value}
  status: ${steps.shouted.status}
  facts: ${steps.facts.value}
"""
SHOUT = """
name: shout
inputs:
  schema:
    type: object
    additionalProperties: false
    required: [text]
    properties: {text: {type: string, description: A text}}
steps:
  - {id: up, tool: upper, args: {text: "${text}"}}
"""

pytestmark = pytest.mark.usefixtures("each_database")


def workflow(crib: Crib, text: str) -> None:
    name = text.partition("name: ")[2].partition("\n")[0]
    crib.write(f".toolcrib/workflows/{name}.yml", text)


def flow(crib: Crib, name: str, *steps: dict[str, Any], **more: Any) -> None:
    crib.write(f".toolcrib/workflows/{name}.yml", json.dumps({"name": name, "steps": steps, **more}))


def asks(prompt: str) -> dict[str, Any]:
    return {"id": "asked", "agent": "writer", "prompt": prompt}


def furnish(project: Project) -> None:
    @project.toolset.tool
    def fact(topic: str, number: int) -> dict[str, Any]:
        """Return a fact."""
        return {"text": f"{topic} is round", "number": number}

    @project.toolset.tool
    def upper(text: str) -> str:
        """Return it in capitals."""
        return text.upper()

    @project.toolset.tool
    def fail(why: str = "it is broken") -> str:
        """Fail."""
        raise ValueError(why)

    project.agents.add(Agent("writer", "scripted", script=({"text": "On: {{prompt}}"},)))


@pytest.mark.parametrize("loud", [False, True])
async def test_tools_agents_and_workflows_in_one(crib: Crib, loud: bool) -> None:
    workflow(crib, REPORT)
    workflow(crib, SHOUT)
    async with crib.open() as project:
        furnish(project)
        value = await project.workflows.run("report", {"topics": ["earth", "moon"], "loud": loud})
        draft = "On: Write about earth is round"
        assert value == {
            "draft": draft,
            "status": "ok" if loud else "skipped",
            "facts": [{"text": "earth is round", "number": 0}, {"text": "moon is round", "number": 1}],
            **({"shouted": draft.upper()} if loud else {}),
        }
        (run,) = [one for one in project.runs.page(top=True) if one.agent == "workflow:report"]
        assert run.state == "done"
        below = [one.agent for one in project.runs.tree(run.id)][1:]
        assert below == ["writer", "workflow:shout"][: 1 + loud]


async def test_steps_that_need_each_other_wait_and_the_others_run_side_by_side(crib: Crib) -> None:
    flow(
        crib,
        "two",
        {"id": "a", "tool": "meet", "args": {"name": "a"}},
        {"id": "b", "tool": "meet", "args": {"name": "b"}},
        {"id": "last", "tool": "note", "needs": ["a", "b"]},
    )
    async with crib.open() as project:
        both, met = asyncio.Barrier(2), []  # type: tuple[asyncio.Barrier, list[str]]

        @project.toolset.tool
        async def meet(name: str) -> None:
            """Wait for the other one."""
            async with asyncio.timeout(100), both:
                met.append(name)

        @project.toolset.tool
        def note() -> list[str]:
            """Return who met."""
            return sorted(met)

        assert await project.workflows.run("two") == ["a", "b"]


async def test_a_failed_step_ends_it_unless_its_on_error_goes_on(crib: Crib) -> None:
    fails = {"id": "a", "tool": "fail"}
    flow(crib, "stops", fails, {"id": "b", "tool": "upper", "args": {"text": "x"}, "needs": ["a"]})
    output = {"status": "${steps.a.status}", "code": "${steps.a.error.code}", "value": "${steps.a.value}"}
    flow(crib, "goes_on", {**fails, "on_error": "continue"}, output=output)
    flow(crib, "above", {"id": "w", "workflow": "stops"})
    flow(crib, "empty", {"id": "a", "tool": "fail", "foreach": []})
    flow(crib, "falls_back", {**fails, "on_error": {"default": 7}}, output=output)
    wrong = {"id": "a", "tool": "upper", "args": {"text": 5}, "on_error": "continue"}
    flow(crib, "wrong", wrong, output=output)
    async with crib.open() as project:
        furnish(project)
        with pytest.raises(ToolFailed, match=r"step a of stops failed: .*it is broken"):
            await project.workflows.run("stops")
        with pytest.raises(ToolFailed, match=r"step w of above failed: workflow stops failed: step a of"):
            await project.workflows.run("above")
        assert await project.workflows.run("goes_on") == {"status": "error", "code": "tool_failed"}
        assert await project.workflows.run("empty") == []
        assert (await project.workflows.run("falls_back"))["value"] == 7
        assert (await project.workflows.run("wrong"))["code"] == "invalid_input"
        stopped = next(one for one in project.runs.page() if one.agent == "workflow:stops")
        assert [use.use_id for use in project.runs.store.uses(stopped.id)] == ["a"]


async def test_a_prompt_is_a_text_whatever_it_refers_to(crib: Crib) -> None:
    flow(
        crib,
        "object",
        {"id": "a", "tool": "fact", "args": {"topic": "x", "number": 1}},
        asks("${steps.a.value}"),
    )
    flow(crib, "number", asks("${n}"), inputs={"schema": {"type": "object", "properties": {"n": {}}}})
    async with crib.open() as project:
        furnish(project)
        assert await project.workflows.run("object") == 'On: {"text": "x is round", "number": 1}'
        assert await project.workflows.run("number", {"n": 7}) == "On: 7"
        with pytest.raises(ToolFailed, match="there is no prompt for writer"):
            await project.workflows.run("number")


async def test_a_failed_run_is_retried_from_its_failed_step(crib: Crib) -> None:
    flow(
        crib,
        "again",
        {"id": "a", "tool": "count"},
        {"id": "b", "tool": "sometimes", "args": {"after": "${steps.a.value}"}},
    )
    async with crib.open() as project:
        counted, broken = [0], [True]

        @project.toolset.tool
        def count() -> int:
            """Count."""
            counted[0] += 1
            return counted[0]

        @project.toolset.tool
        def sometimes(after: int) -> str:
            """Fail at first."""
            if broken[0]:
                raise ValueError("not yet")
            return f"after {after}"

        run_id = project.workflows.start("again")
        assert (await project.runs.wait(run_id)).state == "failed"
        broken[0] = False
        project.runs.retry(run_id)
        run = await project.runs.wait(run_id)
        assert (run.state, run.answer, counted[0]) == ("done", '"after 1"', 1)
        with pytest.raises(InvalidInput, match="cannot be forked"):
            project.runs.fork(run_id, 0, '["inputs that nobody checks"]')


async def test_a_retry_begins_again_only_what_ended_the_run(crib: Crib) -> None:
    flow(
        crib,
        "mail",
        {"id": "each", "tool": "send", "foreach": ["ann", "bob", "cem"], "args": {"to": "${item}"}},
        {"id": "beside", "tool": "send", "args": {"to": "log"}},
        {"id": "after", "tool": "send", "args": {"to": "${steps.each.value}"}},
    )
    async with crib.open() as project:
        sent, broken = list[Any](), [True]

        @project.toolset.tool
        def send(to: Any) -> str:
            """Fail for one of them at first."""
            if to == "bob" and broken[0]:
                raise ValueError("not yet")
            sent.append(to)
            return f"{to} has it"

        run_id = project.workflows.start("mail")
        assert (await project.runs.wait(run_id)).state == "failed"
        project.runs.retry(run_id)
        assert (await project.runs.wait(run_id)).state == "failed"
        assert sorted(sent) == ["ann", "cem", "log"]
        broken[0] = False
        project.runs.retry(run_id)
        assert (await project.runs.wait(run_id)).state == "done"
        assert sorted(sent[:3]) == ["ann", "cem", "log"]
        assert sent[3:] == ["bob", ["ann has it", "bob has it", "cem has it"]]


async def test_inputs_and_names_are_checked_before_anything_is_stored(crib: Crib) -> None:
    workflow(crib, REPORT)
    flow(crib, "x", {"id": "a", "workflow": "y"})
    flow(crib, "y", {"id": "a", "workflow": "x"})
    async with crib.open() as project:
        furnish(project)
        with pytest.raises(InvalidInput, match="topics"):
            project.workflows.start("report", {})
        with pytest.raises(NotFoundError, match="shout"):
            project.workflows.start("report", {"topics": []})
        with pytest.raises(DefinitionError, match="x → y → x"):
            project.workflows.start("x")
        with pytest.raises(NotFoundError, match="there is no workflow named 'raport'") as missing:
            project.workflows.start("raport")
        assert "report" in (missing.value.hint or "")
        assert project.runs.page() == []
        assert [one.message for one in project.workflows.findings(project.agents.all())] == [
            "there is no workflow `shout`"
        ]


async def test_the_rules_for_callers_hold_for_its_calls(crib: Crib) -> None:
    flow(crib, "up", {"id": "a", "tool": "upper", "args": {"text": "x"}})
    rule = {"effect": "deny", "tools": ["upper"], "callers": ["workflow:*"], "reason": "no shouting"}
    crib.write(".toolcrib/config.yml", json.dumps({"policy": {"rules": [rule]}}))
    crib.trust()
    async with crib.open() as project:
        furnish(project)
        with pytest.raises(ToolFailed, match="no shouting"):
            await project.workflows.run("up")
        assert (await project.call("upper", {"text": "x"})).ok


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("name: w\nsteps:\n  - {id: a}\n", "a step calls a `tool` or a `workflow`"),
        ("name: w\nsteps:\n  - {id: a, tool: x, agent: y}\n", "a step calls a `tool` or a `workflow`"),
        ("name: w\nsteps:\n  - {id: a, agent: x}\n", "a step calls a `tool` or a `workflow`"),
        ("name: v\nsteps:\n  - {id: a, tool: x}\n", "the name differs from that of the file"),
        ('name: w\nsteps:\n  - {id: a, tool: x, args: {b: "${steps.c.value}"}}\n', "there is no step `c`"),
        ("name: w\nsteps:\n  - {id: a, tool: x, needs: [a]}\n", "these steps wait for each other"),
        ("name: w\nsteps:\n  - {id: a, tool: x}\n  - {id: a, tool: x}\n", "two steps with the id `a`"),
        ("name: w\ninputs: {schema: {type: text}}\nsteps:\n  - {id: a, tool: x}\n", "schema"),
        ("name: w\nstep: []\n", "unknown key `step`"),
    ],
)
def test_a_wrong_file_says_what_is_wrong(text: str, says: str) -> None:
    with pytest.raises(ManifestError) as wrong:
        read_workflow("w.yml", text.encode())
    assert any(says in one.message for one in diagnostics_of(wrong.value))


A_STEP = "steps:\n  - id: a\n    tool: x\n"


@pytest.mark.parametrize(
    ("text", "at"),
    [
        (A_STEP + "    args:\n      b: 1\n      c: [\n        '${steps.d.value}']\n", (8, 9)),
        (A_STEP + "output:\n  b: 1\n  c: ${steps.d.value}\n", (7, 6)),
        (A_STEP + "    when:\n      - value: 1\n        equals: 1\n", (7, 9)),
        (A_STEP + "    on_error:\n      defalt: 1\n", (6, 7)),
        ("inputs:\n  schema:\n    properties:\n      b: {type: texts}\n" + A_STEP, (5, 17)),
    ],
)
def test_a_fault_deep_in_a_file_is_reported_at_its_own_line(text: str, at: tuple[int, int]) -> None:
    with pytest.raises(ManifestError) as wrong:
        read_workflow("w.yml", f"name: w\n{text}".encode())
    assert at in [(one.line, one.column) for one in diagnostics_of(wrong.value)], wrong.value


async def test_a_fault_in_an_object_is_reported_where_the_program_makes_it(crib: Crib) -> None:
    async with crib.open() as project:
        bad = Workflow({"name": "w", "steps": [{"id": "a", "tool": "x", "args": {"b": "${steps.c.value}"}}]})
        with pytest.raises(ManifestError) as wrong:
            project.workflows.add(bad)
    (found,) = diagnostics_of(wrong.value)
    assert "bad = Workflow(" in linecache.getline(found.path, found.line)
    assert found.message == "$.steps[0].args.b: there is no step `c`"


def test_nothing_of_an_unaccepted_project_runs(crib: Crib) -> None:
    flow(crib, "up", {"id": "a", "tool": "upper"})
    crib.accept = "trusted"
    Ledger(Vault(crib.root)).revoke()
    project = crib.open()
    with pytest.raises(NotTrusted):
        project.workflows.get("up")
    asyncio.run(project.aclose())


def test_a_workflow_survives_kill_9(crib: Crib, tmp_path: Path) -> None:
    flow(
        crib,
        "long",
        {"id": "a", "tool": "mark", "args": {"name": "a"}},
        {"id": "b", "tool": "mark", "args": {"name": "b", "after": "${steps.a.value}"}},
        {"id": "c", "tool": "mark", "args": {"name": "c", "after": "${steps.b.value}"}},
    )
    program = tmp_path / "serve.py"
    program.write_text(
        textwrap.dedent(f"""
        import asyncio, sys
        from pathlib import Path
        from toolcrib import Project

        async def main():
            async with Project.open({str(crib.root)!r}, accept="all") as project:
                @project.toolset.tool(idempotent=True)
                async def mark(name: str, after: str = "") -> str:
                    if sys.argv[1] == "first" and name == "b":
                        print("in b", flush=True)
                        await asyncio.sleep(600)
                    with Path({str(tmp_path / "marks")!r}).open("a") as file:
                        file.write(name)
                    return after + name
                id = project.workflows.start("long") if sys.argv[1] == "first" else sys.argv[1]
                print(id, flush=True)
                run = await project.runs.wait(id, 100)
                print(run.state, run.answer, flush=True)

        asyncio.run(main())
        """)
    )
    command = [sys.executable, str(program), "first"]
    with Forked(command, stdout=subprocess.PIPE, text=True) as first:
        assert first.stdout is not None
        run_id = first.stdout.readline().strip()
        assert first.stdout.readline() == "in b\n"
        os.kill(first.pid, signal.SIGKILL)
    done = complete(
        [sys.executable, str(program), run_id], capture_output=True, text=True, timeout=100, check=False
    )
    assert done.stdout.splitlines()[1:] == ['done "abc"'], done.stderr
    assert (tmp_path / "marks").read_text() == "abc"
