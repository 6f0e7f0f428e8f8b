"""The claims of docs/python.md that its own code blocks do not show."""

from __future__ import annotations

import asyncio
import os
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NotRequired, TypedDict

import pytest
from pydantic import BaseModel

from toolcrib import Context, Retry, ToolcribError, Toolset, get_variables
from toolcrib.executors.function.threads import MAX_THREADS


class Part(TypedDict):
    """A part."""

    name: str
    count: NotRequired[int]


class Buyer(BaseModel):
    """Who pays."""

    name: str


@dataclass
class Order:
    """An order."""

    parts: list[Part]
    buyer: Buyer
    note: str = ""


def test_structured_types_nest() -> None:
    tools = Toolset()

    @tools.tool
    def order(order: Order) -> str:
        return f"{sum(part.get('count', 1) for part in order.parts)} for {order.buyer.name}"

    @tools.tool
    def part(part: Part, times: int = 1) -> str:
        return part["name"] * times

    good = {"parts": [{"name": "nut", "count": 3}, {"name": "bolt"}], "buyer": {"name": "Ada"}}
    assert tools.call_sync("order", good).unwrap() == "4 for Ada"
    assert tools.call_sync("part", {"part": {"name": "ab"}, "times": 2}).unwrap() == "abab"
    error = tools.call_sync("order", {"parts": [{"count": "3"}], "buyer": {}}).error
    assert error is not None
    paths = {violation.path for violation in error.violations}
    assert paths == {"$.parts[0].count", "$.parts[0].name", "$.buyer.name"}


GOOGLE = """Do it.

Args:
    x: The value.
"""
NUMPY = """Do it.

Parameters
----------
x
    The value.
"""
SPHINX = """Do it.

:param x: The value.
:param y: Another.
"""


@pytest.mark.parametrize("docstring", [GOOGLE, NUMPY, SPHINX])
def test_parameters_are_described_in_each_style(docstring: str) -> None:
    def tool(x: int, y: int = 0) -> int:
        return x + y

    tool.__doc__ = docstring
    tools = Toolset()
    tools.register(tool)
    assert tools.get("tool").description == "Do it."
    assert tools.get("tool").input_schema["properties"]["x"]["description"] == "The value."


def test_arguments_come_by_name() -> None:
    tools = Toolset()

    @tools.tool
    def anything(x: int, **rest: Any) -> list[str]:
        return sorted(rest)

    assert tools.call_sync("anything", {"x": 1, "b": 2, "a": 3}).value == ["a", "b"]
    for bad in (lambda *args: args, lambda x, /: x):
        with pytest.raises(ToolcribError):
            tools.register("bad", bad)


def leave_a_child(path: str) -> None:
    child = subprocess.Popen(["sleep", "60"])
    Path(path).write_text(str(child.pid))
    child.wait()


async def test_a_process_is_killed_with_what_it_started(tmp_path: Path) -> None:
    tools = Toolset()
    tools.register("hang", leave_a_child, isolation="process")
    told = tmp_path / "pid"
    call = asyncio.create_task(tools.call("hang", {"path": str(told)}))
    await until(lambda: told.exists() and told.read_text() != "")
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    state = Path(f"/proc/{told.read_text()}/stat")
    await until(lambda: not state.exists() or state.read_text().split()[2] == "Z")


async def until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 20
    while not holds():
        assert time.monotonic() < deadline
        await asyncio.sleep(0.01)


def test_the_page_names_the_number_of_threads() -> None:
    page = (Path(__file__).parents[3] / "docs" / "python.md").read_text()
    assert f"At most {MAX_THREADS} threads run tools at once" in page


def where() -> dict[str, Any]:
    return {"pid": os.getpid(), "variables": get_variables()}


