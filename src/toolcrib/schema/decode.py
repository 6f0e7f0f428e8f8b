"""Strict JSON: no duplicate keys, no integers that would be rounded, UTF-8 only. Python values as JSON."""

from __future__ import annotations

import base64
import datetime
import json
import os
import re
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import orjson

from toolcrib.errors import InvalidInput, Violation
from toolcrib.spec.naming import json_path

# orjson 3.13 writes 10,000 microseconds of a time as .10000, so dates and times are written here.
_OPTIONS = orjson.OPT_SERIALIZE_NUMPY | orjson.OPT_PASSTHROUGH_DATETIME


def to_json(value: Any) -> Any:
    """Return a JSON copy of `value`; TypeError if it has none. See `to_json_text`."""
    return orjson.loads(to_json_text(value))


def to_json_text(value: Any, *, given: bool = False) -> bytes:
    """Return the value as JSON text. With `given`, as arguments, in which bytes are refused.

    Dataclasses, pydantic models and TypedDicts become objects; tuples (named ones too) and sets arrays (sets
    sorted where their items can be); enums their values; bytes Base64; dates, durations, UUIDs, paths, URLs
    and decimals text; keys text; NaN and infinities null. TypeError for anything else, for integers beyond
    64 bit, for text that is not Unicode, and for what contains itself or is nested deeper than 254 levels.
    """
    form = _argument if given else _plain
    try:
        return orjson.dumps(value, default=form, option=_OPTIONS)
    except TypeError:  # A key that is not text? Allowing for such keys makes every value twice as slow.
        return orjson.dumps(value, default=form, option=_OPTIONS | orjson.OPT_NON_STR_KEYS)


def _argument(value: Any) -> Any:
    # Most tools take text as it is, and would not know that it is Base64.
    if isinstance(value, _BINARY):
        raise TypeError("bytes are given as Base64 text")
    return _plain(value)


_BINARY = (bytes, bytearray, memoryview)


def _plain(value: Any) -> Any:
    if hasattr(type(value), "__pydantic_serializer__"):
        from toolcrib.schema.adapters import write

        return write(value)
    if isinstance(value, (datetime.date, datetime.time)):
        return value.isoformat()
    # Sorted, because the order of a set differs between processes: equal results must be equal text.
    if isinstance(value, (set, frozenset)):
        try:
            return sorted(value)
        except TypeError:
            return list(value)
    if isinstance(value, tuple):
        return list(value)
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, _BINARY):
        return base64.b64encode(value).decode()
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    from pydantic_core import to_jsonable_python

    try:
        return to_jsonable_python(value)
    except ValueError:
        raise TypeError(f"a value of type {type(value).__name__} has no JSON form") from None


_loads, _dumps = orjson.loads, orjson.dumps
_SPACE = b" \n\r\t"
"""The white space between tokens (RFC 8259, 2)."""
_tokens = re.compile(
    r'(?P<key>"(?:[^"\\]|\\.)*")\s*:|"(?:[^"\\]|\\.)*"'
    r"|(?P<integer>-?\d+)(?![\d.eE])|-?\d[\d.eE+-]*|[\[\]{},]"
).finditer
_JSON_NAMES = {
    list: "array",
    str: "string",
    int: "number",
    float: "number",
    bool: "boolean",
    type(None): "null",
}


def decode_object(text: bytes | str) -> dict[str, Any]:
    """Parse a JSON object; `InvalidInput` for duplicate keys and integers beyond 64 bits."""
    value = decode_value(text)
    if value.__class__ is not dict:
        raise _not_an_object(value)
    return value


def decode_value(text: bytes | str, at: tuple[str, ...] = ()) -> Any:
    """Parse any JSON value, as `decode_object` does; `at` is its place among the arguments.

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
    try:
        written = _dumps(value)
    except TypeError:  # orjson has the same limit when it writes
        raise _refuse([Violation("$", "is nested deeper than 254 levels")]) from None
    # From cheap to expensive: most texts are compact and equal at once.
    if written != raw and without_space(written) != without_space(raw):
        losses = [_lost(loss, at, raw.decode()) for loss in lost_values(raw.decode())]
        if losses:
            raise _refuse(losses)
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
        return to_json_text(arguments, given=True)
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


def _loses(text: bytes | str) -> bool:
    """Return True if orjson loses a key or rounds an integer of this JSON text."""
    lost = False

    def pairs(items: list[tuple[str, Any]]) -> dict[str, Any]:
        nonlocal lost
        found = dict(items)
        lost |= len(found) != len(items)
        return found

    def integer(digits: str) -> int:
        nonlocal lost
        lost |= not _fits(digits)
        return 0

    # The hooks see every pair and every integer; `lost_values` reads tokens only to find the places.
    json.loads(text, object_pairs_hook=pairs, parse_int=integer)
    return lost


def _fits(digits: str) -> bool:
    # The limits of orjson, which have at most 20 characters. `int` raises for more than 4,300 digits.
    return len(digits) <= 20 and -(2**63) <= int(digits) < 2**64


class LostValue(NamedTuple):
    """A key or an integer of JSON text that orjson does not keep."""

    path: tuple[str | int, ...]
    start: int
    """The index in the text."""
    integer: str | None
    """The integer beyond 64 bits; None for a key that its object has twice."""


def lost_values(text: str) -> Iterator[LostValue]:
    """Yield all that orjson loses of a text that is known to be JSON."""
    if not _loses(text):
        return
    steps: list[str | int] = []
    """The key or the index of the present value in each open object or array."""
    keys: list[set[str]] = []
    for token in _tokens(text):
        sign = token[0]
        if sign in ("{", "["):
            keys.append(set())
            steps.append("" if sign == "{" else 0)
        elif sign in ("}", "]"):
            keys.pop()
            steps.pop()
        elif sign == "," and isinstance(steps[-1], int):
            steps[-1] += 1
        elif token["key"] is not None:
            steps[-1] = key = str(json.loads(token["key"]))
            if key in keys[-1]:
                yield LostValue(tuple(steps), token.start(), None)
            keys[-1].add(key)
        elif token["integer"] is not None and not _fits(sign):
            yield LostValue(tuple(steps), token.start(), sign)


def _lost(loss: LostValue, at: tuple[str, ...], text: str) -> Violation:
    path, start, integer = loss
    shown = integer if integer is None or len(integer) <= 24 else f"{integer[:24]}…"
    message = "is given twice" if shown is None else f"the integer {shown} does not fit in 64 bits"
    line, column = text.count("\n", 0, start) + 1, start - text.rfind("\n", 0, start)
    return Violation(json_path((*at, *path)), f"{message} (line {line}, column {column})")


def _refuse(violations: list[Violation]) -> InvalidInput:
    listed = "; ".join(f"{v.path} {v.message}" for v in violations[:10])
    return InvalidInput(f"the arguments are ambiguous JSON: {listed}", violations=violations)
