"""Pydantic's adapters of annotations, with bytes as Base64 in JSON and every kind of TypedDict."""

from __future__ import annotations

import base64
import dataclasses
import sys
from contextlib import suppress
from functools import lru_cache
from typing import Any, NotRequired, Required, get_args, get_origin, get_type_hints

import typing_extensions
from pydantic import EncodedBytes, TypeAdapter
from pydantic_core import PydanticCustomError, SchemaSerializer, SchemaValidator
from pydantic_core import core_schema as core

from toolcrib.schema.plain import unwrapped

_typed_dict: Any = typing_extensions.TypedDict


def write(value: Any) -> Any:
    """Return a pydantic model or dataclass as JSON, by the aliases of its fields."""
    kind: Any = type(value)
    return _serializer(kind).to_python(value, mode="json", by_alias=True)


@lru_cache(maxsize=512)
def _serializer(kind: Any) -> Any:
    return adapter_of(kind).serializer


def adapter_of(annotation: Any) -> TypeAdapter[Any]:
    """Return the adapter of an annotation. Raises pydantic's errors if it has none."""
    if sys.version_info < (3, 12):
        _accept_typed_dicts(annotation, set())
    adapter: TypeAdapter[Any] = TypeAdapter(annotation)
    schema: Any = _changed(adapter.core_schema)
    if schema is not adapter.core_schema:
        # The validators that models carry read bytes as text.
        adapter.core_schema = schema
        adapter.validator = SchemaValidator(schema, _use_prebuilt=False)
        adapter.serializer = SchemaSerializer(schema, _use_prebuilt=False)
    return adapter


def some_of(adapter: TypeAdapter[Any]) -> SchemaValidator:
    """Return the validator of the TypedDict of an adapter which requires none of its fields."""
    whole: Any = adapter.core_schema
    has_definitions = whole["type"] == "definitions"
    struct = whole["schema"] if has_definitions else whole
    fields = {name: {**field, "required": False} for name, field in struct["fields"].items()}
    struct = {**struct, "fields": fields}
    return SchemaValidator({**whole, "schema": struct} if has_definitions else struct, _use_prebuilt=False)


# -- bytes --------------------------------------------------------------------------------------------


def _changed(part: Any) -> Any:
    """Return a part of pydantic's own schema, in which bytes are Base64 in JSON; itself if it has none.

    Pydantic can do so by the settings of a model, but not for those without them, and with `-` and `_` in
    place of `+` and `/`. A model with such settings keeps them. An `Iterable` becomes a list, whose items
    are checked before the call.
    """
    if isinstance(part, list):
        items = [_changed(item) for item in part]
        return items if any(new is not old for new, old in zip(items, part, strict=True)) else part
    if not isinstance(part, dict) or {"ser_json_bytes", "val_json_bytes"} & part.get("config", {}).keys():
        return part
    function = part.get("function")
    if isinstance(function, dict) and isinstance(
        getattr(function.get("function"), "__self__", None), EncodedBytes
    ):
        return part
    if part.get("type") == "bytes":
        read: Any = core.no_info_before_validator_function(_decoded, part)
        shown = core.plain_serializer_function_ser_schema(_encoded, when_used="json")
        return core.json_or_python_schema(read, part, serialization=shown)
    if part.get("type") == "generator":
        part = {**part, "type": "list"}
    made = {key: inner if key in _VALUES else _changed(inner) for key, inner in part.items()}
    return made if any(made[key] is not inner for key, inner in part.items()) else part


_VALUES = ("default", "metadata")
"""Keys of pydantic's own schema that hold values."""


def _decoded(value: Any) -> Any:
    try:
        text = value.translate(str.maketrans("-_", "+/"))
        return base64.b64decode(text + "=" * (-len(text) % 4), validate=True)
    except (AttributeError, ValueError):
        raise PydanticCustomError("base64", "is not Base64") from None


def _encoded(value: Any) -> Any:
    return base64.b64encode(value).decode() if isinstance(value, bytes) else value


# -- TypedDict ----------------------------------------------------------------------------------------


def _accept_typed_dicts(annotation: Any, seen: set[Any]) -> None:
    """Let pydantic read each `typing.TypedDict` in an annotation, which it refuses before Python 3.12."""
    bare, _ = unwrapped(annotation)
    for part in get_args(bare):
        _accept_typed_dicts(part, seen)
    struct = get_origin(bare) or bare
    if not isinstance(struct, type) or struct in seen or hasattr(struct, "__pydantic_validator__"):
        return
    seen.add(struct)
    if not (
        dataclasses.is_dataclass(struct)
        or hasattr(struct, "_fields")
        or typing_extensions.is_typeddict(struct)
    ):
        return
    with suppress(NameError):  # Pydantic names it.
        hints = get_type_hints(struct, include_extras=True)
        if typing_extensions.is_typeddict(struct) and type(struct).__module__ == "typing":
            _accept(struct, hints)
        for hint in hints.values():
            _accept_typed_dicts(hint, seen)


def _accept(struct: Any, hints: dict[str, Any]) -> None:
    if "__get_pydantic_core_schema__" in vars(struct):
        return
    items = {}
    for name, hint in hints.items():
        stated = get_origin(hint) in (Required, NotRequired)
        # `__required_keys__` is wrong where annotations are strings.
        form = Required if name in struct.__required_keys__ else NotRequired
        items[name] = hint if stated else form[hint]
    alike = _typed_dict(struct.__name__, items)
    for name in ("__doc__", "__module__", "__qualname__", "__pydantic_config__"):
        if hasattr(struct, name):
            setattr(alike, name, getattr(struct, name))
    struct.__get_pydantic_core_schema__ = lambda _, handler: handler.generate_schema(alike)
