"""Python types to JSON Schema 2020-12.

Own derivation for JSON types, dataclasses, TypedDict, enums and unions; pydantic models describe themselves.
Constraints in `Annotated` are read by their attribute names (`ge`, `max_length`, `pattern`, …), so
annotated-types and pydantic's `Field` both work without importing either.
"""

from __future__ import annotations

import collections.abc
import dataclasses
import datetime
import enum
import inspect
import math
import pathlib
import re
import types
import typing
import uuid
from collections.abc import Iterable, Iterator
from typing import Any, ForwardRef, Literal, NamedTuple, Union, get_args, get_origin

from toolcrib.errors import DefinitionError
from toolcrib.schema.jsonable import to_json
from toolcrib.schema.validate import SchemaCheck


class Docs(NamedTuple):
    """A description, and the texts of parameters or attributes by name."""

    description: str
    parameters: dict[str, str]


def parse_docstring(text: str | None) -> Docs:
    """Parse a Google, NumPy or Sphinx docstring; sections on results and errors are left out."""
    if not text or not text.strip():
        return Docs("", {})
    text = inspect.cleandoc(text)
    if "\n" not in text:
        return Docs(text.strip(), {})
    import logging

    import griffe

    # griffe warns about each parameter without a type in the docstring; here types come from the signature.
    logging.getLogger("griffe").setLevel(logging.ERROR)
    texts: list[str] = []
    parameters: dict[str, str] = {}
    for section in griffe.parse_auto(griffe.Docstring(text)):
        if section.kind is griffe.DocstringSectionKind.text:
            texts.append(section.value.strip())
        elif section.kind in (
            griffe.DocstringSectionKind.parameters,
            griffe.DocstringSectionKind.other_parameters,
            griffe.DocstringSectionKind.attributes,
        ):
            parameters.update({item.name: item.description.strip() for item in section.value})
    return Docs("\n\n".join(texts), parameters)


ABSENT: Any = dataclasses.MISSING
"""No default, or a default without a JSON form."""

_SCALARS: dict[Any, dict[str, Any]] = {
    str: {"type": "string"},
    int: {"type": "integer"},
    float: {"type": "number"},
    bool: {"type": "boolean"},
    None: {"type": "null"},
    type(None): {"type": "null"},
    Any: {},
    object: {},
    dict: {"type": "object"},
    collections.abc.Mapping: {"type": "object"},
    collections.abc.MutableMapping: {"type": "object"},
    list: {"type": "array"},
    tuple: {"type": "array"},
    datetime.datetime: {"type": "string", "format": "date-time"},
    datetime.date: {"type": "string", "format": "date"},
    datetime.time: {"type": "string", "format": "time"},
    uuid.UUID: {"type": "string", "format": "uuid"},
    pathlib.Path: {"type": "string"},
}
LISTS: dict[Any, Any] = {
    list: list,
    set: set,
    frozenset: frozenset,
    collections.abc.Sequence: list,
    collections.abc.Iterable: list,
    collections.abc.Collection: list,
    collections.abc.Set: set,
    collections.abc.MutableSet: set,
}
"""Type of an array in JSON to the type that is made from it."""
_UNIQUE = (set, frozenset, collections.abc.Set, collections.abc.MutableSet)
MAPPINGS = (dict, collections.abc.Mapping, collections.abc.MutableMapping)
_NUMBERS = {"integer", "number"}
_KEYWORDS = (
    ("ge", "minimum", _NUMBERS),
    ("gt", "exclusiveMinimum", _NUMBERS),
    ("le", "maximum", _NUMBERS),
    ("lt", "exclusiveMaximum", _NUMBERS),
    ("multiple_of", "multipleOf", _NUMBERS),
    ("min_length", "minLength", {"string"}),
    ("max_length", "maxLength", {"string"}),
    ("pattern", "pattern", {"string"}),
    ("min_length", "minItems", {"array"}),
    ("max_length", "maxItems", {"array"}),
    ("min_length", "minProperties", {"object"}),
    ("max_length", "maxProperties", {"object"}),
)
"""Attribute of a constraint, its JSON Schema keyword, and the JSON types that it applies to."""


