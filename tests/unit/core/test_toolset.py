"""Registering, listing, filtering and calling tools; bad definitions fail where they are written."""

from __future__ import annotations

import asyncio
import dataclasses
import functools
import inspect
import json
from typing import Annotated, Any

import pytest
from pydantic import BaseModel, Field

from toolcrib import Context, Limits, McpForms, Retry, Toolset
from toolcrib.core.bound import Bound, BoundTool, ToolOptions
from toolcrib.errors import ConflictError, DefinitionError, ToolcribError, ToolNotFound, UsageError
from toolcrib.schema.providers import wire_names
from toolcrib.spec import Annotations, Call, CallContext, FunctionExec, Outcome, Tool
from toolcrib.spec.naming import wire_name
from toolcrib.spec.tools.kinds import CommandExec


def add(a: int, b: int = 1) -> int:
    """Add two numbers."""
    return a + b


# -- registering -------------------------------------------------------------------------------


def test_the_ways_to_register() -> None:
    tools = Toolset()

    @tools.tool
    def one() -> None: ...

    @tools.tool("second", description="The second", tags=["t"])
    def two() -> None: ...

    @tools.tool(description="The third")
    def three() -> None: ...

    tools.register(add)
    tools.register("plus", add)

    assert tools.names == ["one", "second", "three", "add", "plus"]
    assert [tool.description for tool in tools.tools()] == [
        "one",
        "The second",
        "The third",
        "Add two numbers.",
        "Add two numbers.",
    ]
    assert add(1, 2) == 3


def test_all_options_are_in_the_description_of_the_tool() -> None:
    tools = Toolset()
    hints = Annotations(read_only=True)
    tools.register(
        "plus",
        add,
        description="Add",
        output_schema={"type": "integer"},
        on_violation="fail",
        isolation="inline",
        retry=Retry(max_attempts=3),
        timeout_ms=100,
        approval="Because",
        annotations=hints,
        tags="math",
        version="2.1",
    )
    tool = tools.get("plus")
    assert (tool.name, tool.description, tool.version, tool.tags) == ("plus", "Add", "2.1", ("math",))
    assert (tool.output.schema, tool.output.on_violation) == ({"type": "integer"}, "fail")
    assert (tool.retry, tool.limits.timeout_ms, tool.annotations) == (Retry(max_attempts=3), 100, hints)
    assert (tool.approval.required, tool.approval.reason) == (True, "Because")
    assert isinstance(tool.config, FunctionExec)
    assert (tool.kind, tool.config.isolation) == ("function", "inline")


@pytest.mark.parametrize("name", ["a", "a.b-c_1", "читать", "x" * 64])
def test_good_names(name: str) -> None:
    tools = Toolset()
    tools.register(name, add)

    assert tools.names == [name]


@pytest.mark.parametrize("name", ["", "x" * 65, "a b", "a/b", "..", "a\n", "e\u0301", 7, b"a", "<lambda>"])
def test_bad_names(name: Any) -> None:
    with pytest.raises(DefinitionError, match="cannot be the name of a tool"):
        Toolset().register(name, add)


def test_a_name_is_given_once() -> None:
    tools = Toolset()
    tools.register(add)
    with pytest.raises(ConflictError, match="there is a tool named 'add' already"):
        tools.register(add)
    with pytest.raises(ConflictError):
        tools.tool("add")(lambda: None)

    assert tools.names == ["add"]


@pytest.mark.parametrize(
    ("first", "second"),
    [("my.tool", "my_tool"), ("my_tool", "my.tool"), ("a.b", "a..b"), ("日本", wire_name("日本"))],
)
async def test_a_name_for_clients_never_moves_to_another_tool(first: str, second: str) -> None:
    tools = Toolset()
    tools.register(first, lambda: 1)
    before = list(wire_names(tools.tools()))
    with pytest.raises(ConflictError) as caught:
        tools.register(second, lambda: 2)
    assert repr(first) in caught.value.message
    assert repr(second) in caught.value.message
    assert list(wire_names(tools.tools())) == before

    tools.remove(first)
    tools.register(second, lambda: 2)
    assert tools.names == [second]


async def co(a: int) -> int:
    return a


def with_context(ctx: Context) -> None: ...
def opaque(a: Toolset) -> None: ...


