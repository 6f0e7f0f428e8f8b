"""Conversion of checked JSON values to annotated Python types; ValueError where it is impossible."""

from __future__ import annotations

import datetime
import enum
import pathlib
import types
import uuid
from collections.abc import Callable
from typing import Any, Union, get_args, get_origin

from toolcrib.errors import Violation
from toolcrib.schema.types import (
    LISTS,
    MAPPINGS,
    TypeSchemas,
    fields,
    is_model,
    is_struct,
    is_typed_dict,
    metadata,
)
from toolcrib.schema.validate import SchemaCheck
from toolcrib.spec.naming import json_path

Converter = Callable[[Any], Any]

_FROM_TEXT: dict[Any, Converter] = {
    datetime.datetime: datetime.datetime.fromisoformat,
    datetime.date: datetime.date.fromisoformat,
    datetime.time: datetime.time.fromisoformat,
    uuid.UUID: uuid.UUID,
    pathlib.Path: pathlib.Path,
}


def convert(annotation: Any) -> Converter | None:
    """Return the converter of a checked JSON value to the annotated type; None if none is needed."""
    bare = metadata(annotation)[0]
    origin = get_origin(bare)
    if origin is not None:
        return _generic(origin, get_args(bare))
    if not isinstance(bare, type):
        return None
    if bare in _FROM_TEXT:
        return _FROM_TEXT[bare]
    if bare is tuple or issubclass(bare, enum.Enum):
        return bare
    if bare in LISTS:
        return None if LISTS[bare] is list else LISTS[bare]
    if is_model(bare):
        return bare.__pydantic_validator__.validate_python  # type: ignore[attr-defined,no-any-return]
    return _struct(bare) if is_struct(bare) else None


def _generic(origin: Any, args: tuple[Any, ...]) -> Converter | None:
    if origin is Union or origin is types.UnionType:
        return _union(args)
    if origin is tuple:
        return _tuple(args)
    if origin in LISTS:
        inner, build = convert(args[0]) if args else None, LISTS[origin]
        if inner is None:
            return None if build is list else build
        return lambda value: build([inner(item) for item in value])
    if origin in MAPPINGS and args:
        keys, values = convert(args[0]) or _same, convert(args[1]) or _same
        if keys is values is _same:
            return None
        return lambda value: {keys(key): values(item) for key, item in value.items()}
    return None


def _same(value: Any) -> Any:
    return value


def _tuple(args: tuple[Any, ...]) -> Converter:
    if len(args) == 2 and args[1] is Ellipsis:
        inner = convert(args[0])
        return tuple if inner is None else lambda value: tuple([inner(item) for item in value])
    parts = [convert(arg) or _same for arg in args]
    return lambda value: tuple([part(item) for part, item in zip(parts, value, strict=True)])


def _struct(struct: Any) -> Converter:
    plan: dict[str, Converter] | None = None

    def build(value: dict[str, Any]) -> Any:
        nonlocal plan
        if plan is None:  # made on first use: the type may contain itself
            found = ((field.name, convert(field.annotation)) for field in fields(struct))
            plan = {name: inner for name, inner in found if inner is not None}
        given = {name: plan[name](item) if name in plan else item for name, item in value.items()}
        return given if is_typed_dict(struct) else struct(**given)

    return build


def _union(args: tuple[Any, ...]) -> Converter | None:
    options = [(arg, convert(arg)) for arg in args if arg is not type(None)]
    if all(inner is None for _, inner in options):
        return None
    if len(options) == 1:
        only = options[0][1] or _same
        return lambda value: None if value is None else only(value)
    checks: list[tuple[Callable[[Any], bool], Converter]] = []

    def choose(value: Any) -> Any:
        """Convert by the first alternative that the value matches."""
        if not checks:  # made on first use: the type may contain itself
            checks.extend((_fits(arg), inner or _same) for arg, inner in options)
        reason: ValueError | None = None
        for fits, inner in checks:
            if fits(value):
                try:
                    return inner(value)
                except ValueError as error:
                    # Several alternatives may match and fail; the reason of the first is given.
                    reason = reason or error
        if reason is not None:
            raise reason
        return value

    return choose


def _fits(annotation: Any) -> Callable[[Any], bool]:
    schemas = TypeSchemas()
    rule = schemas.schema(annotation)
    return SchemaCheck({**rule, "$defs": schemas.defs}).is_valid


def misfits(parts: list[str | int], error: ValueError) -> list[Violation]:
    """List the errors of a conversion; `parts` lead to the value. pydantic names each place."""
    errors = getattr(error, "errors", None)
    if not callable(errors):
        return [Violation(json_path(parts), str(error) or type(error).__name__)]
    return [Violation(json_path([*parts, *found["loc"]]), found["msg"]) for found in errors()]