class UnresolvedName(DefinitionError):
    """A type is named by a string that was not resolved."""


class StructField(NamedTuple):
    """One field of a dataclass or TypedDict."""

    name: str
    annotation: Any
    required: bool
    default: Any = ABSENT
    description: str | None = None


_ANNOTATED: type = type(typing.Annotated[int, None])
"""Comparing classes is much cheaper than an attribute look-up on a class of `typing`."""


def metadata(annotation: Any) -> tuple[Any, tuple[Any, ...]]:
    """Return the bare type and the metadata of `Annotated`; `NewType` and `type X = …` are resolved."""
    extras: tuple[Any, ...] = ()
    while (kind := annotation.__class__) is not type:
        if kind is _ANNOTATED:
            extras = (*annotation.__metadata__, *extras)
            annotation = annotation.__origin__
        elif kind is typing.NewType:
            annotation = annotation.__supertype__
        elif kind.__name__ == "TypeAliasType":
            # By name: the class is new in Python 3.12, and `typing_extensions` has one of its own.
            annotation = annotation.__value__
        else:
            break
    return annotation, extras


def is_model(annotation: type) -> bool:
    """Return True for a pydantic model or dataclass, which describes, checks and builds itself."""
    return hasattr(annotation, "__pydantic_validator__")


def is_typed_dict(annotation: Any) -> bool:
    """Return True for a TypedDict of `typing` or `typing_extensions`."""
    return isinstance(annotation, type) and issubclass(annotation, dict) and hasattr(annotation, "__total__")


def is_struct(annotation: Any) -> bool:
    """Return True for a dataclass, a TypedDict or a pydantic model class."""
    bare = metadata(annotation)[0]
    return isinstance(bare, type) and (
        is_model(bare) or dataclasses.is_dataclass(bare) or is_typed_dict(bare)
    )


def described(extras: Iterable[Any]) -> str | None:
    """Return the description in `Annotated`: a string, a `Doc`, or a `Field(description=…)`."""
    for extra in extras:
        if isinstance(extra, str):
            return extra
        for attribute in ("description", "documentation"):
            text = getattr(extra, attribute, None)
            if isinstance(text, str):
                return text
    return None


def fields(struct: type) -> list[StructField]:
    """List the fields of a dataclass or TypedDict."""
    try:
        hints = typing.get_type_hints(struct, include_extras=True)
    except NameError as error:
        raise DefinitionError(
            f"{struct.__name__}: the annotation {error.name!r} cannot be resolved",
            hint="Define the type at module level, or import it outside of TYPE_CHECKING.",
        ) from None
    if is_typed_dict(struct):
        return [_typed_dict_field(struct, name, hint) for name, hint in hints.items()]
    return [_dataclass_field(field, hints[field.name]) for field in dataclasses.fields(struct) if field.init]


def _typed_dict_field(struct: Any, name: str, hint: Any) -> StructField:
    required = name in struct.__required_keys__
    while (qualifier := getattr(get_origin(hint), "_name", None)) in ("Required", "NotRequired", "ReadOnly"):
        if qualifier != "ReadOnly":  # `__required_keys__` is wrong where annotations are strings
            required = qualifier == "Required"
        hint = get_args(hint)[0]
    return StructField(name, hint, required)


def _dataclass_field(field: dataclasses.Field[Any], hint: Any) -> StructField:
    default = field.default
    if field.default_factory in (list, dict, set):  # another factory may return a different value each time
        default = field.default_factory()
    required = default is ABSENT and field.default_factory is ABSENT
    return StructField(field.name, hint, required, default, field.metadata.get("description"))