def local() -> Any:
    def inner(a: int) -> None: ...

    return inner


ONE = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}


@pytest.mark.parametrize(
    ("function", "options", "says"),
    [
        (lambda: 1, {}, "cannot be the name of a tool"),
        (functools.partial(add, 1), {}, "cannot be the name of a tool"),
        (opaque, {}, "'a': the type Toolset has no JSON Schema"),
        (add, {"isolation": "fork"}, "there is no isolation 'fork'"),
        (add, {"isolation": "async"}, "'async' does not fit"),
        (co, {"isolation": "thread"}, "'thread' does not fit"),
        (co, {"isolation": "inline"}, "'inline' does not fit"),
        (with_context, {"isolation": "process"}, "cannot receive the context"),
        (local(), {"isolation": "process"}, "at the top level of a module"),
        (add, {"timeout_ms": 0}, "timeout_ms must be a whole number of at least 1"),
        (add, {"timeout_ms": "5s"}, "not '5s'"),
        (add, {"limits": Limits(idle_ms=0)}, "idle_ms must be a whole number of at least 1"),
        (add, {"limits": Limits(memory_bytes=1)}, "limits.memory_bytes does not hold for a function"),
        (add, {"limits": {"idle_ms": 5}}, "limits must be of type Limits"),
        (add, {"retry": Retry(max_attempts=0)}, "max_attempts of at least 1"),
        (add, {"retry": Retry(jitter=1.5)}, "a jitter from 0 to 1"),
        (add, {"output_schema": {"type": "strin"}}, "not a valid JSON Schema"),
        (add, {"input_schema": {"type": "string"}}, "must have type: object"),
        (add, {"input_schema": {"type": "object", "properties": 1}}, "not a valid JSON Schema"),
        (add, {"input_schema": {"type": "object", "properties": {"c": {}}}}, "has the property 'c'"),
        (add, {"input_schema": {**ONE, "required": []}}, "needs 'a', but the schema does not require it"),
        (add, {"input_schema": {**ONE, "additionalProperties": True}}, "the function takes none"),
        (add, {"mcp": McpForms(resource="docs://{+a}")}, "which is not a URI"),
        (7, {}, "is not callable"),
    ],
)
def test_a_bad_definition_fails_where_it_is_written(function: Any, options: Any, says: str) -> None:
    tools = Toolset()
    with pytest.raises(DefinitionError, match=says):
        tools.register(function, **options)

    assert tools.names == []


async def test_the_limits_of_a_function() -> None:
    tools = Toolset()
    limits = Limits(timeout_ms=90_000, output_bytes=10, calls_per_minute=2)
    tools.register(add, limits=limits, idle_ms=50_000)
    tools.register("other", add)

    assert tools.get("add").limits == dataclasses.replace(limits, idle_ms=50_000)
    bound = tools.bound("add")
    assert (bound.timeout_ms, bound.idle_ms, bound.text_limit) == (90_000, 50_000, 10)
    results = [await tools.call("add", {"a": 1}) for _ in range(3)]
    # A part of the toolset counts the same calls.
    results.append(await tools.filter("add").call("add", {"a": 1}))
    assert [result.error and result.error.code for result in results] == [None, None, *["rate_limited"] * 2]
    assert (await tools.call("other", {"a": 1})).ok


async def test_a_limit_of_calls_at_a_time() -> None:
    tools = Toolset()
    started = asyncio.Event()

    async def wait() -> None:
        started.set()
        await asyncio.Event().wait()

    tools.register(wait, limits=Limits(concurrent_calls=1))
    first = asyncio.ensure_future(tools.call("wait"))
    await started.wait()
    refused = (await tools.call("wait")).error
    assert refused is not None
    assert refused.code == "rate_limited"
    first.cancel()


def test_an_unknown_option_is_refused() -> None:
    with pytest.raises(TypeError, match="timeout"):
        Toolset().register(add, timeout=1)  # type: ignore[call-arg]


def test_a_toolsets_own_retry_is_checked() -> None:
    with pytest.raises(DefinitionError):
        Toolset(retry=Retry(max_attempts=0))


