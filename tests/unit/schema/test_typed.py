"""A schema as a type: what it lets through, the validator would let through as the very same value."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolcrib.errors import InvalidInput
from toolcrib.schema import ArgumentCheck, SchemaCheck
from toolcrib.schema.typed import typed_check

WORDS = st.sampled_from(["a", "b", "name", "für", "with-dash", "class", ""])
TEXTS = st.one_of(WORDS, st.text(max_size=6))
NUMBERS = st.one_of(
    st.integers(-3, 6),
    st.sampled_from([2**53, 2**63, 2**64 - 1, 2**64, -(2**63), -(2**63) - 1]),
    st.sampled_from([0.0, -0.0, 1.0, 2.5, 1e3, 1e300, 5e-324]),
)
BOUNDS = st.one_of(st.integers(-2, 5), st.sampled_from([0.5, 2.0, 2**60, -(2**53)]))
NOTES = st.dictionaries(
    st.sampled_from(["title", "description", "format", "default"]),
    st.sampled_from(["email", "x"]),
    max_size=1,
)


def limited(
    kind: str, limits: list[str], bounds: st.SearchStrategy[Any]
) -> st.SearchStrategy[dict[str, Any]]:
    return st.builds(
        lambda found, notes: {"type": kind, **found, **notes},
        st.dictionaries(st.sampled_from(limits), bounds, max_size=2),
        NOTES,
    )


RANGE = ["minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"]
LEAVES = st.one_of(
    limited("string", ["minLength", "maxLength"], st.integers(0, 4)),
    limited("integer", RANGE, BOUNDS),
    limited("number", RANGE, BOUNDS),
    limited("integer", ["multipleOf"], st.integers(1, 3)),
    st.sampled_from([{"type": "boolean"}, {"type": "null"}, {}, True, False, {"const": "a"}]),
    st.sampled_from([{"type": ["string", "null"], "minLength": 2}, {"type": ["integer", "number"]}]),
    st.sampled_from(
        [{"type": "string", "pattern": "^a"}, {"$ref": "#/$defs/Part"}, {"$ref": "#/$defs/None"}]
    ),
    st.builds(lambda options: {"enum": options}, st.lists(st.one_of(WORDS, NUMBERS), min_size=1, max_size=3)),
)


def grown(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.one_of(
        st.builds(
            lambda items, least: {"type": "array", "items": items, "minItems": least},
            inner,
            st.integers(0, 2),
        ),
        st.builds(lambda one: {"anyOf": [one, {"type": "null"}]}, inner),
        st.builds(lambda one, two: {"anyOf": [one, two]}, inner, inner),
        objects(inner),
    )


def objects(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    return st.builds(
        lambda properties, required, others: {
            "type": "object",
            "properties": properties,
            "required": sorted(required),
            **({} if others is None else {"additionalProperties": others}),
        },
        st.dictionaries(WORDS, inner, max_size=3),
        st.sets(WORDS, max_size=2),
        st.one_of(st.none(), st.booleans(), inner),
    )


SCHEMAS = st.builds(
    lambda schema, part: {**schema, "$defs": {"Part": part}},
    objects(st.recursive(LEAVES, grown, max_leaves=6)),
    LEAVES,
)
VALUES = st.recursive(
    st.one_of(st.none(), st.booleans(), NUMBERS, TEXTS),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(WORDS, inner, max_size=3)),
    max_leaves=8,
)


def fitting(schema: Any, part: Any) -> st.SearchStrategy[Any]:
    """Values that have the form the schema asks for, most of them."""
    if schema == {"$ref": "#/$defs/Part"}:
        schema = {} if isinstance(part, dict) and "$ref" in part else part
    if not isinstance(schema, dict):
        return VALUES
    if "anyOf" in schema:
        return st.one_of(*(fitting(one, part) for one in schema["anyOf"]))
    if "enum" in schema:
        return st.one_of(st.sampled_from(schema["enum"]), TEXTS)
    kind = schema.get("type")
    if kind == "object":
        known = {name: fitting(inner, part) for name, inner in schema["properties"].items()}
        return st.one_of(
            st.fixed_dictionaries({}, optional=known),
            st.fixed_dictionaries(known),
            st.builds(
                lambda one, two: {**one, **two},
                st.fixed_dictionaries(known),
                st.dictionaries(WORDS, VALUES, max_size=1),
            ),
        )
    if kind == "array":
        return st.lists(fitting(schema["items"], part), max_size=3)
    return {"string": TEXTS, "integer": NUMBERS, "number": NUMBERS, "boolean": st.booleans()}.get(
        str(kind), VALUES
    )


def reader(schema: dict[str, Any]) -> Callable[[Any], Any] | None:
    """What reads in one step; it gives None for what is to be read again."""
    return typed_check(schema, otherwise=lambda _: None)


@given(st.data())
def test_what_the_type_lets_through_fits_the_schema_and_is_the_same_value(data: st.DataObject) -> None:
    schema = data.draw(SCHEMAS)
    try:
        check = SchemaCheck(schema)
    except Exception:  # a reference that leads nowhere, a negative length: refused before any type is made
        return
    read = reader(schema)
    if read is None:
        return
    value = data.draw(st.one_of(fitting(schema, schema["$defs"]["Part"]), VALUES))
    text = data.draw(
        st.sampled_from([json.dumps(value), json.dumps(value, ensure_ascii=False, separators=(",", ":"))])
    )
    got = read(text)
    if got is not None:
        assert check.is_valid(json.loads(text))
        assert json.dumps(got) == json.dumps(json.loads(text))


TASK = {
    "type": "object",
    "properties": {
        "title": {"type": "string", "minLength": 3, "maxLength": 10},
        "priority": {"type": "string", "enum": ["low", "high"]},
        "score": {"type": "number", "minimum": 0, "exclusiveMaximum": 100},
        "count": {"type": "integer", "default": 1},
        "tags": {"type": "array", "items": {"type": "string"}, "maxItems": 2},
        "who": {"anyOf": [{"$ref": "#/$defs/Who"}, {"type": "null"}]},
        "labels": {"type": "object", "additionalProperties": {"type": "string"}},
    },
    "required": ["title"],
    "additionalProperties": False,
    "$defs": {"Who": {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}},
}


@pytest.mark.parametrize(
    "text",
    [
        '{"title":"Sharpen"}',
        '{ "title" : "Sharpen" ,\n"score": 1 }',
        '{"score":87.5,"title":"Sharpen","priority":"low","count":3}',
        '{"title":"Sharpen","tags":["a","b"],"who":{"name":"Grace"},"labels":{"x":"y"}}',
        '{"title":"Sharpen","who":null}',
        '{"title":"😀😀😀😀😀😀😀😀😀😀"}',
    ],
)
def test_what_fits_is_read_in_one_step(text: str) -> None:
    read = reader(TASK)
    assert read is not None
    assert json.dumps(read(text)) == json.dumps(json.loads(text))
    assert read(text.encode()) == read(text)


@pytest.mark.parametrize(
    "text",
    [
        '{"title":"Sharpen","other":1}',
        '{"title":"Sharpen","who":{"name":"Grace","age":3}}',
        '{"title":"Sharpen","title":"Sharpen"}',
        '{"title":"Sharpen","labels":{"x":"y","x":"y"}}',
        '{"title":"Sharpen","count":2.0}',
        '{"title":"Sharpen","count":true}',
        '{"title":"Sharpen","count":18446744073709551616}',
        '{"title":"Sharpen","score":1e1}',
        '{"title":"Sharpen","score":100}',
        '{"title":"Shar\\u0070en"}',
        '{"title":"ab"}',
        '{"title":"Sharpen","priority":"medium"}',
        '{"title":"Sharpen","tags":["a","b","c"]}',
        '{"title":"Sharpen","labels":{"x":1}}',
        "{}",
        "[]",
        "",
        '{"title":"Sharpen"} x',
        '{"title":"\ud800xx"}',
        '{"title":' + "[" * 100_000,
    ],
)
def test_anything_else_is_left_to_the_validator(text: str) -> None:
    read = reader(TASK)
    assert read is not None
    assert read(text) is None


@pytest.mark.parametrize(
    "inner",
    [
        {"type": "string", "pattern": "^a"},
        {"type": "integer", "multipleOf": 2},
        {"type": "integer", "minimum": 0.5},
        {"type": "integer", "minimum": 0, "exclusiveMinimum": 0},
        {"type": "number", "maximum": 2**60},
        {"type": "array", "uniqueItems": True},
        {"type": "object", "minProperties": 1},
        {"type": "object", "required": ["x"]},
        {"enum": [1, "a"]},
        {"anyOf": [{"type": "string"}, {"type": "integer"}]},
        {"anyOf": [{"type": "null"}, {"type": "null"}]},
        {"not": {"type": "string"}},
        {"minLength": 1},
        {"$ref": "#/$defs/Self"},
        {"$ref": "#/$defs/a~1b"},
        {"$ref": "#/$defs/a%62"},
        {"$ref": "#/properties/y"},
        {"type": "string", "x-own": 1},
        False,
    ],
)
def test_a_schema_that_says_more_than_a_type_has_none(inner: Any) -> None:
    schema = {
        "type": "object",
        "properties": {"x": inner},
        "$defs": {
            "Self": {"type": "object", "properties": {"more": {"$ref": "#/$defs/Self"}}},
            **{key: {"type": "string"} for key in ("a~1b", "a%62", "#/properties/y")},
        },
    }
    assert reader(schema) is None


def test_a_schema_that_refers_to_itself_many_times_or_is_very_deep_costs_little() -> None:
    parts = {
        f"P{n}": {
            "type": "object",
            "properties": {"one": {"$ref": f"#/$defs/P{n + 1}"}, "two": {"$ref": f"#/$defs/P{n + 1}"}},
        }
        for n in range(40)
    }
    fan = {
        "type": "object",
        "properties": {"x": {"$ref": "#/$defs/P0"}},
        "$defs": {**parts, "P40": {"type": "string"}},
    }
    read = reader(fan)
    assert read is not None
    assert read('{"x":{"one":{"two":{}}}}') is not None
    deep: dict[str, Any] = {"type": "string"}
    for _ in range(10_000):
        deep = {"type": "array", "items": deep}
    assert reader({"type": "object", "properties": {"x": deep}}) is None


@pytest.mark.parametrize(
    "wrong", [{"title": "ab", "other": 1}, b"[]", "{", '"\ud800"', {"title": object()}, 7]
)
def test_either_way_refuses_the_same(wrong: Any) -> None:
    given = ArgumentCheck(TASK)
    expected = []
    for _ in range(5):
        with pytest.raises(InvalidInput) as caught:
            given.check(wrong)
        expected.append(caught.value.violations)
    assert expected == [expected[0]] * 5
    assert expected[0]


def test_either_way_gives_the_same_arguments() -> None:
    given = ArgumentCheck(TASK)
    first = given.check
    for _ in range(5):
        assert given.check('{"title":"Sharpen"}') == {"title": "Sharpen", "count": 1}
    assert given.check is not first
    same: list[Any] = ['{"title":"Sharpen"}', b'{"title": "Sharpen"}', '{"title":"Shar\\u0070en"}']
    for form in [*same, {"title": "Sharpen"}]:
        assert given.check(form) == first(form) == {"title": "Sharpen", "count": 1}
    assert given.check({"title": "Sharpen", "count": 2.0}) == {"title": "Sharpen", "count": 2}
    with pytest.raises(InvalidInput) as caught:
        given.check(orjson.dumps({"title": "ab", "other": 1}))
    assert {violation.path for violation in caught.value.violations} == {"$.title", "$.other"}
