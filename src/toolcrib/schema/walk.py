"""The schemas inside a schema (JSON Schema 2020-12, 10.2 and 10.3)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

MAPS = frozenset({"properties", "patternProperties", "dependentSchemas", "$defs", "definitions"})
"""Keywords whose value maps names to schemas."""
LISTS = frozenset({"allOf", "anyOf", "oneOf", "prefixItems"})
INSIDE = frozenset(
    {"items", "additionalProperties", "contains", "propertyNames", "not", "if", "then", "else"}
    | {"contentSchema", "unevaluatedItems", "unevaluatedProperties"}
)
"""Keywords whose value is a schema."""


TYPES = frozenset({"array", "boolean", "integer", "null", "number", "object", "string"})
MEANT_TYPES = {
    **dict.fromkeys(("binary", "date", "date-time", "datetime", "file", "str", "text", "uuid"), "string"),
    **dict.fromkeys(("int", "int32", "int64", "long"), "integer"),
    **dict.fromkeys(("double", "float"), "number"),
    **dict.fromkeys(("list", "tuple"), "array"),
    **dict.fromkeys(("dict", "map"), "object"),
    "bool": "boolean",
}
"""Types as other languages name them, and as JSON Schema does."""


def changed(schema: Any, change: Callable[[dict[str, Any]], Any]) -> Any:
    """Return a copy of a schema, with each schema in it as `change` returns it, the inner ones first."""
    if not isinstance(schema, Mapping):
        return schema
    made: dict[str, Any] = {}
    for word, part in schema.items():
        if word in MAPS and isinstance(part, Mapping):
            made[word] = {name: changed(inner, change) for name, inner in part.items()}
        elif word in LISTS and isinstance(part, list):
            made[word] = [changed(inner, change) for inner in part]
        else:
            # Other words, such as `const` and `default`, hold values, which may look like schemas.
            made[word] = changed(part, change) if word in INSIDE else part
    return change(made)