def test_a_good_tool_is_not_lost_to_a_bad_one() -> None:
    tools = Toolset()
    tools.register(add)
    with pytest.raises(DefinitionError):
        tools.register(opaque)

    assert tools.call_sync("add", {"a": 1}).value == 2


# -- explicit schemas --------------------------------------------------------------------------

TASK: dict[str, Any] = {
    "type": "object",
    "properties": {
        "title": {"type": "string", "minLength": 3, "maxLength": 100},
        "key": {"type": "string", "pattern": "^[A-Z]+$"},
        "priority": {"type": "string", "enum": ["low", "medium", "high", "critical"]},
        "score": {"type": "number", "minimum": 0, "maximum": 100, "default": 50},
        "tags": {"type": "array", "items": {"type": "string"}, "minItems": 1, "maxItems": 5},
        "assignee": {
            "type": "object",
            "properties": {"name": {"type": "string"}, "email": {"type": "string", "default": "none"}},
            "required": ["name"],
        },
    },
    "required": ["title", "priority"],
}


def task(title, priority, score, key="", tags=(), assignee=None) -> Any:  # type: ignore[no-untyped-def]
    return [title, priority, score, key, list(tags), assignee]


@pytest.mark.parametrize(
    ("bad", "path"),
    [
        ({"title": "ab", "priority": "high"}, "$.title"),
        ({"title": "Write it", "priority": "urgent"}, "$.priority"),
        ({"title": "Write it", "priority": "low", "score": 101}, "$.score"),
        ({"title": "Write it", "priority": "low", "tags": list("123456")}, "$.tags"),
        ({"title": "Write it", "priority": "low", "tags": []}, "$.tags"),
        ({"title": "Write it", "priority": "low", "assignee": {"email": "x"}}, "$.assignee.name"),
        ({"title": "Write it", "priority": "low", "key": "ab"}, "$.key"),
        ({"priority": "low"}, "$.title"),
        ({"title": "Write it", "priority": "low", "prioritty": 1}, "$.prioritty"),
    ],
)
async def test_an_explicit_schema_is_held(bad: dict[str, Any], path: str) -> None:
    tools = Toolset()
    schema = {**TASK, "required": ["title", "priority", "score"]}
    tools.register("task", task, input_schema={**TASK, "required": ["title", "priority", "score"]})
    assert schema["required"] == ["title", "priority", "score"]
    result = await tools.call("task", json.dumps({"score": 1, **bad}))

    assert result.error is not None
    assert result.error.code == "invalid_input"
    assert [violation.path for violation in result.error.violations] == [path]


async def test_defaults_of_an_explicit_schema_are_applied() -> None:
    tools = Toolset()

    @tools.tool("task", input_schema=TASK)
    def tool(title, priority, score=0, key="", tags=(), assignee=None) -> Any:  # type: ignore[no-untyped-def]
        return [score, assignee]

    given = {"title": "Write it", "priority": "low", "assignee": {"name": "Ada"}}
    assert await tools.execute("task", given) == [50, {"name": "Ada", "email": "none"}]
    assert given["assignee"] == {"name": "Ada"}


async def test_an_explicit_schema_is_closed_if_the_function_is() -> None:
    tools = Toolset()

    def anything(a, **rest) -> Any:  # type: ignore[no-untyped-def]
        return rest

    tools.register("closed", add, input_schema=ONE)
    tools.register("open", anything, input_schema=ONE)
    refused = await tools.call("closed", {"a": 1, "c": 2})

    assert tools.get("closed").input_schema["additionalProperties"] is False
    assert ONE.keys() == {"type", "properties", "required"}
    assert refused.error is not None
    assert refused.error.violations[0].message == "is not known; known: a"
    assert await tools.execute("open", {"a": 1, "c": 2}) == {"c": 2}


@dataclasses.dataclass
class Search:
    query: str
    limit: int = 10


async def test_annotations_convert_under_an_explicit_schema_too() -> None:
    tools = Toolset()
    fields = {"type": "object", "properties": {"query": {"type": "string"}}, "required": ["query"]}

    def search(what: Search) -> Any:
        return [type(what).__name__, what.query]

    tools.register("flat", search, input_schema=fields)
    tools.register(
        "named", search, input_schema={"type": "object", "properties": {"what": fields}, "required": ["what"]}
    )

    assert await tools.execute("flat", {"query": "a"}) == ["Search", "a"]
    assert await tools.execute("named", {"what": {"query": "a"}}) == ["Search", "a"]


