"""The keywords of a schema, each mended to what JSON Schema 2020-12 allows; what cannot be mended is dropped."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

__all__ = ["COUNTS", "NUMBERS", "PLAIN", "count", "flag", "number", "pattern_fits", "types"]

PLAIN = frozenset({"title", "description", "format", "contentEncoding", "contentMediaType", "$comment"})
"""Keywords whose value is a text."""
COUNTS = frozenset(
    {"minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties"}
    | {"minContains", "maxContains"}
)
NUMBERS = frozenset({"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"})

_TYPES = frozenset({"array", "boolean", "integer", "null", "number", "object", "string"})
_MEANT = {
    "binary": "string",
    "bool": "boolean",
    "date": "string",
    "date-time": "string",
    "datetime": "string",
    "dict": "object",
    "double": "number",
    "file": "string",
    "float": "number",
    "int": "integer",
    "int32": "integer",
    "int64": "integer",
    "list": "array",
    "long": "integer",
    "map": "object",
    "str": "string",
    "text": "string",
    "uuid": "string",
}
_LARGEST = 2**63 - 1
_LONGEST_PATTERN = 10_000


def types(value: Any) -> list[str] | None:
    """The types that `type` names, other spellings understood; None when it names none."""
    names = value if isinstance(value, list) else [value]
    found: list[str] = []
    for name in names:
        lower = name.lower() if isinstance(name, str) else "null" if name is None else ""
        known = lower if lower in _TYPES else _MEANT.get(lower)
        if known is None:
            return None
        if known not in found:
            found.append(known)
    return found or None


def count(value: Any) -> int | None:
    """A length; None for what is none, and for one that nothing reaches."""
    whole = number(value)
    return int(whole) if whole is not None and 0 <= whole <= _LARGEST and whole == int(whole) else None


def number(value: Any) -> int | float | None:
    """A number, also one written as text; None for what is none, or beyond 64 bits."""
    if isinstance(value, str):
        try:
            value = float(value) if not value.lstrip("-").isdecimal() else int(value)
        except ValueError:
            return None
    if isinstance(value, bool) or not isinstance(value, int | float) or value - value != 0:
        return None
    return value if abs(value) <= _LARGEST or isinstance(value, float) else float(value)


def flag(value: Any) -> bool | None:
    """A truth value, also one written as text."""
    if isinstance(value, str):
        return {"true": True, "false": False}.get(value.strip().lower())
    return value if isinstance(value, bool) else None


@lru_cache(maxsize=4096)
def pattern_fits(pattern: str) -> bool:
    """Whether the engine that matches in linear time takes the pattern."""
    import jsonschema_rs

    if len(pattern) > _LONGEST_PATTERN:
        return False
    try:
        jsonschema_rs.Draft202012Validator(
            {"pattern": pattern}, offline=True, pattern_options=jsonschema_rs.RegexOptions()
        )
    except (ValueError, TypeError):
        return False
    return True