class TypeSchemas:
    """The schemas of one tool; structured types are in `defs`, once each. `returned`: of what it returns."""

    def __init__(self, *, returned: bool = False) -> None:
        self.defs: dict[str, Any] = {}
        self._returned = returned
        self._names: dict[Any, str] = {}

    def schema(self, annotation: Any) -> dict[str, Any]:
        """Return the schema of one annotation; `DefinitionError` if a type has none."""
        bare, extras = metadata(annotation)
        # A copy, because the entries of `_SCALARS` are shared by all tools.
        rule = dict(self._bare(bare))
        for part in _constraints(extras):
            _constrain(rule, part)
        text = described(extras)
        if text:
            rule["description"] = text
        return rule

    def _bare(self, bare: Any) -> dict[str, Any]:
        try:
            known = _SCALARS.get(bare)
        except TypeError:  # not hashable
            known = None
        if known is not None:
            return known
        if isinstance(bare, (str, ForwardRef)):
            raise UnresolvedName(f"the type {bare!r} is named by a string that cannot be resolved")
        origin = get_origin(bare)
        if origin is not None:
            return self._generic(bare, origin)
        if isinstance(bare, type):
            if issubclass(bare, enum.Enum):
                return _enumeration([member.value for member in bare], bare)
            if is_struct(bare):
                return self._reference(bare)
            if bare in LISTS:
                return _unique(bare, {"type": "array"})
        raise DefinitionError(
            f"the type {_name(bare)} has no JSON Schema",
            hint="Use JSON types, a dataclass, a TypedDict or a pydantic model, or give input_schema=…",
        )

    def _generic(self, bare: Any, origin: Any) -> dict[str, Any]:
        args = get_args(bare)
        if origin is Literal:
            return _enumeration(list(args), bare)
        if origin is Union or origin is types.UnionType:
            return self._union(args)
        if not args and (origin in LISTS or origin in MAPPINGS):  # a bare typing.List
            return self._bare(origin)
        if origin in LISTS:
            return _unique(origin, {"type": "array", "items": self.schema(args[0])})
        if origin is tuple:
            return self._tuple(args)
        if origin in MAPPINGS:
            keys = self.schema(args[0])
            if keys.get("type") != "string":
                raise DefinitionError(f"{_name(bare)}: JSON object keys are strings, use dict[str, …]")
            rule = {"type": "object", "additionalProperties": self.schema(args[1])}
            return rule if keys == {"type": "string"} else {**rule, "propertyNames": keys}
        raise DefinitionError(f"the type {_name(bare)} has no JSON Schema")

    def _tuple(self, args: tuple[Any, ...]) -> dict[str, Any]:
        if len(args) == 2 and args[1] is Ellipsis:
            return {"type": "array", "items": self.schema(args[0])}
        rule: dict[str, Any] = {"type": "array", "minItems": len(args), "maxItems": len(args)}
        if args:
            rule["prefixItems"] = [self.schema(arg) for arg in args]
        return rule

    def _union(self, args: tuple[Any, ...]) -> dict[str, Any]:
        parts = [self.schema(arg) for arg in args]
        if all(set(part) == {"type"} for part in parts):
            return {"type": list(dict.fromkeys(part["type"] for part in parts))}
        return {"anyOf": parts}

    def _reference(self, struct: type) -> dict[str, Any]:
        name = self._names.get(struct)
        if name is None:
            name = re.sub(r"\W+", "_", struct.__name__)
            if name in self.defs:
                name = _long_name(struct)
            self._names[struct] = name
            self.defs[name] = {}  # a placeholder: the type may contain itself
            self.defs[name] = self.struct(struct)
        return {"$ref": f"#/$defs/{name}"}

    def struct(self, struct: type) -> dict[str, Any]:
        """Return the object schema of a structured type, its inner types in `defs`."""
        if is_model(struct):
            return self._model(struct)
        properties: dict[str, Any] = {}
        required = []
        doc = struct.__doc__ or ""
        # A dataclass without a docstring gets its signature as one.
        docs = parse_docstring("" if doc.startswith(f"{struct.__name__}(") else doc)
        for field in fields(struct):
            rule = properties[field.name] = self.schema(field.annotation)
            text = field.description or docs.parameters.get(field.name)
            if text and "description" not in rule:
                rule["description"] = text
            if field.required:
                required.append(field.name)
            elif (default := json_default(field.default)) is not ABSENT:
                rule["default"] = default
        schema: dict[str, Any] = {"type": "object", "properties": properties, "additionalProperties": False}
        if required:
            schema["required"] = required
        if docs.description:
            schema["description"] = docs.description
        return schema

    def _model(self, model: type) -> dict[str, Any]:
        rule = _model_schema(model, "#/$defs/{model}", returned=self._returned)
        inner = rule.pop("$defs", {})
        # Two models in different modules may have one name; those of this one get its full name then.
        if any(self.defs.get(name, other) not in ({}, other) for name, other in inner.items()):
            prefix = _long_name(model)
            rule = _model_schema(model, f"#/$defs/{prefix}.{{model}}", returned=self._returned)
            inner = {f"{prefix}.{name}": other for name, other in rule.pop("$defs", {}).items()}
        self.defs.update(inner)
        own = rule.get("$ref", "").removeprefix("#/$defs/")
        return dict(inner[own]) if own in inner else rule  # a model that contains itself is only referred to


