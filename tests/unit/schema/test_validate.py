"""Arguments are checked against their schema: all that is wrong is reported, each with its place."""

from __future__ import annotations

import copy
import datetime
import enum
import json
from pathlib import Path
from types import MappingProxyType
from typing import Any

import orjson
import pytest

from toolcrib.errors import DefinitionError, InvalidInput
from toolcrib.schema import ArgumentCheck, SchemaCheck, check_schema
from toolcrib.spec.naming import json_path, nearest

# The complete example of the AgentPG tools guide.
TASK: dict[str, Any] = {
    "type": "object",
    "properties": {
        "title": {"type": "string", "description": "Task title", "minLength": 3, "maxLength": 100},
        "priority": {
            "type": "string",
            "description": "Task priority level",
            "enum": ["low", "medium", "high", "critical"],
        },
        "score": {
            "type": "number",
            "description": "Confidence score (0-100)",
            "minimum": 0.0,
            "maximum": 100.0,
        },
        "tags": {
            "type": "array",
            "description": "Labels for the task",
            "items": {"type": "string"},
            "maxItems": 5,
        },
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
GOOD = {"title": "Write it", "priority": "low"}


def refused(schema: dict[str, Any], arguments: Any) -> InvalidInput:
    with pytest.raises(InvalidInput) as caught:
        ArgumentCheck(schema).check(arguments)
    return caught.value


@pytest.mark.parametrize("form", [dict, MappingProxyType, json.dumps, orjson.dumps])
def test_good_arguments_pass_in_every_form(form: Any) -> None:
    given = {
        **GOOD,
        "score": 87.5,
        "tags": ["a", "b"],
        "assignee": {"name": "Ada", "email": "ada@example.org"},
    }

    assert ArgumentCheck(TASK).check(form(given)) == given


@pytest.mark.parametrize(
    ("bad", "path", "says"),
    [
        ({"title": "ab"}, "$.title", "shorter than 3"),
        ({"title": "a" * 101}, "$.title", "longer than 100"),
        ({"priority": "urgent"}, "$.priority", "urgent is not one of: low, medium, high, critical"),
        ({"score": 101}, "$.score", "greater than the maximum"),
        ({"score": -1}, "$.score", "less than the minimum"),
        ({"tags": list("abcdef")}, "$.tags", "more than 5 items"),
        ({"tags": ["a", 1]}, "$.tags[1]", '1 is not of type "string"'),
        ({"assignee": {"email": "x"}}, "$.assignee.name", "is required"),
        ({"title": ...}, "$.title", "is required"),
    ],
)
def test_each_constraint_is_checked(bad: dict[str, Any], path: str, says: str) -> None:
    given = {key: value for key, value in {**GOOD, **bad}.items() if value is not ...}
    error = refused(TASK, given)

    assert [violation.path for violation in error.violations] == [path]
    assert says in error.violations[0].message
    assert path in error.message


def test_all_violations_are_reported_at_once() -> None:
    error = refused(TASK, {"title": 1, "score": "high", "tags": [1, 2], "assignee": {}})

    assert {violation.path for violation in error.violations} == {
        "$.title",
        "$.priority",
        "$.score",
        "$.tags[0]",
        "$.tags[1]",
        "$.assignee.name",
    }


CLOSED = {
    "type": "object",
    "properties": {"query": {"type": "string"}, "filters": {"$ref": "#/$defs/filters"}},
    "additionalProperties": False,
    "$defs": {"filters": {"type": "object", "properties": {"since": {}}, "additionalProperties": False}},
}


@pytest.mark.parametrize(
    ("arguments", "path", "says"),
    [
        ({"querry": "x"}, "$.querry", "is not known; did you mean query?"),
        ({"zzz": 1}, "$.zzz", "is not known; known: query, filters"),
        ({"two words": 1}, '$["two words"]', "is not known"),
        ({"filters": {"sinse": 1}}, "$.filters.sinse", "is not known"),
    ],
)
def test_an_unknown_argument_is_reported_with_the_nearest(arguments: Any, path: str, says: str) -> None:
    error = refused(CLOSED, arguments)

    assert error.violations[0].path == path
    assert says in error.violations[0].message


def test_nothing_is_expected_where_nothing_is_known() -> None:
    error = refused({"type": "object", "properties": {}, "additionalProperties": False}, {"a": 1})

    assert error.violations[0].message == "is not known; nothing is expected here"


def test_what_is_wrong_with_an_optional_value_is_reported_as_such() -> None:
    schema = {"type": "object", "properties": {"a": {"anyOf": [TASK, {"type": "null"}]}}}
    error = refused(schema, {"a": {"title": "Write it"}})

    assert error.violations == (("$.a.priority", "is required"),)


def test_a_thousand_violations_are_counted_not_reported() -> None:
    schema = {"type": "object", "properties": {"a": {"items": {"type": "string"}}}}
    error = refused(schema, {"a": list(range(1_000))})

    assert len(error.violations) == 51
    assert error.violations[-1].message == "and 950 more violations"
    assert len(error.message) < 2_000


def test_a_huge_value_is_cut_in_the_message() -> None:
    assert len(refused(TASK, {**GOOD, "priority": "x" * 10_000}).message) < 500
    for rule in ({"pattern": "(" * 10_000}, {"$ref": "x:" + "y" * 10_000}, {"type": "z" * 10_000}):
        with pytest.raises(DefinitionError) as caught:
            SchemaCheck(rule)
        assert len(caught.value.message) < 500


@pytest.mark.parametrize("arguments", [[1], [("a", 1)], 1, None, {1, 2}, "[]", b"null"])
def test_arguments_must_be_an_object(arguments: Any) -> None:
    assert "must be a JSON object" in refused({"type": "object"}, arguments).message


@pytest.mark.parametrize("value", [pytest.param(object(), id="object"), b"x", 2**64, "\ud800"], ids=repr)
def test_values_without_a_json_form_are_refused(value: Any) -> None:
    assert "no JSON form" in refused({"type": "object"}, {"a": [value]}).message


class Color(enum.Enum):
    RED = "red"


def test_python_values_are_checked_as_the_json_they_are() -> None:
    schema = {"type": "object", "properties": {"when": {"type": "string"}, "colors": {"type": "array"}}}
    given = {"when": datetime.date(2026, 1, 2), "colors": (Color.RED,)}

    assert ArgumentCheck(schema).check(given) == {"when": "2026-01-02", "colors": ["red"]}


def test_what_was_given_is_never_changed() -> None:
    schema = {
        "type": "object",
        "properties": {
            "n": {"type": "integer"},
            "inner": {"type": "object", "properties": {"a": {"default": 1}, "list": {}}},
        },
    }
    given = {"n": 2.0, "inner": {"list": [1]}}
    before = copy.deepcopy(given)
    checked = ArgumentCheck(schema).check(given)
    checked["inner"]["list"].append(2)

    assert checked == {"n": 2, "inner": {"a": 1, "list": [1, 2]}}
    assert given == before


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "string"},
        {},
        {"type": "object", "properties": {"a": {"type": "strin"}}},
        {"type": "object", "required": "a"},
        {"type": "object", "properties": {"a": {"minimum": "1"}}},
        {"type": "object", "properties": {"a": {"$ref": "#/$defs/none"}}},
    ],
    ids=str,
)
def test_a_schema_that_cannot_be_checked_is_refused(schema: dict[str, Any]) -> None:
    with pytest.raises(DefinitionError) as caught:
        check_schema(schema)

    assert caught.value.violations


