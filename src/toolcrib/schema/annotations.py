"""Annotations as pydantic reads and writes them. It is large, so only what needs this module imports it.

Pydantic's answer is changed in few points: bytes are Base64 in JSON, dataclasses and TypedDicts refuse
unknown fields, titles that repeat a name are left out, and docstrings and `Annotated` describe fields too.
"""

from __future__ import annotations

import base64
import dataclasses
import sys
import typing
from collections.abc import Container
from contextlib import suppress
from functools import lru_cache
from typing import Any

import typing_extensions
from pydantic import EncodedBytes, PydanticUserError, TypeAdapter, ValidationError
from pydantic.dataclasses import is_pydantic_dataclass
from pydantic.errors import PydanticInvalidForJsonSchema, PydanticSchemaGenerationError
from pydantic.fields import FieldInfo
from pydantic.json_schema import GenerateJsonSchema, NoDefault
from pydantic_core import (
    PydanticCustomError,
    PydanticSerializationError,
    SchemaError,
    SchemaSerializer,
    SchemaValidator,
)
from pydantic_core import core_schema as core

from toolcrib.errors import DefinitionError, Violation
from toolcrib.schema.docstring import parse_docstring
from toolcrib.schema.jsonable import to_json, to_json_text
from toolcrib.schema.plain import described, unwrapped
from toolcrib.schema.validate import SchemaCheck, refuse
from toolcrib.schema.walk import rooted
from toolcrib.spec.naming import json_path

_typed_dict: Any = typing_extensions.TypedDict


class Annotation:
    """The schema of one annotation, and its values from JSON. Raises `DefinitionError` if it has none."""

    def __init__(self, annotation: Any, *, returned: bool = False) -> None:
        try:
            self._adapter = _adapter(annotation)
            self.schema = rooted(
                self._adapter.json_schema(
                    schema_generator=_Schemas,
                    mode="serialization" if returned else "validation",
                    union_format="primitive_type_array",
                )
            )
            name = getattr(unwrapped(annotation)[0], "__name__", None)
            for known, rule in [(name, self.schema), *self.schema.get("$defs", {}).items()]:
                if known is not None and rule.get("title") == known:
                    del rule["title"]
        except RecursionError:
            raise DefinitionError(
                f"the type {name_of(annotation)} contains itself without a name",
                hint="Make it a dataclass, a TypedDict or a pydantic model.",
            ) from None
        except (PydanticUserError, SchemaError) as error:
            raise _without_schema(annotation, error) from None

    def read(self, value: Any, at: tuple[str | int, ...] = ()) -> Any:
        """Return a checked JSON value as the annotated type. `InvalidInput` names each place below `at`."""
        try:
            return self._adapter.validate_json(to_json_text(value))
        except ValidationError as error:
            found = error.errors(include_url=False, include_context=False, include_input=False)
            raise refuse([Violation(json_path([*at, *one["loc"]]), one["msg"]) for one in found]) from None


def write(value: Any) -> Any:
    """Return a pydantic model or dataclass as JSON, by the aliases of its fields."""
    kind: Any = type(value)
    return _serializer(kind).to_python(value, mode="json", by_alias=True)


@lru_cache(maxsize=512)
def _serializer(kind: Any) -> Any:
    return _adapter(kind).serializer


def arguments_type(
    fields: dict[str, Any], optional: Container[str] = (), rest: Any = None, *, name: str = "Arguments"
) -> Any:
    """Return the type of arguments with these annotations; `rest` is that of all others."""
    items: dict[str, Any] = {}
    for field, kind in fields.items():
        needed = field not in optional and FieldInfo.from_annotation(kind).is_required()
        items[field] = kind if needed else typing_extensions.NotRequired[kind]
    more = {} if rest is None else {"extra_items": rest}
    return _typed_dict(name, items, **more)


def _adapter(annotation: Any) -> TypeAdapter[Any]:
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
    for part in typing.get_args(bare):
        _accept_typed_dicts(part, seen)
    struct = typing.get_origin(bare) or bare
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
        hints = typing.get_type_hints(struct, include_extras=True)
        if typing_extensions.is_typeddict(struct) and type(struct).__module__ == "typing":
            _accept(struct, hints)
        for hint in hints.values():
            _accept_typed_dicts(hint, seen)


def _accept(struct: Any, hints: dict[str, Any]) -> None:
    if "__get_pydantic_core_schema__" in vars(struct):
        return
    items = {}
    for name, hint in hints.items():
        stated = typing.get_origin(hint) in (typing.Required, typing.NotRequired)
        # `__required_keys__` is wrong where annotations are strings.
        form = typing.Required if name in struct.__required_keys__ else typing.NotRequired
        items[name] = hint if stated else form[hint]
    alike = _typed_dict(struct.__name__, items)
    for name in ("__doc__", "__module__", "__qualname__", "__pydantic_config__"):
        if hasattr(struct, name):
            setattr(alike, name, getattr(struct, name))
    struct.__get_pydantic_core_schema__ = lambda _, handler: handler.generate_schema(alike)