def _model_schema(model: Any, template: str, *, returned: bool) -> dict[str, Any]:
    # As `to_json` writes a returned model: by the names of its fields, not by their aliases.
    form: dict[str, Any] = {"mode": "serialization", "by_alias": False} if returned else {}
    if hasattr(model, "model_json_schema"):
        return model.model_json_schema(ref_template=template, **form)  # type: ignore[no-any-return]
    from pydantic import TypeAdapter

    return TypeAdapter(model).json_schema(ref_template=template, **form)


def _unique(kind: Any, rule: dict[str, Any]) -> dict[str, Any]:
    return {**rule, "uniqueItems": True} if kind in _UNIQUE else rule


def _enumeration(values: list[Any], what: Any) -> dict[str, Any]:
    # A member of an IntEnum is an int too, but the function would get the plain number.
    if not values or any(
        isinstance(value, enum.Enum) or not isinstance(value, (str, int, float, type(None)))
        for value in values
    ):
        raise DefinitionError(
            f"{_name(what)}: only JSON values (text, numbers, true, false, null) can be listed"
        )
    kinds = {type(value) for value in values}
    return {**(_SCALARS.get(kinds.pop(), {}) if len(kinds) == 1 else {}), "enum": values}


def _constraints(extras: Iterable[Any]) -> Iterator[Any]:
    for extra in extras:
        parts = getattr(extra, "metadata", None)
        yield from parts if isinstance(parts, (list, tuple)) else (extra,)


def check_constraints(extras: Iterable[Any]) -> None:
    """Refuse a pattern that is not a regular expression of linear time."""
    for part in _constraints(extras):
        pattern = getattr(part, "pattern", None)
        if pattern is not None:
            _constrain({"type": "string"}, part)


def _constrain(rule: dict[str, Any], part: Any) -> None:
    """Add a constraint to a schema, or to the alternatives that it applies to."""
    if "anyOf" in rule:
        for branch in rule["anyOf"]:
            _constrain(branch, part)
        return
    kinds = rule.get("type", ())
    kinds = {kinds} if isinstance(kinds, str) else set(kinds)
    for attribute, keyword, meant in _KEYWORDS:
        limit = getattr(part, attribute, None)
        if limit is None or not kinds & meant:
            continue
        if keyword == "pattern":
            limit = getattr(limit, "pattern", limit)
            SchemaCheck({"pattern": limit})
        elif not isinstance(limit, (int, float)):
            continue
        rule[keyword] = limit


def _name(annotation: Any) -> str:
    return (isinstance(annotation, type) and annotation.__qualname__) or str(annotation)


def _long_name(struct: type) -> str:
    return re.sub(r"\W+", "_", f"{struct.__module__}_{struct.__qualname__}")


def json_default(value: Any) -> Any:
    """Return a default as JSON, or `ABSENT` if there is none or it has no JSON form."""
    if value is ABSENT or (isinstance(value, float) and not math.isfinite(value)):
        return ABSENT
    try:
        return to_json(value)
    except TypeError:
        return ABSENT
