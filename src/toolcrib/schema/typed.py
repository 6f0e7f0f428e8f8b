"""Fast checks: a schema becomes a Python type, and msgspec parses and checks JSON text in one step.

A schema is used so only if a type expresses it exactly, so a value that passes is always valid. A value that
does not pass goes to the JSON Schema validator, which decides and names every violation.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Annotated, Any, Literal, NotRequired, TypedDict

import orjson

from toolcrib.errors import InvalidInput
from toolcrib.schema.decode import as_text, to_json_text, without_space

_dumps, _write = orjson.dumps, partial(to_json_text, given=True)

_NOTES = frozenset(
    {"$comment", "$defs", "$schema", "default", "deprecated", "description", "examples", "format",
     "readOnly", "title", "writeOnly"}
)  # fmt: skip
"""Keywords that do not restrict values (`format` is an annotation in 2020-12)."""
_NUMBER = {"type", "exclusiveMaximum", "exclusiveMinimum", "maximum", "minimum"}
_KEYWORDS = {
    "array": {"type", "items", "maxItems", "minItems"},
    "boolean": {"type"},
    "integer": _NUMBER,
    "null": {"type"},
    "number": _NUMBER,
    "object": {"type", "additionalProperties", "properties", "required"},
    "string": {"type", "maxLength", "minLength"},
}
_SCALARS = {"boolean": bool, "integer": int, "null": None, "string": str}
_NULL = {"type": "null"}
_LIMITS = {
    "exclusiveMaximum": "lt",
    "exclusiveMinimum": "gt",
    "maximum": "le",
    "maxItems": "max_length",
    "maxLength": "max_length",
    "minimum": "ge",
    "minItems": "min_length",
    "minLength": "min_length",
}
_EXACT = 2**53
"""Greater bounds are not the same number in every parser."""


class _NoTypeError(Exception):
    """No type expresses this schema exactly."""


def typed_check(
    schema: Mapping[str, Any],
    otherwise: Callable[[Any], Any],
    settle: Callable[[Any], Any] | None = None,
) -> Callable[[Any], Any] | None:
    """Return the reader of arguments that match `schema`; None if no type expresses the schema exactly.

    It passes arguments to `otherwise` if they are not JSON, do not match, or differ from the text that the
    value is written as, white space aside. That last check finds what msgspec drops silently: properties
    that the schema does not name, duplicate keys, and integers beyond 64 bits.
    """
    import msgspec

    try:
        decode = msgspec.json.Decoder(_Types(schema).of(schema)).decode
    except (_NoTypeError, TypeError, RecursionError):  # TypeError: a union that msgspec cannot distinguish
        return None

    def check(arguments: Any) -> Any:
        try:
            kind = arguments.__class__
            write = _write if kind is dict else as_text
            text = arguments if kind is bytes else write(arguments)
            value = decode(text)
            again = _dumps(value)
            if again == text or without_space(again) == without_space(text):
                return value if settle is None else settle(value)
        except (ValueError, TypeError, RecursionError, InvalidInput):
            pass
        return otherwise(arguments)

    return check


class _Types:
    """The types of one schema, whose `$ref`s are followed."""

    def __init__(self, schema: Mapping[str, Any]) -> None:
        self._definitions = schema.get("$defs", {})
        self._made: dict[str, Any] = {}

    def of(self, rule: Any) -> Any:
        if rule is True or rule == {}:
            return Any
        if not isinstance(rule, Mapping):
            raise _NoTypeError
        words = rule.keys() - _NOTES
        if words == {"$ref"}:
            return self._referred(rule["$ref"])
        if words == {"anyOf"}:
            others = [branch for branch in rule["anyOf"] if branch != _NULL]
            if len(others) != 1 or len(rule["anyOf"]) != 2:
                raise _NoTypeError
            return self.of(others[0]) | None
        if "enum" in words and words <= {"enum", "type"}:
            return _one_of(rule)
        kind, *null = rule["type"] if isinstance(rule.get("type"), list) else [rule.get("type")]
        if null not in ([], ["null"]) or kind not in _KEYWORDS or not words <= _KEYWORDS[kind]:
            raise _NoTypeError
        made = self._kind(kind, rule)
        return made | None if null else made

    def _kind(self, kind: str, rule: Mapping[str, Any]) -> Any:
        if kind == "object":
            return self._object(rule)
        if kind == "array":
            return _limited(list[self.of(rule.get("items", True))], rule)  # type: ignore[misc]
        if kind == "number":  # Integers stay integers, as with other parsers.
            return _limited(int, rule) | _limited(float, rule)
        return _limited(_SCALARS[kind], rule)

    def _object(self, rule: Mapping[str, Any]) -> Any:
        properties, others = rule.get("properties", {}), rule.get("additionalProperties", True)
        required = set(rule.get("required", ()))
        # A TypedDict cannot require a key that it does not describe.
        if not required <= properties.keys():
            raise _NoTypeError
        if not properties and others is not False:
            return dict[str, self.of(others)]  # type: ignore[misc]
        types = {name: self.of(inner) for name, inner in properties.items()}
        fields = {name: one if name in required else NotRequired[one] for name, one in types.items()}
        return TypedDict("_Object", fields)  # type: ignore[operator] # mypy needs literal names

    def _referred(self, reference: str) -> Any:
        name = reference.removeprefix("#/$defs/")
        if name == reference or any(char in name for char in "~%/"):  # elsewhere, or written with escapes
            raise _NoTypeError
        if name not in self._made:
            self._made[name] = None  # until it is made: recursive types are not supported
            self._made[name] = self.of(self._definitions.get(name, False))
        if self._made[name] is None:
            raise _NoTypeError
        return self._made[name]


def _one_of(rule: Mapping[str, Any]) -> Any:
    options = tuple(rule["enum"])
    if rule.get("type", "string") != "string" or any(option.__class__ is not str for option in options):
        raise _NoTypeError
    return Literal[options]


def _limited(kind: Any, rule: Mapping[str, Any]) -> Any:
    from msgspec import Meta

    limits = {_LIMITS[key]: bound for key, bound in rule.items() if key in _LIMITS}
    exact = (int, float) if kind is float else (int,)
    # msgspec takes one lower and one upper bound.
    if {"ge", "gt"} <= limits.keys() or {"le", "lt"} <= limits.keys():
        raise _NoTypeError
    # By class, because True is an int to `isinstance`.
    if any(bound.__class__ not in exact or abs(bound) > _EXACT for bound in limits.values()):
        raise _NoTypeError
    return Annotated[kind, Meta(**limits)] if limits else kind
