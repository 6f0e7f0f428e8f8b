"""Runs of agents in a project, from their files to their answers, with the scripted model."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from pydantic_ai.messages import ModelResponse, TextPart, ToolCallPart, ToolReturnPart
from pydantic_ai.models.function import AgentInfo, FunctionModel

from tests.crib import Crib
from toolcrib import get_run_context, must_get_variable
from toolcrib.errors import (
    BudgetExceeded,
    Cancelled,
    DefinitionError,
    InvalidInput,
    NotFoundError,
    ToolCancel,
    ToolDiscard,
    ToolNotFound,
)
from toolcrib.project import Project
from toolcrib.runs.agents import Agent, Budgets
from toolcrib.runs.agents.runs import unwrap
from toolcrib.runs.sessions import Run
from toolcrib.spec.moment import written

pytestmark = pytest.mark.usefixtures("each_database")


def scripted(name: str, *steps: dict[str, Any], **more: Any) -> Agent:
    return Agent(name, "scripted", script=steps, **more)


def call(tool: str, **arguments: Any) -> dict[str, Any]:
    return {"calls": [{"tool": tool, "arguments": arguments}]}


def shown(project: Project, run: Run) -> list[str]:
    """What the model was given as results of tools."""
    found = []
    for message in project.runs.store.messages(run.id):
        if message.kind == "results":
            found += [part["content"] for part in json.loads(message.content)["parts"]]
    return found


async def test_an_agent_in_a_file_calls_a_tool_and_answers(crib: Crib) -> None:
    crib.write(
        ".toolcrib/agents/forecaster.yml",
        "name: forecaster\n"
        "model: scripted\n"
        "instructions: You know the weather.\n"
        "tools: [weather]\n"
        "script:\n"
        "  - calls: [{tool: weather, arguments: {city: Oslo}}]\n"
        "  - text: 'You asked: {{prompt}} It is {{result}}.'\n",
    )
    async with crib.open() as project:

        @project.toolset.tool
        def weather(city: str) -> str:
            """Return the weather."""
            return f"sunny in {city}"

        run = await project.runs.run(None, "forecaster", "What is it like?")
        assert run.answer == "You asked: What is it like? It is sunny in Oslo."
        assert (run.state, run.iteration, run.agent) == ("done", 2, "forecaster")
        timeline = project.runs.timeline(run.id)
        (used,) = timeline["iterations"][0]["calls"]
        (attempt,) = project.calls.stored.attempts(used["callId"])
        assert (used["name"], used["beganAt"]) == ("weather", written(attempt.began_at))


def test_run_sync_gives_variables_to_tools_and_not_to_the_model(crib: Crib) -> None:
    project = crib.open()
    try:

        @project.toolset.tool
        def who() -> str:
            """Return the tenant."""
            run = get_run_context()
            assert run is not None
            assert run.session_id is not None
            assert must_get_variable("limit", int) == 3
            return f"{must_get_variable('tenant', str)} {run.run_id}"

        project.agents.add(scripted("a", call("who"), {"text": "{{result}}"}, tools=("who",)))
        session = project.runs.create_session({"customer": 3})
        run = project.runs.run_sync(session, "a", "hello", {"tenant": "t-1", "limit": 3})
        assert run.answer == f"t-1 {run.id}"
        assert run.session_id == session
        everything = [message.content for message in project.runs.store.messages(run.id)]
        assert b"limit" not in b"".join(everything)
        with pytest.raises(InvalidInput):
            project.runs.start(session, "a", "x", {"bad": object()})
    finally:
        asyncio.run(project.aclose())


class Desk:
    """A tool that must be opened."""

    name = "desk"
    description = "Return how often it was opened and closed."
    input_schema: dict[str, Any] = {"type": "object", "properties": {}}  # noqa: RUF012 - the form of a tool

    def __init__(self) -> None:
        self.opened = self.closed = 0

    async def open(self) -> None:
        self.opened += 1

    async def close(self) -> None:
        self.closed += 1

    async def execute(self, _arguments: dict[str, Any]) -> list[int]:
        return [self.opened, self.closed]


def test_tools_are_open_while_code_without_an_event_loop_waits(crib: Crib) -> None:
    project, desk = crib.open(), Desk()
    project.toolset.register(desk)
    project.agents.add(scripted("a", call("desk"), {"text": "{{result}}"}, tools=("desk",)))
    assert project.runs.run_sync(None, "a", "go").answer == "[1,0]"
    assert project.calls.wait_sync(project.submit("desk"), 30).outcome().value == [2, 1]
    assert (desk.opened, desk.closed) == (2, 2)
    asyncio.run(project.aclose())


def word_counter(prefix: str) -> FunctionModel:
    """A model that calls the tool `count` and then says what it has returned."""

    def answer(messages: list[Any], info: AgentInfo) -> ModelResponse:
        assert [tool.name for tool in info.function_tools] == ["count"]
        part = messages[-1].parts[-1]
        if isinstance(part, ToolReturnPart):
            return ModelResponse([TextPart(f"{prefix} {part.content}")])
        return ModelResponse([ToolCallPart("count", {"text": part.content})])

    return FunctionModel(answer, model_name="word-counter")


async def test_a_python_object_is_the_model_of_an_agent(crib: Crib) -> None:
    async with crib.open() as project:

        @project.toolset.tool
        def count(text: str) -> int:
            """Count words."""
            return len(text.split())

        agent = Agent("counter", word_counter("words:"), tools=("count",))
        assert agent.document["model"] == "python.counter:word-counter"
        project.agents.add(agent)
        assert (await project.runs.run(None, "counter", "one two three")).answer == "words: 3"
        # One that no project knows by name, made while this process already serves.
        other = Agent("other", word_counter("so"), tools=("count",))
        assert (await project.runs.run(None, other, "one")).answer == "so 1"


def test_what_is_no_model_is_refused() -> None:
    with pytest.raises(DefinitionError, match="not a model of pydantic-ai"):
        Agent("a", object())


@pytest.mark.parametrize("place", ["{{result}}", "{{results}}"])
async def test_calls_of_one_step_run_side_by_side(crib: Crib, place: str) -> None:
    async with crib.open() as project:
        together = asyncio.Barrier(4)

        @project.toolset.tool
        async def meet(number: int) -> int:
            """Wait for the others."""
            async with asyncio.timeout(100), together:
                return number

        calls = [{"tool": "meet", "arguments": {"number": number}} for number in range(4)]
        project.agents.add(scripted("a", {"calls": calls}, {"text": place}, tools=("meet",)))
        assert (await project.runs.run(None, "a", "go")).answer == "0\n1\n2\n3"


async def test_what_may_not_be_called_is_answered_within_the_turn(crib: Crib) -> None:
    async with crib.open() as project:

        @project.toolset.tool
        def weather(city: str) -> str:
            """Return the weather."""
            raise AssertionError

        @project.toolset.tool
        def remove_all() -> str:
            """Remove all."""
            raise AssertionError

        calls = [
            {"tool": "wether", "arguments": {}},
            {"tool": "remove_all", "arguments": {}},
            {"tool": "weather", "arguments": {"town": "Oslo"}},
        ]
        project.agents.add(scripted("a", {"calls": calls}, {"text": "sorry"}, tools=("weather",)))
        run = await project.runs.run(None, "a", "go")
        wrong, hidden, bad = shown(project, run)
        assert wrong == "Invalid input: you have no tool named 'wether'\nDid you mean weather?"
        assert hidden.startswith("Invalid input: you have no tool named 'remove_all'")
        assert bad.startswith("Invalid input: ")
        assert "$.city is required" in bad
        assert run.answer == "sorry"
        assert not project.calls.page()


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (OSError("connection refused"), "Tool call failed: OSError: connection refused"),
        (ToolDiscard("no such id"), "Invalid input: no such id"),
        (ToolCancel("not signed in"), "Cancelled: not signed in"),
    ],
)
async def test_the_model_sees_failures_in_the_words_of_the_contract(
    crib: Crib, error: Exception, text: str
) -> None:
    attempts = []
    async with crib.open() as project:

        @project.toolset.tool
        def fails() -> str:
            """Fail."""
            attempts.append(1)
            raise error

        project.agents.add(scripted("a", call("fails"), {"text": "{{result}}"}, tools=("fails",)))
        run = await project.runs.run(None, "a", "go")
        assert (run.state, run.answer) == ("done", text)
        # A registered function has two attempts in a run, without its saying so.
        assert len(attempts) == (2 if isinstance(error, OSError) else 1)


async def test_agents_on_three_levels_share_the_variables(crib: Crib) -> None:
    async with crib.open() as project:

        @project.toolset.tool
        def project_name() -> str:
            """Return the name of the project."""
            return must_get_variable("project", str)

        project.agents.add(
            scripted("third", call("project_name"), {"text": "{{result}}"}, tools=("project_name",))
        )
        project.agents.add(
            scripted("second", call("third", prompt="name?"), {"text": "<{{result}}>"}, agents=("third",))
        )
        project.agents.add(
            scripted("first", call("second", prompt="name?"), {"text": "[{{result}}]"}, agents=("second",))
        )
        run = await project.runs.run(None, "first", "name?", {"project": "apollo"})
        assert run.answer == "[<apollo>]"
        tree = project.runs.tree(run.id)
        assert [(one.agent, one.depth, one.state) for one in tree] == [
            ("first", 0, "done"),
            ("second", 1, "done"),
            ("third", 2, "done"),
        ]
        assert run.usage.output_tokens > tree[1].usage.output_tokens > tree[2].usage.output_tokens


async def test_the_depth_of_agents_is_limited(crib: Crib) -> None:
    async with crib.open() as project:
        project.agents.add(
            scripted(
                "again",
                call("again", prompt="deeper"),
                {"text": "{{result}}"},
                agents=("again",),
                budgets=Budgets(depth=2),
            )
        )
        run = await project.runs.run(None, "again", "go")
        assert len(project.runs.tree(run.id)) == 3
        assert "too deep" in (run.answer or "")


@pytest.mark.parametrize(
    ("budgets", "message"),
    [
        (Budgets(iterations=3), "3 iterations"),
        (Budgets(tokens=20), "20 tokens"),
        (Budgets(time_s=0.000001), "seconds of work"),
    ],
)
async def test_a_run_ends_with_its_budget_and_goes_on_with_another(
    crib: Crib, budgets: Budgets, message: str
) -> None:
    async with crib.open() as project:

        @project.toolset.tool
        def tick() -> str:
            """Tick."""
            return "tock"

        agent = scripted("a", *[call("tick")] * 5, {"text": "done"}, tools=("tick",), budgets=budgets)
        project.agents.add(agent)
        with pytest.raises(BudgetExceeded, match=message) as caught:
            await project.runs.run(None, "a", "go")
        assert "toolcrib runs retry" in (caught.value.hint or "")
        (run,) = project.runs.page(state="failed")
        project.agents._added["a"] = scripted("a", *[call("tick")] * 5, {"text": "done"}, tools=("tick",))
        project.runs.retry(run.id)
        assert (await project.runs.wait(run.id, 100)).answer == "done"


async def test_a_session_is_one_conversation(crib: Crib) -> None:
    async with crib.open() as project:
        project.agents.add(scripted("a", {"text": "I heard: {{prompt}}"}))
        session = project.runs.create_session()
        started = [project.runs.start(session, "a", word) for word in ("one", "two", "three")]
        runs = [await project.runs.wait(one, 100) for one in started]
        assert [run.answer for run in runs] == ["I heard: one", "I heard: two", "I heard: three"]
        kinds = [one.kind for one in project.runs.store.conversation(runs[-1])]
        assert kinds == ["prompt", "response"] * 3


async def test_a_stream_yields_parts_then_the_whole(crib: Crib) -> None:
    async with crib.open() as project:
        project.agents.add(scripted("a", {"text": "a long answer in parts"}))
        events = [event async for event in project.runs.stream(None, "a", "go")]
        kinds = [event.kind for event in events]
        assert kinds[0] == "created"
        assert kinds[-2:] == ["answered", "done"]
        run = project.runs.find(events[0].run_id)
        assert run.answer == "a long answer in parts"
        parts = [event.document["detail"]["text"] for event in events if event.kind == "text"]
        assert "a long answer in parts".startswith("".join(parts))


async def test_cancelling_a_tree_ends_its_tools(crib: Crib) -> None:
    async with crib.open() as project:
        begun, ended = asyncio.Event(), asyncio.Event()

        @project.toolset.tool
        async def slow() -> str:
            """Take long."""
            begun.set()
            try:
                await asyncio.sleep(60)
            finally:
                ended.set()
            return "late"

        project.agents.add(scripted("below", call("slow"), {"text": "late"}, tools=("slow",)))
        project.agents.add(scripted("above", call("below", prompt="go"), {"text": "x"}, agents=("below",)))
        run_id = project.runs.start(None, "above", "go")
        waiting = asyncio.create_task(project.runs.wait(run_id))
        async with asyncio.timeout(100):
            await begun.wait()
            assert len(project.runs.cancel(run_id)) == 2
            assert (await waiting).state == "cancelled"
            await ended.wait()
        with pytest.raises(Cancelled):
            unwrap(project.runs.find(run_id))
    # Not `interrupted`: it does not go on.
    assert (crib.last().fields["status"], crib.last().fields["code"]) == ("error", "cancelled")


async def test_a_long_conversation_is_summarised_and_kept(crib: Crib) -> None:
    async with crib.open() as project:

        @project.toolset.tool
        def read() -> str:
            """Read."""
            return "x" * 6_000

        steps = [call("read"), {"text": "done"}]
        project.agents.add(scripted("a", *steps, tools=("read",), compact_at=1_000))
        run = await project.runs.run(None, "a", "what is in it?")
        kinds = [message.kind for message in project.runs.store.messages(run.id)]
        assert kinds[:4] == ["prompt", "response", "results", "summary"]
        summary = project.runs.store.messages(run.id)[3].content.decode()
        assert summary.startswith("3 messages, the last result: xxx")
        assert run.answer == "done"
        assert "what is in it?" in summary


async def test_what_does_not_exist_is_refused_before_anything_is_stored(crib: Crib) -> None:
    async with crib.open() as project:
        project.agents.add(scripted("a", {"text": "x"}, tools=("none",)))
        project.agents.add(scripted("b", {"text": "x"}, agents=("nobody",)))
        project.agents.add(Agent("c", "mars:m1"))
        with pytest.raises(ToolNotFound):
            project.runs.start(None, "a", "go")
        for name in ("b", "c", "d"):
            with pytest.raises(NotFoundError):
                project.runs.start(None, name, "go")
        with pytest.raises(NotFoundError):
            project.runs.start("0" * 36, scripted("x", {"text": "x"}), "go")
        assert not project.runs.page()
