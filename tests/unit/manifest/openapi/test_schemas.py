"""Schemas of all dialects to 2020-12: what they let in and what they refuse afterwards."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.manifest.openapi.documents import body, hold, imported, one, tool_of
from toolcrib.schema import SchemaCheck

Case = tuple[dict[str, Any], list[Any], list[Any]]

# Schemas of 3.0: what fits, what does not
LEGACY: list[Case] = [
    ({"type": "string", "nullable": True}, ["a", None], [1]),
    ({"type": "string", "enum": ["a"], "nullable": True}, ["a", None], ["b"]),
    ({"nullable": True, "allOf": [{"$ref": "#/components/schemas/Id"}]}, [1, None], ["a", 0]),
    ({"$ref": "#/components/schemas/Id", "nullable": True}, [1, None], ["a"]),
    ({"$ref": "#/components/schemas/Id", "type": "string", "description": "d"}, [1], ["a"]),
    ({"type": "number", "minimum": 1, "exclusiveMinimum": True}, [1.5], [1]),
    ({"type": "number", "minimum": 1, "exclusiveMinimum": False}, [1], [0.5]),
    ({"type": "number", "maximum": 1, "exclusiveMaximum": True}, [0.5], [1]),
    ({"type": "string", "pattern": "(?=x)y"}, ["anything"], [1]),
    ({"type": "string", "enum": [1, 2.5, True, "x", {}, []]}, ["1", "2.5", "true", "x"], ["y"]),
    ({"type": "int"}, [1], ["a"]),
    ({"type": "strin"}, [1, "a"], []),
    ({"type": "string", "maxLength": "3"}, ["abc"], ["abcd"]),
    ({"type": "string", "minLength": -1}, [""], [1]),
    ({"type": "object", "required": True, "properties": {"a": None}}, [{}, {"a": 1}], [1]),
    ({"type": "object", "required": ["a", "a", 1]}, [{"a": 1}], [{}]),
    ({"type": "array", "items": [{"type": "string"}], "additionalItems": False}, [["a"]], [[1], ["a", 1]]),
    ({"type": "object", "additionalProperties": "true"}, [{"a": 1}], [1]),
    ({"type": "object", "dependencies": {"a": ["b"]}}, [{"a": 1, "b": 1}], [{"a": 1}]),
    (
        {"oneOf": [{"type": "string", "pattern": "(?!a)"}, {"type": "string", "pattern": "^a"}]},
        ["a", "b"],
        [1],
    ),
    ({"not": {"type": "string", "pattern": "(?!a)"}}, ["a", 1], []),
    ({"$ref": "#/components/schemas/Nowhere"}, [1, "a"], []),
    ({"$ref": "https://example.com/other.json"}, [1, "a"], []),
    ({"enum": []}, [1], []),
    ({"multipleOf": 0}, [1], []),
    ("no schema", [1], []),  # type: ignore[list-item]
]
# Schemas of 3.1
MODERN: list[Case] = [
    ({"type": ["string", "null"]}, ["a", None], [1]),
    ({"exclusiveMinimum": 1, "type": "number"}, [2], [1]),
    ({"$ref": "#/components/schemas/Id", "maximum": 5}, [5], [6, 0]),
    ({"const": 1}, [1], [2]),
    ({"type": "array", "prefixItems": [{"type": "string"}], "items": False}, [["a"]], [["a", 1]]),
    (True, [1], []),  # type: ignore[list-item]
    ({"$ref": "#named"}, ["here"], [1]),
    ({"$ref": "#/components/schemas/Tree"}, [{"kids": [{"kids": []}]}], [{"kids": [{"kids": 1}]}]),
    ({"$ref": "#/components/schemas/Branch"}, [{"kids": [{"kids": []}]}], [{"kids": [{"kids": 1}]}]),
    ({"type": "object", "unevaluatedProperties": False, "properties": {"a": True}}, [{"a": 1}], [{"b": 1}]),
]
COMPONENTS = {
    "schemas": {
        "Id": {"type": "integer", "minimum": 1},
        "Named": {"$anchor": "named", "type": "string"},
        "Tree": {
            "$dynamicAnchor": "node",
            "type": "object",
            "properties": {"kids": {"type": "array", "items": {"$dynamicRef": "#node"}}},
        },
        "Branch": {
            "$recursiveAnchor": True,
            "type": "object",
            "properties": {"kids": {"type": "array", "items": {"$recursiveRef": "#"}}},
        },
    }
}


@pytest.mark.parametrize(
    ("version", "schema", "good", "bad"),
    [("3.0.3", *case) for case in LEGACY] + [("3.1.0", *case) for case in MODERN],
)
def test_what_a_schema_lets_in(version: str, schema: dict[str, Any], good: list[Any], bad: list[Any]) -> None:
    inside = {"type": "object", "required": ["v"], "properties": {"v": schema}, "additionalProperties": False}
    tool = tool_of(one(body(inside), version, components=COMPONENTS))
    check = SchemaCheck(tool.input_schema)
    for value in good:
        assert check.is_valid({"v": value}), value
    for value in bad:
        assert not check.is_valid({"v": value}), value


def test_what_is_lost_is_reported_with_its_place() -> None:
    schema = {"type": "object", "properties": {"v": {"type": "string", "pattern": "(?=x)"}}}
    (place,) = (found := imported(one(body(schema)))).losses
    assert place.endswith(
        "#/paths/~1x/post/requestBody/content/application~1json/schema/properties/v/pattern"
    )
    assert "linear time" in found.losses[place]


def test_recursion_and_shared_schemas() -> None:
    node = {"type": "object", "properties": {"next": {"$ref": "#/components/schemas/Node"}, "v": {}}}
    schema = {"type": "array", "items": {"$ref": "#/components/schemas/Node"}}
    tool = tool_of(one(body(schema), components={"schemas": {"Node": node, "Unused": {}}}))
    assert set(tool.input_schema["$defs"]) == {"Node"}
    assert SchemaCheck(tool.input_schema).is_valid({"body": [{"next": {"next": {}}}]})
    assert not SchemaCheck(tool.input_schema).is_valid({"body": [{"next": {"next": 1}}]})


PETS = {
    "Pet": {
        "type": "object",
        "required": ["kind"],
        "properties": {
            "kind": {"type": "string"},
            "name": {"type": "string"},
            "owner": {"$ref": "#/components/schemas/Owner"},
        },
        "oneOf": [{"$ref": "#/components/schemas/Cat"}, {"$ref": "#/components/schemas/Dog"}],
        "discriminator": {
            "propertyName": "kind",
            "mapping": {"cat": "#/components/schemas/Cat", "dog": "Dog", "wolf": "Dog"},
        },
    },
    "Cat": {"allOf": [{"$ref": "#/components/schemas/Pet"}, {"properties": {"lives": {"type": "integer"}}}]},
    "Dog": {"allOf": [{"$ref": "#/components/schemas/Pet"}, {"properties": {"size": {"type": "integer"}}}]},
    "Owner": {"type": "object"},
}


def test_a_discriminator_tells_alternatives_apart_and_a_circle_in_place_ends() -> None:
    tool = tool_of(one(body({"$ref": "#/components/schemas/Pet"}), components={"schemas": PETS}))
    check = SchemaCheck(tool.input_schema)
    for good in ({"kind": "cat", "lives": 9}, {"kind": "wolf", "size": 1, "name": "a"}):
        assert check.is_valid({"body": good})
    for bad in (
        {"kind": "cat", "lives": "x"},
        {"kind": "fox"},
        {"kind": "dog", "name": 1},
        {"kind": "cat", "owner": 1},
        {},
    ):
        assert not check.is_valid({"body": bad}), bad


@pytest.mark.parametrize("word", ["allOf", "anyOf", "oneOf", "not"])
def test_a_schema_that_is_itself_is_opened(word: str) -> None:
    me = {"$ref": "#/components/schemas/Me"}
    schema: dict[str, Any] = {"Me": {"type": "object", word: me if word == "not" else [me]}}
    found = imported(one(body({"type": "array", "items": me}), components={"schemas": schema}))
    hold(found.tools[0])
    schema = {"A": {"$ref": "#/components/schemas/B"}, "B": {"$ref": "#/components/schemas/A"}}
    found = imported(one(body({"$ref": "#/components/schemas/A"}), components={"schemas": schema}))
    hold(found.tools[0])
    SchemaCheck(found.tools[0].input_schema).is_valid({"body": {}})
    assert "refers to itself in a circle" in str(found.losses)


def test_a_property_that_refers_to_its_schema_beside_another_reference_is_no_circle_in_place() -> None:
    node = {"$ref": "#/components/schemas/Node"}
    schemas = {
        "Node": {
            "type": "object",
            "properties": {
                "next": {"$ref": "#/components/schemas/Base", "allOf": [node]},
                "v": {"type": "integer"},
            },
        },
        "Base": {"type": "object"},
    }
    tool = tool_of(one(body({"type": "array", "items": node}), "3.1.0", components={"schemas": schemas}))
    check = SchemaCheck(tool.input_schema)
    assert check.is_valid({"body": [{"next": {"next": {"v": 1}}}]})
    assert not check.is_valid({"body": [{"next": {"next": {"v": "x"}}}]})


def test_read_only_goes_into_no_request_and_write_only_is_not_asked_of_an_answer() -> None:
    thing = {
        "type": "object",
        "required": ["id", "name", "password"],
        "properties": {
            "id": {"type": "integer", "readOnly": True},
            "name": {"type": "string"},
            "password": {"type": "string", "writeOnly": True},
        },
    }
    ref = {"$ref": "#/components/schemas/Thing"}
    answers = {"responses": {"200": {"description": "", "content": {"application/json": {"schema": ref}}}}}
    tool = tool_of(one({**body(ref), **answers}, components={"schemas": {"Thing": thing}}))
    assert list(tool.input_schema["properties"]) == ["name", "password"]
    assert tool.input_schema["required"] == ["name", "password"]
    assert tool.output.schema is not None
    assert SchemaCheck(tool.output.schema).is_valid({"id": 1, "name": "a"})
    assert not SchemaCheck(tool.output.schema).is_valid({"name": "a"})


def test_a_default_is_described_and_never_sent() -> None:
    schema = {"type": "object", "properties": {"private": {"type": "boolean", "default": False}}}
    tool = tool_of(one(body(schema)))
    assert tool.input_schema["properties"]["private"] == {"type": "boolean", "description": "Default: false."}


def test_deep_nesting_ends() -> None:
    schema: dict[str, Any] = {"type": "string"}
    for _ in range(120):
        schema = {"type": "object", "properties": {"a": schema}}
    found = imported(one(body({"type": "array", "items": schema})))
    hold(found.tools[0])
    assert any("nested more than" in what for what in found.losses.values())


SPELLED = """
    type enum nullable required properties items allOf oneOf anyOf not minimum exclusiveMinimum pattern $ref
    discriminator additionalProperties default maxLength format patternProperties if then const multipleOf
    uniqueItems prefixItems x-a $dynamicRef $recursiveRef $id dependencies readOnly description examples title
