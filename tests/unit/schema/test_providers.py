"""Wire names and the shapes other parties want."""

from __future__ import annotations

import re
from typing import Any

import jsonschema_rs
import mcp_types
import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolcrib.schema.providers import anthropic_tool, mcp_output_schema, mcp_tool, wire_names
from toolcrib.spec import Annotations, ApprovalRule, Example, FunctionExec, Output, Tool

ANTHROPIC_NAME = re.compile(r"^[a-zA-Z0-9_-]{1,64}$")
"""As Anthropic's tool-use documentation gives it; OpenAI and MCP take all of it too."""

INPUT = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}


def make(name: str = "add", **fields: Any) -> Tool:
    described: dict[str, Any] = {"description": "Add.", "kind": "function", "input_schema": INPUT} | fields
    return Tool(name, config=FunctionExec("m:f"), **described)


def names(*given_names: str) -> list[str]:
    return list(wire_names([make(name) for name in given_names]))


def test_a_name_that_fits_is_kept() -> None:
    assert names("add", "list-files", "A_1", "x" * 64) == ["add", "list-files", "A_1", "x" * 64]


def test_foreign_characters_become_underscores() -> None:
    assert names("my.tool", "web search") == ["my_tool", "web_search"]


def test_a_derived_name_never_takes_the_name_of_another_tool() -> None:
    first, second = names("my.tool", "my_tool")
    assert second == "my_tool"
    assert re.fullmatch(r"my_tool_[0-9a-f]{8}", first)


def test_names_do_not_depend_on_the_order_of_the_list() -> None:
    given_names = ["a.b", "a b", "a_b", "日本", "x" * 80]
    forth = wire_names([make(name) for name in given_names])
    back = wire_names([make(name) for name in reversed(given_names)])
    assert {wire: tool.name for wire, tool in forth.items()} == {
        wire: tool.name for wire, tool in back.items()
    }


def test_names_without_any_letter_we_may_use_stay_apart() -> None:
    first, second = names("日本", "東京")
    assert first.startswith("tool_")
    assert first != second


def test_versions_of_one_tool_stay_apart() -> None:
    tools = [make(version=1), make(version=2)]
    wired = wire_names(tools)
    assert list(wired.values()) == tools
    assert next(iter(wired)) == "add"


@given(st.lists(st.text(min_size=1, max_size=90), unique=True, max_size=12))
def test_wire_names_hold_anthropics_limit_and_lead_back(tool_names: list[str]) -> None:
    tools = [make(name) for name in tool_names]
    wired = wire_names(tools)
    assert list(wired.values()) == tools
    assert all(ANTHROPIC_NAME.match(name) for name in wired)


def test_ten_thousand_foreign_names_are_quick() -> None:
    assert len(names(*(f"werkzeug.{'ü' * 60}{number}" for number in range(10_000)))) == 10_000


def test_the_mcp_shape() -> None:
    tool = make(
        "my.tool",
        annotations=Annotations(read_only=True, open_world=False),
        tags=("maths",),
        approval=ApprovalRule(True, "it costs"),
        examples=(Example("One", {"a": 1}, "2"),),
    )
    entry = mcp_tool(tool, "my_tool")
    assert entry == {
        "name": "my_tool",
        "title": "my.tool",
        "description": 'Add.\n\nExamples:\n- One: {"a":1} → 2',
        "inputSchema": INPUT,
        "annotations": {"readOnlyHint": True, "openWorldHint": False},
        "_meta": {
            "toolcrib/tool": {
                "name": "my.tool",
                "version": 1,
                "bundle": "project",
                "tags": ["maths"],
                "approval": {"required": True, "reason": "it costs"},
            }
        },
    }
    mcp_types.Tool.model_validate(entry)


def test_a_plain_tool_has_no_empty_members() -> None:
    assert set(mcp_tool(make(), "add")) == {"name", "description", "inputSchema", "_meta"}


def test_many_examples_do_not_swell_the_description() -> None:
    tool = make(examples=tuple(Example("x" * 100, {"a": number}) for number in range(100)))
    assert len(mcp_tool(tool, "add")["description"]) < 2_200


@pytest.mark.parametrize("schema", [{}, {"properties": {"a": {}}}, {"type": "object"}])
def test_an_input_schema_always_says_object_and_properties(schema: dict[str, Any]) -> None:
    for shape in (
        mcp_tool(make(input_schema=schema), "add")["inputSchema"],
        anthropic_tool(make(input_schema=schema), "add")["input_schema"],
    ):
        assert shape["type"] == "object"
        assert "properties" in shape


def test_an_object_output_schema_goes_out_as_it_is() -> None:
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}}
    assert mcp_output_schema(make(output=Output(schema=schema))) == schema
    assert mcp_output_schema(make()) is None


def test_an_output_schema_that_refers_to_an_object_is_one() -> None:
    node = {"type": "object", "properties": {"next": {"$ref": "#/$defs/node"}}}
    schema = {"$ref": "#/$defs/node", "$defs": {"node": node}}
    assert mcp_output_schema(make(output=Output(schema=schema))) == {**node, "$defs": {"node": node}}


@pytest.mark.parametrize("word", ["oneOf", "anyOf"])
def test_a_union_of_objects_is_an_object(word: str) -> None:
    cat, dog = {"type": "object", "properties": {"lives": {"type": "integer"}}}, {"type": "object"}
    union = {word: [{"$ref": "#/$defs/cat"}, dog], "$defs": {"cat": cat}}
    assert mcp_output_schema(make(output=Output(schema=union))) == {"type": "object", **union}
    wrapped = mcp_output_schema(make(output=Output(schema={word: [dog, {"type": "null"}]})))
    assert wrapped is not None
    assert list(wrapped["properties"]) == ["result"]


def test_any_other_output_schema_is_wrapped_and_its_references_still_resolve() -> None:
    schema = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$defs": {"node": {"type": "object", "properties": {"next": {"$ref": "#/$defs/node"}}}},
        "type": "array",
        "items": {"anyOf": [{"$ref": "#/$defs/node"}, {"const": {"$ref": "#/kept"}}]},
    }
    wrapped = mcp_output_schema(make(output=Output(schema=schema)))
    assert wrapped is not None
    assert wrapped["type"] == "object"
    check = jsonschema_rs.Draft202012Validator(wrapped, offline=True)
    assert check.is_valid({"result": [{"next": {"next": {}}}, {"$ref": "#/kept"}]})
    assert not check.is_valid({"result": [{"next": 3}]})
    assert not check.is_valid({})


def test_the_anthropic_shape() -> None:
    tool = make(examples=(Example("One", {"a": 1}),))
    assert anthropic_tool(tool, "add") == {
        "name": "add",
        "description": "Add.",
        "input_schema": INPUT,
        "input_examples": [{"a": 1}],
    }


def test_what_anthropic_refuses_at_the_top_is_reported_in_words() -> None:
    tool = make(input_schema=INPUT | {"anyOf": [{"required": ["a"]}, {"required": ["b"]}]})
    entry = anthropic_tool(tool, "add")
    assert "anyOf" not in entry["input_schema"]
    assert '"anyOf":[{"required":["a"]},{"required":["b"]}]' in entry["description"]
    assert "anyOf" in tool.input_schema