# -- listing and filtering ---------------------------------------------------------------------


def many() -> Toolset:
    tools = Toolset()
    for name, tags in (("read_file", ["file"]), ("write_file", ["file", "write"]), ("web_search", ["web"])):
        tools.register(name, add, tags=tags)
    return tools


def test_tools_as_models_see_them() -> None:
    tools = Toolset()

    @tools.tool
    def search(query: Annotated[str, "The words"], ctx: Context, limit: int = 10) -> None:
        """Search the web."""

    assert tools.schema() == [
        {
            "name": "search",
            "description": "Search the web.",
            "input_schema": {
                "type": "object",
                "properties": {
                    "query": {"type": "string", "description": "The words"},
                    "limit": {"type": "integer", "default": 10},
                },
                "required": ["query"],
                "additionalProperties": False,
            },
        }
    ]


@pytest.mark.parametrize(
    ("names", "tags", "chosen"),
    [
        (["web_search"], [], ["web_search"]),
        (["web_search", "read_file"], [], ["web_search", "read_file"]),
        (["read_file", "read_file"], [], ["read_file"]),
        ([], ["file"], ["read_file", "write_file"]),
        ([], ["write", "web"], ["write_file", "web_search"]),
        (["write_file"], ["file"], ["write_file", "read_file"]),
        ([], "web", ["web_search"]),
        ([], [], []),
    ],
)
def test_a_view_of_names_or_tags(names: list[str], tags: list[str] | str, chosen: list[str]) -> None:
    assert many().filter(*names, tags=tags).names == chosen


def test_what_is_not_in_a_view_cannot_be_called_through_it() -> None:
    view = many().filter("read_file")

    assert view.call_sync("read_file", {"a": 1}).value == 2
    result = view.call_sync("write_file", {"a": 1})
    assert result.error is not None
    assert (result.error.code, result.error.hint) == ("tool_not_found", "Did you mean read_file?")


@pytest.mark.parametrize(
    "look",
    [lambda tools: tools.filter("web_serch"), lambda tools: tools.get("web_serch")],
    ids=["filter", "get"],
)
def test_a_name_that_does_not_exist_names_the_nearest(look: Any) -> None:
    with pytest.raises(ToolNotFound) as caught:
        look(many())

    assert caught.value.hint == "Did you mean web_search?"
    assert caught.value.details == {"nearest": "web_search"}


async def test_a_call_of_an_unknown_tool_names_the_nearest() -> None:
    error = (await many().call("web_serch")).error

    assert error is not None
    assert error.hint == "Did you mean web_search?"


def test_the_revision_tells_of_changes() -> None:
    tools = many()
    seen = [tools.revision]
    tools.register(add)
    seen.append(tools.revision)
    tools.remove("add")
    seen.append(tools.revision)

    assert len(set(seen)) == 3
    assert "add" not in tools.names


# -- calling -----------------------------------------------------------------------------------


@pytest.mark.parametrize("arguments", [{"a": 2}, '{"a": 2}', b'{"a":2}'])
async def test_arguments_come_in_three_forms(arguments: Any) -> None:
    tools = Toolset()
    tools.register(add)

    assert (await tools.call("add", arguments)).value == 3
    assert await tools.execute("add", arguments) == 3
    assert (await tools.invoke(Call("add", arguments))).value == 3
    assert (await asyncio.to_thread(tools.call_sync, "add", arguments)).value == 3


async def test_execute_raises_what_call_tells() -> None:
    tools = Toolset()
    tools.register(add)
    with pytest.raises(ToolcribError) as caught:
        await tools.execute("add", {"b": 1})

    assert caught.value.code == "invalid_input"


async def test_call_sync_works_inside_of_a_loop_as_in_a_notebook() -> None:
    tools, held = Toolset(), Toolset()
    tools.register(add)
    assert tools.call_sync("add", {"a": 1, "b": 2}).value == 3
    held.register("held", Opened())
    assert held.call_sync("held", {}).value == "open"
    async with held:
        with pytest.raises(UsageError, match="open toolset"):
            held.call_sync("held", {})


