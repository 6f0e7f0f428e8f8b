"""Leniency: text that says a number is that number, and nothing is guessed."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolcrib import Toolset
from toolcrib.errors import InvalidInput
from toolcrib.schema import ArgumentCheck
from toolcrib.schema.lenient import relaxed

SCHEMA: dict[str, Any] = {
    "type": "object",
    "$defs": {"n": {"type": "integer"}},
    "properties": {
        "n": {"$ref": "#/$defs/n"},
        "x": {"type": "number"},
        "b": {"type": "boolean"},
        "s": {"type": "string"},
        "o": {"type": "object", "properties": {"n": {"type": "integer"}}, "additionalProperties": False},
        "a": {"type": "array", "items": {"type": "integer"}},
        "maybe": {"anyOf": [{"type": "integer"}, {"type": "null"}]},
        "either": {"type": ["string", "integer"]},
        "any": {},
        "map": {"type": "object", "additionalProperties": {"type": "integer"}},
    },
    "additionalProperties": False,
}


@pytest.mark.parametrize(
    ("given_value", "meant"),
    [
        ({"n": "12"}, {"n": 12}),
        ({"n": " -3 "}, {"n": -3}),
        ({"x": "1.5"}, {"x": 1.5}),
        ({"x": "1e3"}, {"x": 1000.0}),
        ({"x": "7"}, {"x": 7}),
        ({"b": "true"}, {"b": True}),
        ({"b": "False"}, {"b": False}),
        ({"o": '{"n": "1"}'}, {"o": {"n": 1}}),
        ({"a": '["1", 2]'}, {"a": [1, 2]}),
        ({"a": ["1", "2"]}, {"a": [1, 2]}),
        ({"map": {"k": "4"}}, {"map": {"k": 4}}),
        ({"maybe": "5"}, {"maybe": 5}),
        ({"maybe": "null"}, {"maybe": None}),
        (
            {"n": "12", "s": "12", "any": "12", "either": "12"},
            {"n": 12, "s": "12", "any": "12", "either": "12"},
        ),
    ],
)
def test_what_is_almost_right_is_read(given_value: dict[str, Any], meant: dict[str, Any]) -> None:
    assert ArgumentCheck(SCHEMA, lenient=True).check(given_value) == meant
    with pytest.raises(InvalidInput):
        ArgumentCheck(SCHEMA).check(given_value)


@pytest.mark.parametrize("lenient", [True, False])
@pytest.mark.parametrize(
    ("given_value", "meant"),
    [
        ({"n": None, "s": "a"}, {"s": "a"}),
        ({"o": {"n": None}}, {"o": {}}),
        ({"maybe": None, "any": None, "n": None}, {"maybe": None, "any": None}),
    ],
)
def test_null_leaves_an_argument_out_that_must_not_be_null(
    given_value: dict[str, Any], meant: dict[str, Any], lenient: bool
) -> None:
    assert ArgumentCheck(SCHEMA, lenient=lenient).check(given_value) == meant


@pytest.mark.parametrize("lenient", [True, False])
def test_null_is_not_dropped_where_it_is_a_value_of_its_own(lenient: bool) -> None:
    required = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    for schema, value in (
        (SCHEMA, {"map": {"k": None}}),
        (SCHEMA, {"a": [None]}),
        (SCHEMA, {"q": None}),
        (required, {"n": None}),
    ):
        with pytest.raises(InvalidInput):
            ArgumentCheck(schema, lenient=lenient).check(value)


def test_a_default_takes_the_place_of_null() -> None:
    schema = {
        "type": "object",
        "properties": {"n": {"type": "integer", "default": 3}, "s": {"type": "string"}},
    }

    assert ArgumentCheck(schema).check({"n": None}) == {"n": 3}


@pytest.mark.parametrize(
    "wrong",
    [
        {"n": "1.5"},
        {"n": "twelve"},
        {"n": "0x10"},
        {"n": "1_000"},
        {"n": "١٢"},
        {"n": ""},
        {"n": "9" * 30},
        {"x": "nan"},
        {"x": "inf"},
        {"x": "1e999"},
        {"b": "yes"},
        {"b": "1"},
        {"b": 1},
        {"o": "[1]"},
        {"o": '{"n": 1, "n": 2}'},
        {"o": '{"n": 1}, "q": {}'},
        {"o": '{"n": NaN}'},
        {"a": '{"a": 1}'},
        {"o": "{" * 100_000},
        {"unknown": "1"},
        {"o": {"m": None}, "n": []},
    ],
)
def test_what_is_not_plainly_meant_stays_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput):
        ArgumentCheck(SCHEMA, lenient=True).check(wrong)


@given(
    st.dictionaries(
        st.sampled_from([*SCHEMA["properties"]]), st.integers() | st.text() | st.none() | st.booleans()
    )
)
def test_what_fits_stays_as_it_is_and_what_is_read_fits(value: dict[str, Any]) -> None:
    strict, lenient = ArgumentCheck(SCHEMA), ArgumentCheck(SCHEMA, lenient=True)
    try:
        exact = strict.check(value)
    except InvalidInput:
        try:
            read = lenient.check(value)
        except InvalidInput:
            return
        assert strict.check(read) == read
        return
    assert lenient.check(value) == exact


def test_schemas_that_go_round_in_circles_end() -> None:
    loop = {
        "type": "object",
        "properties": {"a": {"$ref": "#/$defs/x"}},
        "$defs": {"x": {"$ref": "#/$defs/x"}},
    }
    assert relaxed({"a": "1"}, loop) == {"a": "1"}
    either: dict[str, Any] = {
        "$defs": {"x": {"anyOf": [{"$ref": "#/$defs/x"}]}},
        "properties": {"a": {"$ref": "#/$defs/x"}},
    }
    assert relaxed({"a": "1"}, either) == {"a": "1"}


def test_the_switch_is_off_by_default_and_of_the_whole_toolset() -> None:
    def double(n: int) -> int:
        return n * 2

    async def calls() -> list[Any]:
        results = []
        for toolset in (Toolset(), Toolset(lenient=True)):
            toolset.register(double)
            results.append(await toolset.call("double", {"n": "21"}))
        return results

    strict, lenient = asyncio.run(calls())
    assert strict.error is not None
    assert strict.error.code == "invalid_input"
    assert lenient.value == 42
