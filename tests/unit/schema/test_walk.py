"""Schemas whose references multiply end nothing: a few lines of one could stop a process for years."""

from __future__ import annotations

from typing import Any

import pytest

from toolcrib.errors import DefinitionError, InvalidInput
from toolcrib.schema import ArgumentCheck, SchemaCheck
from toolcrib.schema.lenient import kinds_of
from toolcrib.schema.provider_shapes import shape_tools
from toolcrib.schema.walk import multiplies
from toolcrib.spec import FunctionExec, Tool

LEVELS = 60


def chain(word: str = "allOf", reference: str = "#/$defs/a{}", name: str = "$comment") -> dict[str, Any]:
    """An object with a property `a` of a schema that leads to the next one in several ways, and so on."""
    steps = [{"$ref": reference.format(level + 1)} for level in range(LEVELS)]
    by_list = word in ("allOf", "anyOf", "oneOf")
    defs: dict[str, dict[str, Any]] = {
        f"a{level}": {word: [step] * 3} if by_list else {"allOf": [step], word: step}
        for level, step in enumerate(steps)
    }
    defs[f"a{LEVELS}"] = {"type": ["string", "object"]}
    named = {key: {**rule, name: key} for key, rule in defs.items()}
    return {"type": "object", "properties": {"a": {"$ref": reference.format(0)}}, "$defs": named}


def of_a_resource() -> dict[str, Any]:
    """The same, in a schema with an address of its own, from which its references start."""
    inner = {**chain(), "$id": "https://x/inner"}
    names: dict[str, Any] = {name: {} for name in inner["$defs"]}
    return {
        "type": "object",
        "properties": {"a": {"$ref": "#/$defs/inner"}},
        "$defs": {**names, "inner": inner},
    }


BOMBS = {
    **{word: chain(word) for word in ("allOf", "anyOf", "oneOf", "not", "if")},
    "escaped": chain(reference="#/%24defs/a{}"),
    "anchors": chain(reference="#a{}", name="$anchor"),
    "addresses": {"$id": "https://x/y", **chain(reference="a{}", name="$id")},
    "resource": of_a_resource(),
    "places": {
        "type": "object",
        "allOf": [*({"allOf": [{"$ref": f"#/allOf/{at}"}] * 2} for at in range(1, LEVELS)), {}],
    },
    "dependent": {
        "type": "object",
        "$defs": {
            f"a{at}": {"dependentSchemas": {key: {"$ref": f"#/$defs/a{at + 1}"} for key in "xy"}}
            for at in range(LEVELS)
        }
        | {f"a{LEVELS}": {}},
        "properties": {"a": {"$ref": "#/$defs/a0"}},
    },
    # Too long to be counted.
    "chain": {"type": "object", "$defs": {f"a{at}": {"$ref": f"#/$defs/a{at - 1}"} for at in range(1, 999)}},
}


@pytest.mark.parametrize("kind", BOMBS)
def test_a_schema_whose_references_multiply_is_refused(kind: str) -> None:
    with pytest.raises(DefinitionError, match="references multiply"):
        SchemaCheck(BOMBS[kind])


def nested(value: Any, levels: int = 70, *, in_list: bool = False) -> Any:
    for _ in range(levels):
        value = [value] if in_list else {"a": value}
    return value


@pytest.mark.parametrize("lenient", [False, True])
@pytest.mark.parametrize("word", ["allOf", "anyOf", "oneOf"])
def test_faults_that_multiply_with_the_value_are_reported_as_one(word: str, lenient: bool) -> None:
    link = {"properties": {"a": {"$ref": "#/$defs/n"}}}
    schema = {
        "type": "object",
        "properties": {"a": {"$ref": "#/$defs/n"}},
        "$defs": {"n": {word: [link, link], "type": ["object", "string"]}},
    }
    with pytest.raises(InvalidInput, match="does not match its schema"):
        ArgumentCheck(schema, lenient=lenient).check(nested(1))


def test_so_are_those_that_multiply_by_patterns_and_positions() -> None:
    again = {"$ref": "#/$defs/n"}
    for link in ({"patternProperties": {"a": again}}, {"prefixItems": [again]}):
        types = ["object", "array"]
        schema = {"properties": {"a": again}, "$defs": {"n": {"allOf": [link, link], "type": types}}}
        (found,) = SchemaCheck(schema).violations({"a": nested(1, in_list="prefixItems" in link)})
        assert "references multiply the faults" in found.message


def test_faults_in_trees_and_long_lists_are_listed() -> None:
    tree = {
        "type": "object",
        "required": ["rows"],
        "properties": {
            "rows": {"type": "array", "items": {"$ref": "#/$defs/row"}},
            **{side: {"$ref": "#"} for side in ("left", "right")},
        },
        "$defs": {"row": {"type": "object", "required": ["x"], "properties": {"x": {"type": "integer"}}}},
    }
    value = {"rows": [{"x": at} for at in range(30_000)] + [{}], "left": {"rows": [], "right": {}}}
    assert [found.path for found in SchemaCheck(tree).violations(value)] == [
        "$.rows[30000].x",
        "$.left.right.rows",
    ]


def test_a_list_for_a_provider_leaves_out_a_schema_that_multiplies() -> None:
    link = {f"p{at}": {"$ref": "#/$defs/a1"} for at in range(2)}
    defs = {
        f"a{level}": {
            "type": "object",
            "properties": {name: {"$ref": f"#/$defs/a{level + 1}"} for name in link},
        }
        for level in range(LEVELS)
    }
    wide = {"type": "object", "properties": link, "$defs": {**defs, f"a{LEVELS}": {"type": "string"}}}
    SchemaCheck(wide)
    tools = [
        Tool(name, "d", "function", schema, FunctionExec("m:f"))
        for name, schema in (("wide", wide), ("good", {"type": "object"}))
    ]
    shaped = shape_tools(tools, "openai")
    assert [entry["function"]["name"] for entry in shaped.entries] == ["good"]
    assert "more than 20,000 parts" in shaped.refused["wide"]


def test_the_types_of_a_schema_that_multiplies_are_found() -> None:
    schema = chain("anyOf")
    schema["$defs"]["a9"] = {"type": "string"}
    assert kinds_of(schema["properties"]["a"], schema) == {"string"}
    assert kinds_of(chain()["properties"]["a"], chain()) == frozenset()


def test_a_reference_to_several_parts_counts_for_each_of_them() -> None:
    parts: dict[str, Any] = {"s4": {"$anchor": "s4"}}
    for number in range(4):
        part: dict[str, Any] = {"$ref": f"#s{number + 1}"}
        for _ in range(20):
            part = {"$anchor": f"s{number}", "allOf": [part]}
        parts[f"s{number}"] = part
    # Four references, each to twenty parts in one another: the last is checked 20^4 times.
    assert multiplies({"$ref": "#s0", "$defs": parts})