# -- JSON Schema --------------------------------------------------------------------------------------


class _Schemas(GenerateJsonSchema):
    ignored_warning_kinds = {"skipped-choice", "non-serializable-default", "skipped-discriminator"}  # noqa: RUF012

    def field_title_should_be_set(self, schema: Any) -> bool:  # noqa: ARG002
        return False

    def field_is_present(self, field: Any) -> bool:
        # A dataclass sets such a field itself.
        given = field.get("init") is not False or self.mode == "serialization"
        return given and super().field_is_present(field)

    def bytes_schema(self, schema: Any) -> dict[str, Any]:
        if self._config.ser_json_bytes != "utf8":
            return super().bytes_schema(schema)
        return {"type": "string", "contentEncoding": "base64"}

    def str_schema(self, schema: Any) -> dict[str, Any]:
        rule = super().str_schema(schema)
        if "pattern" in rule:
            try:
                SchemaCheck({"pattern": rule["pattern"]})
            except DefinitionError:  # look-ahead, which a model may ask for: pydantic checks it
                del rule["pattern"]
        return rule

    def get_union_of_schemas(self, schemas: list[dict[str, Any]]) -> dict[str, Any]:
        rule = super().get_union_of_schemas(schemas)
        kinds = rule.get("type", ())
        return {"type": kinds[0]} if len(kinds) == 1 else rule

    def literal_schema(self, schema: Any) -> dict[str, Any]:
        rule = super().literal_schema(schema)
        return {"enum": [rule.pop("const")], **rule} if "const" in rule else rule

    def model_schema(self, schema: Any) -> dict[str, Any]:
        return _documented(super().model_schema(schema), schema["cls"])

    def dataclass_schema(self, schema: Any) -> dict[str, Any]:
        rule, kind = super().dataclass_schema(schema), schema["cls"]
        return _documented(rule if is_pydantic_dataclass(kind) else _closed(rule), kind)

    def typed_dict_schema(self, schema: Any) -> dict[str, Any]:
        rule, kind = super().typed_dict_schema(schema), schema["cls"]
        return _documented(rule if hasattr(kind, "__pydantic_config__") else _closed(rule), kind)

    def get_default_value(self, schema: Any) -> Any:
        # Another factory may return a different value each time.
        factory = schema.get("default_factory")
        return factory() if factory in (list, dict, set) else schema.get("default", NoDefault)

    def encode_default(self, dft: Any) -> Any:
        try:
            return to_json(dft)
        except TypeError as error:
            raise PydanticSerializationError(str(error)) from None


def _closed(rule: dict[str, Any]) -> dict[str, Any]:
    return {"additionalProperties": False, **rule}


def _documented(rule: dict[str, Any], kind: Any) -> dict[str, Any]:
    """Add the descriptions of a class and of its fields from docstring, `Annotated` and dataclass fields."""
    doc = kind.__doc__ or ""
    # A dataclass without a docstring gets its signature as one.
    docs = parse_docstring("" if doc.startswith(f"{kind.__name__}(") else doc)
    if docs.parameters:
        rule["description"] = docs.description
    hints: dict[str, Any] = {}
    with suppress(NameError, TypeError):
        hints = typing.get_type_hints(kind, include_extras=True)
    for name, field in getattr(kind, "__dataclass_fields__", {}).items():
        docs.parameters.setdefault(name, field.metadata.get("description", ""))
    for name, part in rule.get("properties", {}).items():
        hint = hints.get(name)
        if typing.get_origin(hint) in (typing.Required, typing.NotRequired):
            (hint,) = typing.get_args(hint)
        text = described(unwrapped(hint)[1]) or docs.parameters.get(name)
        if text:
            part.setdefault("description", text)
    return rule


# -- refusals -----------------------------------------------------------------------------------------


def _without_schema(annotation: Any, error: Exception) -> DefinitionError:
    """Return the error for an annotation that pydantic does not take."""
    missing = getattr(error, "name", None)
    if missing is not None or getattr(error, "code", None) == "class-not-fully-defined":
        return DefinitionError(
            f"the annotation {missing or name_of(annotation)!r} cannot be resolved",
            hint="Define the type at module level, or import it outside of TYPE_CHECKING.",
        )
    if isinstance(error, PydanticSchemaGenerationError | PydanticInvalidForJsonSchema):
        return DefinitionError(
            f"the type {name_of(annotation)} has no JSON Schema",
            hint="Use types that pydantic supports, or give input_schema=…",
        )
    # Of errors inside one another the last says why; of the others the first line does.
    text = str(error)
    reason = " ".join(text.rpartition("SchemaError: ")[2].split()) if isinstance(error, SchemaError) else text
    reason = reason.splitlines()[0]
    return DefinitionError(f"the type {name_of(annotation)}: {reason}")


def name_of(annotation: Any) -> str:
    """Return the name of a type for messages."""
    return (isinstance(annotation, type) and annotation.__qualname__) or str(annotation)
