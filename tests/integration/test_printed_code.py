"""Every tool that the documents of three systems print as code: in Python it is described the same, and runs.

The parameters are the printed ones: names, types, descriptions, bounds, enums, defaults, what is required.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any
from zoneinfo import ZoneInfo

import pytest
from pydantic import Field

from toolcrib import (
    ToolDiscard,
    Toolset,
    get_run_id,
    get_session_id,
    get_variable,
    get_variable_or,
    must_get_variable,
)
from toolcrib.spec.views import text_view

STRING: dict[str, Any] = {"type": "string"}


@dataclass(frozen=True)
class Case:
    """One tool, what of its description is printed, a call of it and what must come of that."""

    register: Callable[[Toolset], object]
    name: str
    properties: Mapping[str, Any]
    required: list[str]
    arguments: Mapping[str, Any]
    value: Any = None
    error: str | None = None
    """Code of the error that must come instead."""
    told: str = ""
    """What the model is told of it, as far as it is printed."""


# -- Vega -----------------------------------------------------------------------------------------------


def greet(name: str) -> str:
    """Greet somebody."""
    return f"Hello, {name}!"


def read_file(path: Annotated[str, "File path to read"]) -> str:
    """Read contents of a file"""
    return Path(path).read_text()


def web_search(
    query: Annotated[str, "The search query"],
    count: Annotated[int, "Number of results (default 10)"] = 10,
) -> str:
    """Search the web using Brave Search API"""
    return f"{query}: {count}"


@dataclass
class SearchParams:
    """What to look for."""

    query: Annotated[str, "The search query"]
    limit: Annotated[int, "Max results"] = 10


def search(p: SearchParams) -> list[str]:
    """Search."""
    return [p.query] * min(p.limit, 2)


@dataclass
class CreateFileParams:
    """What to create."""

    path: Annotated[str, "File path"]
    content: Annotated[str, "File contents"]
    mode: Annotated[int, "File permissions"] = 0o644


def create_file(p: CreateFileParams) -> str:
    """Create a file."""
    return f"{p.path} {p.mode:o}"


def complex_tool(action: str, data: dict[str, Any] | None = None) -> Any:
    """Not called by its own description."""
    return [action, data]


COMPLEX: dict[str, Any] = {
    "type": "object",
    "properties": {
        "action": {
            "type": "string",
            "description": "Action to perform",
            "enum": ["create", "update", "delete"],
        },
        "data": {
            "type": "object",
            "description": "Action payload",
            "properties": {"id": STRING, "name": STRING},
        },
    },
    "required": ["action"],
}


def risky_operation(id: str) -> str:  # noqa: A002 - the printed name
    """Do what may fail."""
    raise RuntimeError(f"operation failed: connection refused ({id})")


# -- AgentPG --------------------------------------------------------------------------------------------

GET_TIME: dict[str, Any] = {
    "type": "object",
    "properties": {
        "timezone": {"type": "string", "description": "Timezone name (e.g., 'America/New_York', 'UTC')"}
    },
    "required": ["timezone"],
}


def get_time(timezone: str) -> str:
    """Get the current time in a specified timezone"""
    return str(datetime.now(ZoneInfo(timezone)).utcoffset())


class WeatherTool:
    """Holds a key, a default and a cache."""

    name = "get_weather"
    description = "Get current weather conditions for a location"
    input_schema: dict[str, Any] = {  # noqa: RUF012 - never changed
        "type": "object",
        "properties": {
            "location": {"type": "string", "description": "City name or coordinates"},
            "unit": {"type": "string", "description": "Temperature unit", "enum": ["celsius", "fahrenheit"]},
        },
        "required": ["location"],
    }

    def __init__(self, api_key: str) -> None:
        self._api_key = api_key
        self._default_unit = "celsius"
        self._cache: dict[str, int] = {}

    def execute(self, arguments: dict[str, Any]) -> str:
        unit = arguments.get("unit") or self._default_unit
        degrees = self._cache.setdefault(arguments["location"], 20 + len(self._cache))
        return f"{degrees} {unit}"


TASK: dict[str, Any] = {
    "type": "object",
    "properties": {
        "title": {"type": "string", "description": "Task title", "minLength": 3, "maxLength": 100},
        "priority": {
            "type": "string",
            "description": "Task priority level",
            "enum": ["low", "medium", "high", "critical"],
        },
        "score": {"type": "number", "description": "Confidence score (0-100)", "minimum": 0, "maximum": 100},
        "tags": {"type": "array", "description": "Labels for the task", "items": STRING, "maxItems": 5},
        "assignee": {
            "type": "object",
            "description": "Person assigned to the task",
            "properties": {
                "name": {"type": "string", "description": "Full name"},
                "email": {"type": "string", "description": "Email address"},
            },
            "required": ["name"],
        },
    },
    "required": ["title", "priority"],
}


def task(
    title: str,
    priority: str,
    score: float = 0,
    tags: list[str] | None = None,
    assignee: dict[str, Any] | None = None,
) -> Any:
    """Create a task."""
    return [title, priority, score, tags, assignee]


class UserLookupTool:
    """Asks a database."""

    name = "lookup_user"
    description = "Look up user information by ID"
    input_schema: dict[str, Any] = {  # noqa: RUF012 - never changed
        "type": "object",
        "properties": {"user_id": {"type": "string", "description": "The user's ID"}},
        "required": ["user_id"],
    }

    async def open(self) -> None:
        self._db = sqlite3.connect(":memory:", check_same_thread=False)
        self._db.execute("CREATE TABLE users (id TEXT, name TEXT, email TEXT)")
        self._db.execute("INSERT INTO users VALUES ('1', 'Ada', 'ada@example.org')")

    async def close(self) -> None:
        self._db.close()

    def execute(self, arguments: dict[str, Any]) -> str:
        found = self._db.execute(
            "SELECT name, email FROM users WHERE id = ?", (arguments["user_id"],)
        ).fetchone()
        return "User not found" if found is None else f"User: {found[0]} <{found[1]}>"


def story() -> list[Any]:
    """Tell what the run was given."""
    return [
        get_variable("story_id", str),
        get_variable_or("max_chapters", 10),
        must_get_variable("tenant_id", str),
        get_run_id(),
        get_session_id(),
    ]


def discarded(user_id: str) -> str:
    """Refuse what it was given."""
    raise ToolDiscard(f"invalid JSON: {user_id}")


# -- Sympozium ------------------------------------------------------------------------------------------

MY_NEW_TOOL: dict[str, Any] = {
    "type": "object",
    "properties": {
        "requiredParam": {"type": "string", "description": "What this parameter does."},
        "optionalParam": {"type": "integer", "description": "What this parameter does. Defaults to 42."},
    },
    "required": ["requiredParam"],
}


def my_new_tool(requiredParam: str, optionalParam: int = 42) -> str:  # noqa: N803 - the printed names
    """One-sentence description of what this tool does."""
    return f"{requiredParam} {optionalParam}"


def explicit(function: Callable[..., Any], schema: dict[str, Any], name: str | None = None) -> Any:
    """Registers a function with a schema of its own."""
    return lambda tools: tools.register(name or function.__name__, function, input_schema=schema)


def plain(function: Callable[..., Any]) -> Any:
    """Registers a function by its signature."""
    return lambda tools: tools.register(function.__name__, function)


CASES: dict[str, Case] = {
    "vega: greet": Case(plain(greet), "greet", {"name": STRING}, ["name"], {"name": "Ada"}, "Hello, Ada!"),
    "vega: read_file": Case(
        plain(read_file), "read_file", {"path": {"type": "string", "description": "File path to read"}},
        ["path"], {"path": "NOTES"}, "hello",
    ),
    "vega: web_search, as listed": Case(
        plain(web_search), "web_search",
        {"query": {"type": "string", "description": "The search query"},
         "count": {"type": "integer", "description": "Number of results (default 10)"}},
        ["query"], {"query": "q"}, "q: 10",
    ),
    "vega: search": Case(
        plain(search), "search",
        {"query": {"type": "string", "description": "The search query"},
         "limit": {"type": "integer", "description": "Max results", "default": 10}},
        ["query"], {"query": "q"}, ["q", "q"],
    ),
    "vega: CreateFileParams": Case(
        plain(create_file), "create_file",
        {"path": {"type": "string", "description": "File path"},
         "content": {"type": "string", "description": "File contents"},
         "mode": {"type": "integer", "description": "File permissions", "default": 0o644}},
        ["path", "content"], {"path": "a", "content": "b"}, "a 644",
    ),
    "vega: complex_tool": Case(
        explicit(complex_tool, COMPLEX), "complex_tool", COMPLEX["properties"], ["action"],
        {"action": "update", "data": {"id": "1", "name": "n"}}, ["update", {"id": "1", "name": "n"}],
    ),
    "vega: complex_tool, another action": Case(
        explicit(complex_tool, COMPLEX), "complex_tool", COMPLEX["properties"], ["action"],
        {"action": "destroy"}, error="invalid_input", told="create, update, delete",
    ),
    "vega: risky_operation": Case(
        plain(risky_operation), "risky_operation", {"id": STRING}, ["id"], {"id": "7"}, error="tool_failed",
        told="Tool call failed: operation failed: connection refused",
    ),
    "agentpg: get_time": Case(
        explicit(get_time, GET_TIME), "get_time", GET_TIME["properties"], ["timezone"],
        {"timezone": "UTC"}, "0:00:00",
    ),
    "agentpg: WeatherTool": Case(
        lambda tools: tools.register(WeatherTool("key")), "get_weather",
        WeatherTool.input_schema["properties"], ["location"], {"location": "Bern"}, "20 celsius",
    ),
    "agentpg: TaskTool": Case(
        explicit(task, TASK), "task", TASK["properties"], ["title", "priority"],
        {"title": "Write", "priority": "high", "score": 99.5, "tags": ["a"], "assignee": {"name": "Ada"}},
        ["Write", "high", 99.5, ["a"], {"name": "Ada"}],
    ),
    "agentpg: TaskTool, out of its bounds": Case(
        explicit(task, TASK), "task", TASK["properties"], ["title", "priority"],
        {"title": "W", "priority": "high", "tags": list("abcdef")}, error="invalid_input", told="$.title",
    ),
    "agentpg: UserLookupTool": Case(
        lambda tools: tools.register(UserLookupTool()), "lookup_user",
        UserLookupTool.input_schema["properties"], ["user_id"], {"user_id": "1"},
        "User: Ada <ada@example.org>",
    ),
    "agentpg: StoryTool": Case(
        plain(story), "story", {}, [], {}, ["story-123", 10, "tenant-1", "run-1", "session-1"],
    ),
    "agentpg: ToolDiscard": Case(
        plain(discarded), "discarded", {"user_id": STRING}, ["user_id"], {"user_id": "x"},
        error="invalid_input", told="Invalid input: invalid JSON: x",
    ),
    "sympozium: my_new_tool": Case(
        explicit(my_new_tool, MY_NEW_TOOL), "my_new_tool", MY_NEW_TOOL["properties"],
        ["requiredParam"], {"requiredParam": "hello"}, "hello 42",
    ),
    "sympozium: my_new_tool, without what it needs": Case(
        explicit(my_new_tool, MY_NEW_TOOL), "my_new_tool", MY_NEW_TOOL["properties"],
        ["requiredParam"], {}, error="invalid_input", told="$.requiredParam is required",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
async def test_a_printed_tool_is_described_and_runs(
    case: Case, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "NOTES").write_text("hello")
    monkeypatch.chdir(tmp_path)
    tools = Toolset()
    case.register(tools)
    (listed,) = tools.schema()
    schema = listed["input_schema"]
    assert (listed["name"], schema["type"]) == (case.name, "object")
    assert schema.get("required", []) == case.required
    for name, rule in case.properties.items():
        found = schema["properties"][name]
        assert {key: found[key] for key in rule} == rule
    async with tools:
        result = await tools.call(
            case.name,
            case.arguments,
            variables={"story_id": "story-123", "tenant_id": "tenant-1"},
            run_id="run-1",
            session_id="session-1",
        )
    if case.error is None:
        assert result.unwrap() == case.value
    else:
        assert result.error is not None
        assert result.error.code == case.error
        assert case.told in text_view(result)


def test_bounds_may_stand_in_the_signature_as_well() -> None:
    tools = Toolset()

    @tools.tool
    def titled(title: Annotated[str, Field(min_length=3, max_length=100), "Task title"]) -> str:
        """Create a task."""
        return title

    (listed,) = tools.schema()
    assert listed["input_schema"]["properties"]["title"] == TASK["properties"]["title"]
    assert not tools.call_sync("titled", {"title": "ab"}).ok