"""
WORDS = st.sampled_from(SPELLED.split())
ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
    | st.sampled_from(["string", "object", "array", "#/components/schemas/A", "#/components/schemas/B"])
    | st.sampled_from(["#", "(", "#/definitions/A"])
    | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(WORDS, inner, max_size=4),
    max_leaves=14,
)  # fmt: skip


@settings(max_examples=40)
@given(
    st.dictionaries(WORDS, ANYTHING, max_size=5),
    ANYTHING,
    ANYTHING,
    st.sampled_from(["2.0", "3.0.0", "3.1.0", "3.2.0"]),
)
def test_whatever_is_there_the_tool_is_valid_and_closed(
    first: dict[str, Any], second: Any, third: Any, version: str
) -> None:
    schemas = {"A": first, "B": second}
    parameters: list[dict[str, Any]] = [{"name": "q", "in": "query", "schema": third}]
    if version == "2.0":
        parameters = [{"name": "b", "in": "body", "schema": first}, {"name": "q", "in": "query", **first}]
        parameters[1].update({"name": "q", "in": "query"})
    answers = {
        "200": {"description": "", "schema": third, "content": {"application/json": {"schema": third}}}
    }
    operation = {"parameters": parameters, "responses": answers, **({} if version == "2.0" else body(first))}
    document = one(operation, version, components={"schemas": schemas}, definitions=schemas)
    found = imported(document)
    for tool in found.tools:
        hold(tool)
    assert all(made.tool or made.reason for made in found.operations)


def test_the_same_document_gives_the_same_manifest_in_every_process() -> None:
    code = (
        "import json, sys\n"
        "from toolcrib.manifest.openapi import import_document, new_manifests, read_document\n"
        "names, refer = [f'Part{at}' for at in range(12)], '#/components/schemas/'\n"
        "fields = {name: {'$ref': refer + name} for name in names}\n"
        "body = {'content': {'application/json': {'schema': {'type': 'object', 'properties': fields}}}}\n"
        "schemas = {name: {'properties': {'a': {'$ref': f'{refer}In{name}'}}} for name in names}\n"
        "schemas |= {f'In{name}': {'type': 'object'} for name in names}\n"
        "post = {'requestBody': {**body, 'required': True}, 'responses': {}}\n"
        "data = {'openapi': '3.1.0', 'servers': [{'url': 'https://a.example'}]}\n"
        "data |= {'paths': {'/a': {'post': post}}, 'components': {'schemas': schemas}}\n"
        "found = import_document(read_document(json.dumps(data).encode(), 'a.json'))\n"
        "sys.stdout.buffer.write(new_manifests(found, 'a.json')[0].text)"
    )
    first, second = (
        subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    )
    assert b"Part11" in first
    assert first == second
