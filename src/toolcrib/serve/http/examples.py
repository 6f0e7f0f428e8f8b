"""Example values of JSON Schemas, for the description of routes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_FORMATS = {"date-time": "2026-05-04T09:30:00.000Z", "uuid": "018faf50-b7b6-7a01-9a05-a22a6e0af101"}
_TYPES: dict[str, Any] = {"string": "text", "integer": 1, "number": 1.5, "boolean": True, "null": None}


def example_of(rule: Mapping[str, Any], components: Mapping[str, Any]) -> Any:
    """Return a value that fits a schema; its references are to `components`.

    It is the first of the schema's own `examples` where it has any. A pattern needs one.
    """
    if "$ref" in rule:
        return example_of(components[rule["$ref"].rpartition("/")[2]], components)
    for known in ("examples", "enum"):
        if known in rule:
            return rule[known][0]
    if "anyOf" in rule:
        return example_of(rule["anyOf"][0], components)
    kind = rule.get("type", "object")
    kind = kind if isinstance(kind, str) else kind[0]
    if kind == "object":
        return _object(rule, components)
    if kind == "array":
        return [example_of(rule["items"], components)] if rule.get("items") else []
    if rule.get("default") is not None:
        return rule["default"]
    return _FORMATS.get(
        rule.get("format", ""), max(rule["minimum"], 1) if "minimum" in rule else _TYPES[kind]
    )


def _object(rule: Mapping[str, Any], components: Mapping[str, Any]) -> dict[str, Any]:
    named = rule.get("properties", {}).items()
    found = {name: example_of(one, components) for name, one in named if not one.get("readOnly")}
    more = rule.get("additionalProperties")
    return found or ({"name": example_of(more, components)} if isinstance(more, dict) and more else {})
