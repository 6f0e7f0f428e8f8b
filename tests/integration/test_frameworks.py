"""The integrations, each with the real package, against a model's API on loopback where it needs one."""

from __future__ import annotations

import importlib.abc
import json
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from tests.crib import Crib
from toolcrib import Project, Toolset
from toolcrib.errors import DefinitionError

# With the other tests that import the packages of the providers.
pytestmark = pytest.mark.xdist_group("models")

WRONG = "Invalid input"


@pytest.fixture
def source() -> Toolset:
    tools = Toolset()

    @tools.tool("math.add")
    def add(config: int, self_: int = 1) -> dict[str, int]:
        """Add two numbers."""
        return {"sum": config + self_}

    @tools.tool
    def fail() -> None:
        """Fail."""
        raise ValueError("the stock is gone")

    return tools


@contextmanager
def model(replies: Sequence[dict[str, Any]]) -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """Serve these answers, one a request; yield the address and the bodies of the requests."""
    bodies: list[dict[str, Any]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            bodies.append(json.loads(self.rfile.read(int(self.headers["content-length"]))))
            data = json.dumps(replies[len(bodies) - 1]).encode()
            self.send_response(200)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *_: Any) -> None:
            """Write nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}", bodies
        finally:
            server.shutdown()
            thread.join()


async def test_anthropic_runs_the_calls_of_a_turn(source: Toolset) -> None:
    from anthropic import AsyncAnthropic

    from toolcrib.integrations.anthropic import tools

    def message(stop: str, *content: dict[str, Any]) -> dict[str, Any]:
        usage = {"input_tokens": 1, "output_tokens": 1}
        return {
            "id": "m",
            "type": "message",
            "role": "assistant",
            "model": "m",
            "content": list(content),
            "stop_reason": stop,
            "stop_sequence": None,
            "usage": usage,
        }

    def use(number: int, name: str, given: dict[str, Any]) -> dict[str, Any]:
        return {"type": "tool_use", "id": f"t{number}", "name": name, "input": given}

    calls = (
        use(1, "math_add", {"config": 2}),
        use(2, "math_add", {"config": "2"}),
        use(3, "fail", {}),
    )
    replies = [message("tool_use", *calls), message("end_turn", {"type": "text", "text": "3"})]
    with model(replies) as (address, bodies):
        async with AsyncAnthropic(api_key="k", base_url=address) as client:
            runner = client.beta.messages.tool_runner(
                model="m", max_tokens=10, messages=[{"role": "user", "content": "?"}], tools=tools(source)
            )
            done = await runner.until_done()
    assert done.content[0].text == "3"  # type: ignore[union-attr]
    assert [tool["name"] for tool in bodies[0]["tools"]] == ["math_add", "fail"]
    assert bodies[0]["tools"][0]["input_schema"]["required"] == ["config"]
    added, wrong, failed = bodies[1]["messages"][-1]["content"]
    assert (added["content"], added.get("is_error", False)) == ('{"sum":3}', False)
    assert wrong["is_error"]
    assert WRONG in wrong["content"]
    assert failed["is_error"]
    assert "the stock is gone" in failed["content"]


def response(number: int, *output: dict[str, Any]) -> dict[str, Any]:
    return {
        "id": f"r{number}",
        "object": "response",
        "created_at": 1,
        "model": "m",
        "status": "completed",
        "output": list(output),
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": [],
        "error": None,
        "incomplete_details": None,
        "instructions": None,
        "metadata": {},
        "temperature": 1.0,
        "top_p": 1.0,
    }


def asked(number: int, name: str, arguments: str) -> dict[str, Any]:
    call = {"id": f"f{number}", "call_id": f"c{number}", "name": name, "arguments": arguments}
    return {"type": "function_call", "status": "completed", **call}


SAID = {
    "type": "message",
    "id": "m1",
    "role": "assistant",
    "status": "completed",
    "content": [{"type": "output_text", "text": "3", "annotations": []}],
}
ASKED = (
    asked(1, "math_add", '{"config": 2}'),
    asked(2, "math_add", '{"config": "2"}'),
    asked(3, "fail", "{}"),
)


def answers(body: dict[str, Any]) -> list[str]:
    return [item["output"] for item in body["input"] if item.get("type") == "function_call_output"]


async def test_openai_runs_the_calls_of_a_response(source: Toolset) -> None:
    from openai import AsyncOpenAI
    from openai.lib.responses_tool_runner import AsyncResponsesToolRunner

    from toolcrib.integrations.openai import tools

    with model([response(1, *ASKED), response(2, SAID)]) as (address, bodies):
        async with AsyncOpenAI(api_key="k", base_url=address) as client:
            runner = AsyncResponsesToolRunner(functions=tools(source))
            done = await runner.run(client, {"model": "m", "input": "?"}, max_steps=3)
    assert done.output_text == "3"
    assert [tool["name"] for tool in bodies[0]["tools"]] == ["math_add", "fail"]
    added, wrong, failed = answers(bodies[1])
    assert (added, WRONG in wrong, "the stock is gone" in failed) == ('{"sum":3}', True, True)


async def test_an_agent_of_openai_agents_calls_the_tools(source: Toolset) -> None:
    from agents import Agent, OpenAIResponsesModel, RunConfig, Runner
    from openai import AsyncOpenAI

    from toolcrib.integrations.openai_agents import tools

    broken = asked(4, "math_add", '{"config": 2, "config": 3}')
    with model([response(1, *ASKED, broken), response(2, SAID)]) as (address, bodies):
        async with AsyncOpenAI(api_key="k", base_url=address) as client:
            agent = Agent(name="a", tools=[*tools(source)], model=OpenAIResponsesModel("m", client))
            done = await Runner.run(agent, "?", run_config=RunConfig(tracing_disabled=True))
    assert done.final_output == "3"
    added, wrong, failed, twice = answers(bodies[1])
    assert (added, WRONG in wrong, "the stock is gone" in failed) == ('{"sum":3}', True, True)
    assert "config" in twice
    assert WRONG in twice


async def test_langchain_gets_tools_that_answer_tool_calls(source: Toolset) -> None:
    from langchain_core.utils.function_calling import convert_to_openai_tool

    from toolcrib.integrations.langchain import tools

    add, fail = tools(source)
    assert convert_to_openai_tool(add)["function"]["name"] == "math_add"

    def call(name: str, given: dict[str, Any]) -> dict[str, Any]:
        return {"type": "tool_call", "id": "1", "name": name, "args": given}

    done = await add.ainvoke(call("math_add", {"config": 2, "self_": 5}))
    assert (done.content, done.status) == ('{"sum":7}', "success")
    wrong = await add.ainvoke(call("math_add", {"config": "2"}))
    assert (WRONG in wrong.content, wrong.status) == (True, "error")
    failed = await fail.ainvoke(call("fail", {}))
    assert ("the stock is gone" in failed.content, failed.status) == (True, "error")
    # Inside of an event loop, as in a notebook.
    assert add.invoke({"config": 2}) == '{"sum":3}'


def test_langchain_calls_tools_without_an_event_loop(source: Toolset, crib: Crib) -> None:
    from toolcrib.integrations.langchain import tools

    add, fail = tools(source)
    assert add.invoke({"config": 2, "self_": 5}) == '{"sum":7}'
    assert WRONG in add.invoke({"config": "2"})
    assert "the stock is gone" in fail.invoke({})
    crib.shell("say")
    project = Project.open(crib.root, accept="all")
    (say,) = tools(project, caller="agent:helper")
    assert [say.invoke({"c": f"echo {word}"}) for word in ("one", "two")] == ["one\n", "two\n"]
    assert crib.last().fields["caller"] == "agent:helper"


class Closed(importlib.abc.MetaPathFinder):
    """Hides packages, as if they were not installed."""

    def __init__(self, *packages: str) -> None:
        self._packages = packages

    def find_spec(self, name: str, *_: Any) -> None:
        if name in self._packages:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)


@pytest.mark.parametrize(
    ("adapter", "module", "package"),
    [
        ("anthropic", "anthropic", "anthropic"),
        ("langchain", "langchain_core", "langchain-core"),
        ("openai", "openai", "openai"),
        ("openai_agents", "agents", "openai-agents"),
        ("pydantic_ai", "pydantic_ai", "pydantic-ai-slim"),
    ],
)
def test_an_adapter_without_its_package_names_the_command(
    adapter: str, module: str, package: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [*sys.modules]:
        if name.partition(".")[0] == module or name == f"toolcrib.integrations.{adapter}":
            monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr(sys, "meta_path", [Closed(module), *sys.meta_path])

    with pytest.raises(ModuleNotFoundError) as caught:
        importlib.import_module(f"toolcrib.integrations.{adapter}")
    assert caught.value.name == module
    assert f"{sys.executable} -m pip install --upgrade {package}" in str(caught.value)


async def test_an_agent_of_pydantic_ai_calls_the_tools_and_tries_again(source: Toolset) -> None:
    from pydantic_ai import Agent
    from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart
    from pydantic_ai.models.function import AgentInfo, FunctionModel

    from toolcrib.integrations.pydantic_ai import tools

    calls = [
        ToolCallPart("math_add", {"config": "2"}, "1"),
        ToolCallPart("math_add", {"config": 2}, "2"),
        ToolCallPart("fail", {}, "3"),
    ]
    seen: list[ModelMessage] = []

    def think(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        seen[:] = messages
        assert [tool.name for tool in info.function_tools] == ["math_add", "fail"]
        made = sum(isinstance(message, ModelResponse) for message in messages)
        return ModelResponse([calls[made]] if made < len(calls) else [TextPart("3")])

    done = await Agent(FunctionModel(think), toolsets=[tools(source, name="crib")]).run("?")
    assert done.output == "3"
    wrong, added, failed = (message.parts[0] for message in seen[2::2])
    assert WRONG in str(wrong.content)  # type: ignore[union-attr]
    assert added.content == {"sum": 3}  # type: ignore[union-attr]
    assert "the stock is gone" in str(failed.content)  # type: ignore[union-attr]


async def test_the_calls_of_a_project_are_audited_by_their_caller(crib: Crib) -> None:
    from toolcrib.integrations.langchain import tools

    crib.shell("say")
    async with Project.open(crib.root, accept="all") as project:
        (say,) = tools(project, caller="agent:helper")
        assert "hello" in await say.ainvoke({"c": "echo hello"})
    assert (crib.last().event, crib.last().fields["caller"]) == ("TOOL_EXECUTED", "agent:helper")


def test_a_tool_that_the_form_cannot_describe_is_named() -> None:
    from toolcrib.integrations.offered import Offered

    source = Toolset()
    anything = {"type": "object", "properties": {"value": {}}, "required": ["value"]}
    source.register("free", lambda value: value, input_schema=anything)
    with pytest.raises(DefinitionError, match="free"):
        Offered(source, "openai-strict", "local")


async def test_only_a_model_that_has_the_reader_is_sent_to_it(crib: Crib) -> None:
    from toolcrib.integrations.langchain import tools
    from toolcrib.integrations.pydantic_ai import tools as pydantic_tools

    async with Project.open(crib.root, accept="all") as project:
        project.toolset.register("long", lambda: "x" * 60_000, description="Return much.")
        (long,) = tools(project)
        cut = await long.ainvoke({})
        assert "10,000 are missing" in cut
        assert "artifact_read" not in cut
        long, reader = tools(project)
        assert reader.name in await long.ainvoke({})
        step: Any = None
        shown = await pydantic_tools(project).call_tool("long", {}, step, step)
        assert shown.startswith("x" * 50_000 + "\n[cut: ")
