"""Python values as JSON, by one rule for arguments, defaults and outputs."""

from __future__ import annotations

import base64
import datetime
import os
from collections.abc import Mapping
from typing import Any

import orjson

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
