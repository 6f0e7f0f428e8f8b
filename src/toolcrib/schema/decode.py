"""Strict JSON: no duplicate keys, no integers that would be rounded, UTF-8 only."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import orjson

from toolcrib.errors import InvalidInput, Violation
from toolcrib.schema.jsonable import to_json_text

__all__ = ["as_text", "decode_object", "without_space"]

_loads, _dumps = orjson.loads, orjson.dumps
_SPACE = b" \n\r\t"
"""The white space between tokens (RFC 8259, 2)."""
_JSON_NAMES = {
    list: "array",
    str: "string",
    int: "number",
    float: "number",
    bool: "boolean",
    type(None): "null",
}


def decode_object(text: bytes | str) -> dict[str, Any]:
    """Parse a JSON object; `InvalidInput` for duplicate keys and integers beyond 64 bits.

    orjson keeps the last of two equal keys and rounds long integers to floats. So the value is written again:
    if the text is the same, white space aside, nothing was lost. If it differs (escapes, exponents), the
    slower standard parser reads it once more and finds what orjson hides.
    """
    try:
        raw: bytes = text.encode() if text.__class__ is str else text  # type: ignore[assignment]
        value: Any = _loads(raw)
    except ValueError as error:
        raise InvalidInput(
            f"the arguments are not JSON: {error}",
            hint='Give one JSON object, such as {"name": "value"}.',
            violations=[Violation("$", f"not JSON: {error}")],
        ) from None
    if value.__class__ is not dict:
        raise _not_an_object(value)
    try:
        written = _dumps(value)
    except TypeError:  # orjson has the same limit when it writes
        raise _refuse([Violation("$", "is nested deeper than 254 levels")]) from None
    if written != raw and without_space(written) != without_space(raw):
        _check_slowly(raw)
    return value


def as_text(arguments: Mapping[str, Any] | bytes | str) -> bytes:
    """Return arguments as JSON text; text is returned as it is, unchecked.

    Raises `InvalidInput` for values without a JSON form, UnicodeEncodeError for text that is not Unicode.
    """
    if isinstance(arguments, bytes):
        return arguments
    if isinstance(arguments, str):
        return arguments.encode()
    if not isinstance(arguments, Mapping):
        raise _not_an_object(arguments)
    try:
        return to_json_text(arguments)
    except TypeError as error:
        raise InvalidInput(
            f"the arguments have no JSON form: {error}", violations=[Violation("$", str(error))]
        ) from None


def without_space(text: bytes) -> bytes:
    """Return JSON text without any white space, also without that inside strings."""
    return text.translate(None, _SPACE)


def _not_an_object(value: Any) -> InvalidInput:
    """Return the error for arguments that are not a JSON object."""
    kind = type(value)
    name = _JSON_NAMES.get(kind, kind.__name__)
    return InvalidInput(
        f"the arguments must be a JSON object, not {name}",
        violations=[Violation("$", f"must be an object, not {name}")],
    )


def _check_slowly(text: bytes) -> None:
    violations: list[Violation] = []

    def pairs(items: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(items)
        if len(found) != len(items):
            keys = [key for key, _ in items]
            violations.extend(Violation(f"$.{key}", "is given twice") for key in found if keys.count(key) > 1)
        return found

    def integer(digits: str) -> int:
        if len(digits) > 20 or not -(2**63) <= int(digits) < 2**64:
            shown = digits if len(digits) <= 24 else f"{digits[:24]}…"
            violations.append(Violation("$", f"the integer {shown} does not fit in 64 bits"))
            return 0
        return int(digits)

    json.loads(text, object_pairs_hook=pairs, parse_int=integer)
    if violations:
        raise _refuse(violations)


def _refuse(violations: list[Violation]) -> InvalidInput:
    listed = "; ".join(f"{v.path} {v.message}" for v in violations[:10])
    return InvalidInput(f"the arguments are ambiguous JSON: {listed}", violations=violations)