@pytest.mark.parametrize(
    ("rule", "why"),
    [
        ({"pattern": "("}, '"(" is not a regex, or has look-ahead'),
        ({"pattern": "(?=a)"}, '"(?=a)" is not a regex, or has look-ahead'),
        (
            {"$ref": "https://example.org/schema.json"},
            "'https://example.org/schema.json' is another document",
        ),
    ],
    ids=str,
)
def test_a_refusal_says_what_is_not_supported(rule: dict[str, Any], why: str) -> None:
    with pytest.raises(DefinitionError) as caught:
        check_schema({"type": "object", "properties": {"a": rule}})

    assert why in caught.value.violations[0].message


def test_a_reference_to_another_file_does_not_read_it(tmp_path: Path) -> None:
    other = tmp_path / "other.json"
    other.write_text('{"type": "integer"}')
    with pytest.raises(DefinitionError, match=r"other\.json' is another document, which is not fetched"):
        check_schema({"type": "object", "properties": {"a": {"$ref": other.as_uri()}}})


def test_a_schema_checks_any_value() -> None:
    check = SchemaCheck({"type": "array", "items": {"type": "integer"}})

    assert check.is_valid([1])
    assert check.violations([1, "a"]) == [("$[1]", '"a" is not of type "integer"')]


@pytest.mark.parametrize(
    ("parts", "path"),
    [
        ([], "$"),
        (["a", 0, "b"], "$.a[0].b"),
        (["a b"], '$["a b"]'),
        (['a"b\\'], '$["a\\"b\\\\"]'),
        ([""], '$[""]'),
    ],
)
def test_json_path(parts: list[str | int], path: str) -> None:
    assert json_path(parts) == path


def test_nearest() -> None:
    assert nearest("web_serch", ["read_file", "web_search"]) == "web_search"
    assert nearest("zzz", ["read_file", "web_search"]) is None
    assert nearest("a", []) is None


def test_a_schema_may_be_a_truth_value() -> None:
    values: tuple[object, ...] = (None, 1, {"a": []})
    for value in values:
        assert SchemaCheck(True).is_valid(value)
        assert SchemaCheck(True).violations(value) == []
        assert not SchemaCheck(False).is_valid(value)
        (wrong,) = SchemaCheck(False).violations(value)
        assert wrong.path == "$"


@pytest.mark.parametrize(
    ("place", "faults"),
    [
        ({"city": "Oslo", "code": "x"}, ['$.place.code "x" is shorter than 2 characters']),
        ({"cty": "Oslo"}, ["$.place.cty is not known; did you mean city?", "$.place.city is required"]),
        ({"lat": 1}, ["$.place.lon is required"]),
        ({"city": 1}, ['$.place.city 1 is not of type "string"']),
        ("Oslo", ['$.place "Oslo" is not of type "object"']),
    ],
)  # fmt: skip
def test_of_several_forms_the_nearest_one_says_what_is_wrong(place: Any, faults: list[str]) -> None:
    city = {"properties": {"city": {"type": "string"}, "code": {"minLength": 2}}, "required": ["city"]}
    point = {"properties": {"lat": {}, "lon": {}}, "required": ["lat", "lon"]}
    forms = [{"type": "object", "additionalProperties": False, **form} for form in (city, point)]
    error = refused({"type": "object", "properties": {"place": {"oneOf": forms}}}, {"place": place})
    assert [f"{one.path} {one.message}" for one in error.violations] == faults


def test_of_forms_that_are_equally_near_all_are_named() -> None:
    error = refused({"type": "object", "anyOf": [{"required": ["a"]}, {"required": ["b"]}]}, {})
    assert error.message == "$ matches no alternative: $.a is required; or $.b is required"
