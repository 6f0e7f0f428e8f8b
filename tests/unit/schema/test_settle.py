"""Checked arguments get their defaults, and whole numbers where integers are meant."""

from __future__ import annotations

import copy
import datetime
from typing import Any

import pytest
from pydantic import TypeAdapter

from toolcrib.errors import InvalidInput
from toolcrib.schema import ArgumentCheck
from toolcrib.schema.derive import inspect_function
from toolcrib.schema.validate import settler


def settle(schema: dict[str, Any], value: Any) -> Any:
    work = settler(schema)
    return value if work is None else work(value)


INTEGER = {"type": "integer"}


@pytest.mark.parametrize(
    ("schema", "value", "expected"),
    [
        ({"properties": {"a": INTEGER}}, {"a": 2.0}, {"a": 2}),
        ({"properties": {"a": {"type": ["integer", "null"]}}}, {"a": 2.0}, {"a": 2}),
        ({"properties": {"a": {"type": "number"}}}, {"a": 2.0}, {"a": 2.0}),
        ({"properties": {"a": {"type": ["integer", "number"]}}}, {"a": 2.0}, {"a": 2.0}),
        ({"properties": {"a": {"items": INTEGER}}}, {"a": [1, 2.0]}, {"a": [1, 2]}),
        ({"additionalProperties": INTEGER}, {"b": 3.0}, {"b": 3}),
        ({"properties": {"a": {"anyOf": [{"items": INTEGER}, {"type": "null"}]}}}, {"a": [2.0]}, {"a": [2]}),
        ({"properties": {"a": {"anyOf": [{"items": INTEGER}, {"type": "null"}]}}}, {"a": None}, {"a": None}),
        ({"properties": {"a": {"default": 1}}}, {}, {"a": 1}),
        ({"properties": {"a": {"default": None}}}, {}, {"a": None}),
        ({"properties": {"a": {"default": 1}}}, {"a": None}, {"a": None}),
        (
            {"properties": {"a": {"properties": {"b": {"default": 1}, "c": INTEGER}}}},
            {"a": {"c": 2.0}},
            {"a": {"b": 1, "c": 2}},
        ),
        ({"properties": {"a": {"properties": {"b": {"default": 1}}}}}, {}, {}),
        (
            {"properties": {"a": {"items": {"properties": {"b": {"default": 1}}}}}},
            {"a": [{}, {"b": 2}]},
            {"a": [{"b": 1}, {"b": 2}]},
        ),
    ],
)
def test_settled(schema: dict[str, Any], value: Any, expected: Any) -> None:
    found = settle(schema, value)

    assert found == expected
    assert [type(item) for item in found.values()] == [type(item) for item in expected.values()]


def test_a_type_that_contains_itself() -> None:
    schema = {
        "$ref": "#/$defs/node",
        "$defs": {
            "node": {
                "properties": {
                    "size": {"type": "integer", "default": 0},
                    "children": {"type": "array", "items": {"$ref": "#/$defs/node"}},
                }
            }
        },
    }

    assert settle(schema, {"children": [{"size": 2.0}, {"children": [{}]}]}) == {
        "size": 0,
        "children": [{"size": 2}, {"size": 0, "children": [{"size": 0}]}],
    }


def test_a_value_of_a_type_that_is_only_itself_is_refused() -> None:
    schema = {"type": "object", "$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/a"}}}

    with pytest.raises(InvalidInput, match="nested too deeply"):
        ArgumentCheck(schema).check({})


def test_a_default_is_never_shared() -> None:
    schema = {"properties": {"tags": {"default": ["a"]}}}
    before = copy.deepcopy(schema)
    settle(schema, {})["tags"].append("b")

    assert settle(schema, {}) == {"tags": ["a"]}
    assert schema == before


@pytest.mark.parametrize(
    "schema", [{"type": "object"}, {"properties": {"a": {"type": "string"}}}, {"properties": {"a": True}}]
)
def test_nothing_to_do(schema: dict[str, Any]) -> None:
    assert settler(schema) is None


def test_a_default_is_read_by_the_adapter_of_all_arguments(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Any] = []
    begin = TypeAdapter.__init__

    def counted(self: Any, *given: Any, **named: Any) -> None:
        made.append(given)
        begin(self, *given, **named)

    monkeypatch.setattr(TypeAdapter, "__init__", counted)

    def tool(when: datetime.time, day: datetime.date = datetime.date(2026, 1, 2)) -> Any:
        return when, day

    assert inspect_function(tool).schema()["properties"]["day"]["default"] == "2026-01-02"
    assert len(made) == 1