def test_a_function_in_a_process_gets_no_variables() -> None:
    tools = Toolset()
    tools.register("where", where, isolation="process")
    tools.register("here", where)
    value = tools.call_sync("where", variables={"tenant": "t"}).unwrap()
    assert value["pid"] != os.getpid()
    assert value["variables"] == {}
    assert tools.call_sync("here", variables={"tenant": "t"}).unwrap()["variables"] == {"tenant": "t"}


def test_a_tools_limit_can_only_be_shorter() -> None:
    tools = Toolset(timeout_ms=50)

    @tools.tool("slow", timeout_ms=60_000)
    async def slow() -> None:
        await asyncio.sleep(30)

    error = tools.call_sync("slow").error
    assert error is not None
    assert error.details["limit_ms"] == 50


def test_a_timeout_is_tried_again_only_by_the_tools_own_rule() -> None:
    tools = Toolset(timeout_ms=30)

    async def slow() -> None:
        await asyncio.sleep(30)

    tools.register("once", slow)
    tools.register("twice", slow, retry=Retry(max_attempts=2))
    assert tools.call_sync("once").attempts == 1
    assert tools.call_sync("twice").attempts == 2


class Held:
    """Notes when it is opened and closed."""

    description = "Holds something"

    def __init__(self, name: str, told: list[str]) -> None:
        self._name, self._told = name, told

    def name(self) -> str:
        return self._name

    def input_schema(self) -> dict[str, Any]:
        return {"type": "object"}

    async def __aenter__(self) -> None:
        self._told.append(f"+{self._name}")

    async def __aexit__(self, *_: object) -> None:
        self._told.append(f"-{self._name}")

    async def execute(self, arguments: dict[str, Any], ctx: Context) -> str:
        return ctx.tool


async def test_what_was_opened_last_is_closed_first() -> None:
    told: list[str] = []
    tools = Toolset()
    for name in ("a", "b", "c"):
        tools.register(Held(name, told))
    error = (await tools.call("a")).error
    assert error is not None
    assert error.code == "tool_unavailable"
    async with tools.filter("a", "b") as some:
        assert await some.execute("a") == "a"
        async with tools.filter("b") as fewer:
            assert await fewer.execute("b") == "b"
    assert told == ["+a", "+b", "-b", "-a"]
    await asyncio.to_thread(tools.call_sync, "c")
    assert told[4:] == ["+a", "+b", "+c", "-c", "-b", "-a"]


def test_a_schema_that_points_elsewhere_or_looks_ahead_is_refused() -> None:
    def tool(x: str) -> str:
        return x

    for rule in ({"$ref": "https://example.com/s.json"}, {"type": "string", "pattern": "^(?=a)"}):
        schema = {"type": "object", "properties": {"x": rule}, "required": ["x"]}
        with pytest.raises(ToolcribError) as caught:
            Toolset().register("tool", tool, input_schema=schema)
        assert caught.value.code == "invalid_definition"


def test_an_output_that_does_not_fit_is_given_with_a_warning() -> None:
    tools = Toolset()

    @tools.tool("seven", output_schema={"type": "string"})
    def seven() -> int:
        return 7

    result = tools.call_sync("seven")
    assert (result.value, len(result.warnings)) == (7, 1)

    tools.register("strict", seven, output_schema={"type": "string"}, on_violation="fail")
    error = tools.call_sync("strict").error
    assert error is not None
    assert error.code == "invalid_output"


def test_an_explicit_schema_is_closed_unless_the_function_is_open() -> None:
    def closed(x: int) -> int:
        return x

    def opened(x: int, **rest: Any) -> list[str]:
        return sorted(rest)

    tools = Toolset()
    schema = {"type": "object", "properties": {"x": {"type": "integer"}}, "required": ["x"]}
    tools.register(closed, input_schema=schema)
    tools.register(opened, input_schema=schema)
    error = tools.call_sync("closed", {"x": 1, "y": 2}).error
    assert error is not None
    assert error.code == "invalid_input"
    assert tools.call_sync("opened", {"x": 1, "y": 2}).value == ["y"]
