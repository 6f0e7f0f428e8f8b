"""Annotations as pydantic reads and writes them. It is large, so only what needs this module imports it.

Pydantic's answer is changed in few points: bytes are Base64 in JSON, dataclasses and TypedDicts refuse
unknown fields, titles that repeat a name are left out, and docstrings and `Annotated` describe fields too.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable
from contextlib import suppress
from functools import cached_property
from typing import Annotated, Any, NotRequired, Required, get_args, get_origin, get_type_hints

import typing_extensions
from pydantic import PydanticUserError, ValidationError
from pydantic.dataclasses import is_pydantic_dataclass
from pydantic.errors import PydanticInvalidForJsonSchema, PydanticSchemaGenerationError
from pydantic.fields import FieldInfo
from pydantic.json_schema import GenerateJsonSchema, NoDefault
from pydantic_core import (
    PydanticSerializationError,
    SchemaError,
    SchemaValidator,
)

from toolcrib.errors import DefinitionError, Violation
from toolcrib.schema.adapters import adapter_of, some_of
from toolcrib.schema.decode import to_json, to_json_text
from toolcrib.schema.docstring import parse_docstring
from toolcrib.schema.plain import described, unwrapped
from toolcrib.schema.validate import SchemaCheck, refuse
from toolcrib.schema.walk import rooted
from toolcrib.spec.naming import json_path

_typed_dict: Any = typing_extensions.TypedDict


class Annotation:
    """The schema of one annotation, and its values from JSON. Raises `DefinitionError` if it has none."""

    def __init__(self, annotation: Any, *, returned: bool = False) -> None:
        try:
            self._adapter = adapter_of(annotation)
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

    @cached_property
    def _some(self) -> SchemaValidator:
        return some_of(self._adapter)

    def read(self, value: Any, at: tuple[str | int, ...] = (), *, some: bool = False) -> Any:
        """Return a checked JSON value as the annotated type. `InvalidInput` names each place below `at`.

        With `some` of a TypedDict, it may lack any field.
        """
        try:
            return (self._some if some else self._adapter).validate_json(to_json_text(value))
        except ValidationError as error:
            found = error.errors(include_url=False, include_context=False, include_input=False)
            # After the name of a property stands `[key]` where the name is wrong.
            places = [[part for part in one["loc"] if part != "[key]"] for one in found]
            raise refuse(
                [
                    Violation(json_path([*at, *place]), one["msg"])
                    for place, one in zip(places, found, strict=True)
                ]
            ) from None


def arguments_type(
    parameters: Iterable[inspect.Parameter], extra: inspect.Parameter | None, name: str = "Arguments"
) -> Any:
    """Return the type of the arguments of a function, with those of `**kwargs` if it is given."""
    items: dict[str, Any] = {}
    for one in parameters:
        kind, is_field = _annotation(one), isinstance(one.default, FieldInfo)
        if is_field:
            kind = Annotated[kind, one.default]
        needed = (is_field or one.default is one.empty) and FieldInfo.from_annotation(kind).is_required()
        items[one.name] = kind if needed else NotRequired[kind]
    others = {"closed": True} if extra is None else {"extra_items": _annotation(extra)}
    return _typed_dict(name, items, **others)


def _annotation(parameter: inspect.Parameter) -> Any:
    return Any if parameter.annotation is parameter.empty else parameter.annotation


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
        hints = get_type_hints(kind, include_extras=True)
    for name, field in getattr(kind, "__dataclass_fields__", {}).items():
        docs.parameters.setdefault(name, field.metadata.get("description", ""))
    for name, part in rule.get("properties", {}).items():
        hint = hints.get(name)
        if get_origin(hint) in (Required, NotRequired):
            (hint,) = get_args(hint)
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
