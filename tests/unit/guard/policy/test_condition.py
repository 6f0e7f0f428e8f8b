"""Conditions over arguments: what they see, and what they refuse to leave unsaid."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolcrib.errors import DefinitionError
from toolcrib.guard import Condition
from toolcrib.guard.policy.condition import AnyCondition

ETC = {"properties": {"path": {"pattern": "^/etc"}}, "required": ["path"]}


@pytest.mark.parametrize(
    ("schema", "arguments", "expected"),
    [
        (ETC, {"path": "/etc/passwd"}, True),
        (ETC, {"path": "src"}, False),
        (ETC, {}, False),
        ({"properties": {"n": {"const": 5}}}, {"n": 5}, True),
        ({"properties": {"n": {"const": 5}}}, {"n": 5.0}, True),
        ({"properties": {"n": {"const": 5}}}, {"n": "5"}, False),
        ({"properties": {"n": {"const": 1}}}, {"n": True}, False),
        ({"minProperties": 1}, {}, False),
        ({"not": {"required": ["force"]}}, {}, True),
        ({"anyOf": [ETC, {"required": ["force"]}]}, {"force": 1}, True),
        ({"propertyNames": {"pattern": "^[a-z]+$"}}, {"A": 1}, False),
        ({"if": ETC, "then": {"required": ["force"]}}, {"path": "/etc"}, False),
    ],
)
def test_what_holds(schema: dict[str, Any], arguments: dict[str, Any], expected: bool) -> None:
    assert Condition(schema).is_met(arguments) is expected


def test_of_arguments_that_are_not_known_or_no_json_nothing_is_said() -> None:
    condition = Condition(ETC)
    for arguments in (None, {"path": {1, 2}}):
        assert condition.is_met(arguments) is None
        assert AnyCondition([condition, condition]).may_be_met(arguments)
    assert "cannot be checked" in condition.misfit({"path": {1}})


@pytest.mark.parametrize(
    ("schema", "at", "told"),
    [
        ({}, (), "has no condition"),
        ({"title": "x"}, (), "has no condition"),
        (True, (), "a mapping"),
        ([], (), "a mapping"),
        ({"path": {"pattern": "x"}}, ("path",), "`properties: {path: …}`"),
        ({"proprties": {}}, ("proprties",), "did you mean `properties`?"),
        ({"pattern": "^/etc"}, ("pattern",), "arguments, which are an object"),
        ({"type": "object"}, ("type",), "arguments, which are an object"),
        ({"properties": {"a": {"patern": "x"}}}, ("properties", "a", "patern"), "did you mean `pattern`?"),
        ({"properties": {"a": {"format": "uri"}}}, ("properties", "a", "format"), "not checked"),
        ({"$ref": "#"}, ("$ref",), "not followed"),
        ({"properties": {"a": {"$ref": "#"}}}, ("properties", "a", "$ref"), "not followed"),
        ({"$defs": {}}, ("$defs",), "no effect"),
        ({"then": ETC}, ("then",), "no effect without `if`"),
        ({"properties": {"a": {"minContains": 1}}}, ("properties", "a", "minContains"), "without `contains`"),
        ({"properties": {"a": {"pattern": "("}}}, ("properties", "a", "pattern"), "regex"),
        ({"properties": {"a": {"pattern": "(?=x)"}}}, ("properties", "a", "pattern"), "regex"),
        ({"properties": {"a": {"type": "strng"}}}, ("properties", "a", "type"), "strng"),
        ({"properties": {"a": 5}}, ("properties", "a"), "a mapping"),
        ({"properties": [1]}, ("properties",), "object"),
        ({"required": "a"}, ("required",), "array"),
        ({"allOf": [ETC, {"x": 1}]}, ("allOf", 1, "x"), "not a JSON Schema keyword"),
        ({"allOf": []}, ("allOf",), ""),
    ],
)
def test_what_would_be_passed_over_is_refused_with_its_place(
    schema: Any, at: tuple[str | int, ...], told: str
) -> None:
    with pytest.raises(DefinitionError) as caught:
        Condition(schema)
    assert tuple(caught.value.details["at"]) == at
    assert told in caught.value.message


_VALUES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-2, 2),
    st.sampled_from(["a", "b", "/etc", "1", "/var/y", "/usr", "é)"]),
)
_SCHEMAS = st.sampled_from(
    [
        ETC,
        {"required": ["a"]},
        {"properties": {"a": {"const": 1}}},
        {"properties": {"a": {"type": "string"}}, "unevaluatedProperties": False},
        {"not": {"required": ["path"]}},
        {"maxProperties": 1},
        {"properties": {"path": {"pattern": "^/usr|^/var"}}, "required": ["path"]},
        {"properties": {"path": {"pattern": "b$"}}},
        {"properties": {"path": {"pattern": "(?x) q # (", "minLength": 2}}},
        {"properties": {"path": {"pattern": "y"}}},
        {"properties": {"path": {"pattern": "(?i)USR"}, "a": {"pattern": "[)]"}}},
        {"properties": {"a": {"pattern": "[)|(]"}}},
        {"properties": {"a": {"pattern": "é"}}, "not": {"required": ["c"]}},
    ]
)


@pytest.mark.timeout(60)
@given(
    st.lists(_SCHEMAS, min_size=1, max_size=5),
    st.dictionaries(st.sampled_from(["a", "path", "c"]), _VALUES),
)
def test_all_at_once_is_what_each_says_alone(
    schemas: list[dict[str, Any]], arguments: dict[str, Any]
) -> None:
    conditions = [Condition(schema) for schema in schemas]
    each = [condition.is_met(arguments) for condition in conditions]
    assert AnyCondition(conditions).may_be_met(arguments) is (any(each) or len(each) == 1)