class Opened:
    """A tool that is opened and closed."""

    name, description, input_schema = "held", "Says that it is open.", {"type": "object"}

    async def open(self) -> None: ...

    async def close(self) -> None: ...

    def execute(self, arguments: dict[str, Any]) -> str:
        return "open"


async def test_replace_takes_the_place_of_a_tool_and_keeps_its_position() -> None:
    tools = Toolset()
    for name in ("one", "two"):
        tools.register(name, lambda: 1)
    with pytest.raises(ConflictError, match="named 'one' already"):
        tools.register("one", lambda: 2)
    tools.register("one", lambda: 3, replace=True)

    @tools.tool("new", replace=True)
    def new() -> int:
        return 4

    assert tools.names == ["one", "two", "new"]
    assert await tools.execute("one") == 3


def test_a_wrong_option_names_the_right_one() -> None:
    tools = Toolset()
    with pytest.raises(TypeError, match="'timout_ms' is not an option of a tool; did you mean 'timeout_ms'"):
        tools.tool(timout_ms=5)(add)  # type: ignore[call-overload]
    with pytest.raises(TypeError, match=r"'wrong' is not an option of a tool$"):
        tools.register("add", add, wrong=1)  # type: ignore[call-arg]


def test_toolsets_and_tools_show_themselves_in_one_line() -> None:
    tools = Toolset()
    assert repr(tools) == "<Toolset without tools>"
    for number in range(6):
        tools.register(f"t{number}", add)
    assert repr(tools) == "<Toolset of 6: t0, t1, t2, t3, t4, …>"
    assert repr(tools.get("t0")).startswith("<Tool t0 version 1 (function): ")


async def test_what_a_caller_gives_is_never_changed_even_by_the_tool() -> None:
    tools = Toolset()

    @tools.tool
    async def greedy(items: list[int], more: dict[str, list[int]]) -> int:
        items.append(1)
        more["a"].clear()
        return len(items)

    given = {"items": [1, 2], "more": {"a": [1]}}
    assert await tools.execute("greedy", given) == 3
    assert given == {"items": [1, 2], "more": {"a": [1]}}


async def test_a_default_is_not_shared_between_calls() -> None:
    tools = Toolset()

    @tools.tool
    async def collect(items: list[int] = []) -> list[int]:  # noqa: B006 - what a user may write
        items.append(1)
        return items

    assert await tools.execute("collect") == [1]
    assert await tools.execute("collect") == [1]


class Person(BaseModel):
    name: str = Field(min_length=1)


async def test_models_go_in_and_out() -> None:
    tools = Toolset()

    @tools.tool
    async def older(person: Person, others: list[Person]) -> list[Person]:
        return [person, *others]

    assert await tools.execute("older", {"person": {"name": "Ada"}, "others": [{"name": "Bob"}]}) == [
        {"name": "Ada"},
        {"name": "Bob"},
    ]


class Echo:
    """An executor of another kind."""

    async def run(self, call: Call, ctx: CallContext) -> Outcome:
        return Outcome([call.arguments, ctx.limit_ms])


async def test_a_tool_of_another_kind_is_bound_and_added() -> None:
    made: list[int] = []

    def make() -> Echo:
        made.append(1)
        return Echo()

    tools = Toolset(timeout_ms=100_000)
    tool = Tool("echo", "Echo", "command", {"type": "object"}, CommandExec("echo", timeout_ms=50_000))
    bound: Bound = BoundTool(tool, make, timeout_ms=100_000)
    tools.add(bound)
    with pytest.raises(ConflictError):
        tools.add(bound)

    assert made == []
    assert await tools.execute("echo", {"a": 1}) == [{"a": 1}, 50_000]
    assert await tools.execute("echo") == [{}, 50_000]
    assert made == [1]


@pytest.mark.parametrize("method", ["tool", "register"])
def test_help_and_notebooks_show_every_option(method: str) -> None:
    shown = inspect.signature(getattr(Toolset(), method)).parameters
    assert {*ToolOptions.__annotations__, "replace"} <= {*shown}
    assert shown["timeout_ms"].kind is inspect.Parameter.KEYWORD_ONLY
    assert shown["on_violation"].default == "warn"
    assert not any(one.kind is inspect.Parameter.VAR_KEYWORD for one in shown.values())
