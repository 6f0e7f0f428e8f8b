"""The OpenAPI description: one style, everything typed, an example of everything that fits."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import jsonschema_rs
import pytest

from toolcrib.serve.http import HEADERS
from toolcrib.serve.rest import ROUTES, openapi

DOCUMENT = openapi()
COMPONENTS: dict[str, Any] = DOCUMENT["components"]
OPERATIONS: dict[str, Any] = {
    f"{method.upper()} {path}": operation
    for path, methods in DOCUMENT["paths"].items()
    for method, operation in methods.items()
}
FOREIGN = {"retry", "limits", "auth", "steps"}
"""Blocks that are written as in the files of their format."""


def properties(schema: Any, at: str = "") -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Yield the properties of a schema and those below: place, name, schema; foreign blocks are left out."""
    if isinstance(schema, list):
        for one in schema:
            yield from properties(one, at)
    elif isinstance(schema, dict):
        for name, rule in schema.get("properties", {}).items():
            yield at, name, rule
            if name not in FOREIGN:
                yield from properties(rule, f"{at}.{name}")
        for key in ("items", "anyOf", "additionalProperties"):
            yield from properties(schema.get(key), f"{at}.{key}")


def contents(operation: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    yield from operation.get("requestBody", {}).get("content", {}).items()
    for answer in operation["responses"].values():
        yield from answer.get("content", {}).items()


def test_names_are_in_camel_case_and_times_and_ids_have_their_formats() -> None:
    found = [one for name, schema in COMPONENTS["schemas"].items() for one in properties(schema, name)]
    assert len(found) > 300
    for place, name, rule in found:
        assert re.fullmatch(r"[a-z][a-zA-Z0-9]*", name), (place, name)
        if re.search(r"(At|Until|begins)$", name) and name != "compactAt":
            assert "date-time" in json.dumps(rule), (place, name)
        if name.endswith(("Id", "ID")):
            assert name.endswith("ID") == (name in ("bundleID", "toolID", "sourceBundleID")), (place, name)


def test_no_list_has_items_without_a_type() -> None:
    for name, schema in COMPONENTS["schemas"].items():
        for place, field, rule in properties(schema, name):
            for one in (rule, *rule.get("anyOf", ())):
                if one.get("type") == "array":
                    assert one["items"] not in ({}, {"type": "object"}), (place, field)


@pytest.mark.parametrize("name", OPERATIONS)
def test_everything_of_an_operation_has_an_example_that_fits(name: str) -> None:
    operation = OPERATIONS[name]
    given = [(one["schema"], one["example"]) for one in operation["parameters"]]
    given += [(one["schema"], one["example"]) for _, one in contents(operation)]
    for schema, example in given:
        checked = {"allOf": [schema], "components": COMPONENTS}
        jsonschema_rs.validate(checked, example, validate_formats=True)


def test_what_a_route_reads_and_answers_is_declared() -> None:
    for route in ROUTES:
        operation = OPERATIONS[f"{route.method} {route.path}"]
        headers = {one["name"] for one in operation["parameters"] if one["in"] == "header"}
        assert headers <= set(HEADERS)
        assert ("Idempotency-Key" in headers) == (
            # What a second PUT of a secret does is the same.
            (route.method == "PUT" and route.path != "/secrets/{secretName}")
            or (route.path.endswith(("/invoke", "{name}")) and route.path != "/tools/draft/invoke")
        )
        assert ("Last-Event-ID" in headers) == route.path.endswith("/events")
        assert bool(operation["security"]) == (route.scope is not None)
        for answer in (one for status, one in operation["responses"].items() if status == "429"):
            assert "Retry-After" in answer["headers"]
        made = operation["responses"].get("201") or operation["responses"].get("202")
        if made and route.method == "POST" and route.path not in ("/login", "/session", "/downloads"):
            assert "Location" in made["headers"]
    invoked = OPERATIONS["POST /tools/invoke/{name}"]
    assert "Prefer" in {one["name"] for one in invoked["parameters"]}
    assert invoked["responses"]["200"]["content"].keys() == {"application/json", "text/event-stream"}
    events = invoked["responses"]["200"]["content"]["text/event-stream"]
    kinds = events["schema"]["properties"]["data"]["contentSchema"]["anyOf"]
    assert [one["$ref"].rpartition("/")[2] for one in kinds] == ["EventData", "InvokeResult"]
