"""JSON Schema 2020-12: derived from Python signatures, compiled, checked."""

from typing import TYPE_CHECKING, Any

from toolcrib.schema.decode import decode_object, decode_value
from toolcrib.schema.jsonable import to_json, to_json_text
from toolcrib.schema.validate import ArgumentCheck, SchemaCheck, check_schema

if TYPE_CHECKING:
    from toolcrib.schema.derive import FunctionShape as FunctionShape
    from toolcrib.schema.derive import inspect_function as inspect_function

_DERIVED = ("FunctionShape", "inspect_function")
"""Imported on first use: only a program that registers functions needs these."""


def __getattr__(name: str) -> Any:
    if name not in _DERIVED:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from toolcrib.schema import derive

    return getattr(derive, name)
