"""The schemas inside a schema (JSON Schema 2020-12, 10.2 and 10.3)."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any
from urllib.parse import unquote

from toolcrib.spec.naming import pointed

MAPS = frozenset({"properties", "patternProperties", "dependentSchemas", "$defs", "definitions"})
"""Keywords whose value maps names to schemas."""
LISTS = frozenset({"allOf", "anyOf", "oneOf", "prefixItems"})
INSIDE = frozenset(
    {"items", "additionalProperties", "contains", "propertyNames", "not", "if", "then", "else"}
    | {"contentSchema", "unevaluatedItems", "unevaluatedProperties"}
)
"""Keywords whose value is a schema."""
KEYWORDS = (
    MAPS
    | LISTS
    | INSIDE
    | {"$anchor", "$comment", "$dynamicAnchor", "$dynamicRef", "$id", "$ref", "$schema", "$vocabulary"}
    | {"const", "contentEncoding", "contentMediaType", "default", "dependencies", "dependentRequired"}
    | {"deprecated", "description", "enum", "examples", "exclusiveMaximum", "exclusiveMinimum", "format"}
    | {"maxContains", "maxItems", "maxLength", "maxProperties", "maximum", "minContains", "minItems"}
    | {"minLength", "minProperties", "minimum", "multipleOf", "pattern", "readOnly", "required", "title"}
    | {"type", "uniqueItems", "writeOnly"}
)
"""All keywords of 2020-12, and two of older drafts that it still has."""

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


def rooted(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return a copy of a schema in which a local reference at the root is written out."""
    made = dict(schema)
    seen = set()
    while isinstance(target := made.get("$ref"), str) and target.startswith("#/") and target not in seen:
        seen.add(target)
        found = pointed(schema, target)
        if not isinstance(found, Mapping):
            break
        del made["$ref"]
        made = {**found, **made}
    return made


def schemas(
    schema: Any, path: tuple[str | int, ...] = ()
) -> Iterator[tuple[tuple[str | int, ...], Mapping[str, Any]]]:
    """Yield a schema and each one in it, with the path that leads there."""
    waiting = [(path, schema)]
    while waiting:
        at, part = waiting.pop()
        if not isinstance(part, Mapping):
            continue
        yield at, part
        for word, inner in part.items():
            if word in MAPS and isinstance(inner, Mapping):
                waiting += (((*at, word, name), one) for name, one in inner.items())
            elif word in LISTS and isinstance(inner, list):
                waiting += (((*at, word, number), one) for number, one in enumerate(inner))
            elif word in INSIDE:
                waiting.append(((*at, word), inner))


_MOST_CHECKS = 20_000
_MOST_PAIRS = 200_000
_OFTEN = 8
_SEVERAL = re.compile(r"\$(?:dynamicRef|id|anchor|dynamicAnchor)\b")
"""The keywords by which one reference may lead to several parts."""


def multiplies(schema: Mapping[str, Any], value: Any = "") -> bool:
    """Return True if references multiply the checks of one value, without one: of some text in any place.

    Of 30 schemas that each name the next one twice, the last one is checked 2^30 times. The validator
    remembers the objects and lists that it has checked, but no text, and nothing where it lists all faults.
    """
    text = str(schema)
    count = text.count("$ref")
    if not count and "$dynamicRef" not in text:
        return False
    # Where each of `count` references leads to one part, n parts are checked at most n · 2^count times.
    if not (value or _SEVERAL.search(text)) and (text.count(" ") + 1) << count <= _MOST_CHECKS:
        return False
    checks = _Checks(schema)
    try:
        most = checks.of(schema, value) if value else max(checks.of(part, "") for part in checks.parts)
        return most > max(_MOST_CHECKS, _OFTEN * (len(checks.known) + _size(value)))
    except (OverflowError, RecursionError):
        return True


def _size(value: Any) -> int:
    parts = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return 1 + sum(map(_size, parts))


class _Checks:
    """The number of checks of parts of a schema on parts of a value, rather too many than too few."""

    def __init__(self, root: Mapping[str, Any]) -> None:
        self.known: dict[tuple[int, int], int] = {}
        self.parts: list[Mapping[str, Any]] = []
        waiting: list[Any] = [root]
        while waiting:
            part = waiting.pop()
            if isinstance(part, Mapping):
                self.parts.append(part)
                waiting += part.values()
            elif isinstance(part, list):
                waiting += part
        self._roots = [root, *(part for part in self.parts if "$id" in part and part is not root)]

    def of(self, rule: Any, value: Any) -> int:
        """Return the number for one part of each. Raises OverflowError if there are too many parts."""
        if not isinstance(rule, Mapping):
            return 1
        key = id(rule), id(value)
        if key not in self.known:
            if len(self.known) == _MOST_PAIRS:
                raise OverflowError
            self.known[key] = 0  # for a reference in a circle
            self.known[key] = 1 + sum(self.of(*pair) for pair in self._pairs(rule, value))
        return self.known[key]

    def _pairs(self, rule: Mapping[str, Any], value: Any) -> Iterator[tuple[Any, Any]]:
        within = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
        for word, part in rule.items():
            if word in ("$ref", "$dynamicRef"):
                yield from ((target, value) for target in self._targets(str(part)))
            elif word in ("not", "if", "then", "else"):
                yield part, value
            elif word in INSIDE:
                yield from ((part, inner) for inner in within)
            elif word == "prefixItems" and isinstance(part, list):
                yield from zip(part, within, strict=False)
            elif word in LISTS and isinstance(part, list):
                yield from ((one, value) for one in part)
            elif word == "properties" and isinstance(part, Mapping) and isinstance(value, dict):
                yield from ((one, value[name]) for name, one in part.items() if name in value)
            elif word == "dependentSchemas" and isinstance(part, Mapping):
                yield from ((one, value) for one in part.values())
            elif word == "patternProperties" and isinstance(part, Mapping):
                yield from ((one, inner) for one in part.values() for inner in within)

    def _targets(self, reference: str) -> Iterator[Any]:
        """Yield all parts that a reference may lead to, from whatever base."""
        fragment = reference.partition("#")[2]
        if fragment and not unquote(fragment).startswith("/"):
            names = ("$anchor", "$dynamicAnchor")
            yield from (part for part in self.parts if unquote(fragment) in map(part.get, names))
        else:
            yield from (pointed(root, f"#{fragment}") for root in self._roots)
