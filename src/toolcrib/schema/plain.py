"""Plain JSON types: their schemas and values without pydantic, which is slower and costs its import."""

from __future__ import annotations

import collections.abc
import types
import typing
from collections.abc import Callable, Iterable
from typing import Any, Literal, NamedTuple, Union, get_args, get_origin

Converter = Callable[[Any], Any]

_SCALARS: dict[Any, str] = {
    str: "string",
    int: "integer",
    bool: "boolean",
    None: "null",
    type(None): "null",
}
_LISTS = (list, collections.abc.Sequence, collections.abc.Iterable, collections.abc.Collection)
_MAPPINGS = (dict, collections.abc.Mapping, collections.abc.MutableMapping)
_ANNOTATED: type = type(typing.Annotated[int, None])
"""Comparing classes is much cheaper than an attribute look-up on a class of `typing`."""


class Plain(NamedTuple):
    """The schema of a plain type, and the conversion of its checked values; None if they stay as they are."""

    rule: dict[str, Any]
    convert: Converter | None = None


def plain(annotation: Any) -> Plain | None:
    """Return the schema and conversion of a type made of JSON types only; None for any other."""
    bare, extras = unwrapped(annotation)
    text = described(extras)
    # `Annotated` with more than words may check or change values.
    if len(extras) > 1 or (extras and text is None):
        return None
    try:
        found = _bare(bare)
    except (TypeError, RecursionError):  # not hashable, or an alias that contains itself
        return None
    if found is None or text is None:
        return found
    return Plain({**found.rule, "description": text}, found.convert)


def unwrapped(annotation: Any) -> tuple[Any, tuple[Any, ...]]:
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


def described(extras: Iterable[Any]) -> str | None:
    """Return the description in `Annotated`: a string, or a `Doc`."""
    for extra in extras:
        text = extra if isinstance(extra, str) else getattr(extra, "documentation", None)
        if isinstance(text, str):
            return text
    return None


def _bare(bare: Any) -> Plain | None:
    if bare in _SCALARS:
        return Plain({"type": _SCALARS[bare]})
    if bare is float:
        return Plain({"type": "number"}, _float)
    if bare is Any or bare is object:
        return Plain({})
    origin, args = get_origin(bare), get_args(bare)
    kind = origin or bare
    if origin is Literal:
        kinds = {_SCALARS.get(type(value)) for value in args}
        named = {"type": kinds.pop()} if len(kinds) == 1 else {}
        return None if None in kinds or None in named.values() else Plain({**named, "enum": list(args)})
    if origin is Union or origin is types.UnionType:
        return _union([plain(arg) for arg in args])
    if kind in _LISTS:
        return _inside(Plain({"type": "array"}), "items", plain(args[0]) if args else Plain({}), _each)
    if kind in _MAPPINGS and (not args or args[0] is str):
        inner = plain(args[1]) if args else Plain({})
        return _inside(Plain({"type": "object"}), "additionalProperties", inner, _each_value)
    return None


def _inside(
    outer: Plain, word: str, inner: Plain | None, around: Callable[[Converter], Converter]
) -> Plain | None:
    """Return a list or an object of values of one type."""
    if inner is None:
        return None
    rule = {**outer.rule, word: inner.rule} if inner.rule else outer.rule
    return Plain(rule, None if inner.convert is None else around(inner.convert))


def _union(parts: list[Plain | None]) -> Plain | None:
    known = [part for part in parts if part is not None]
    converted = [part.convert for part in known if part.convert is not None]
    # A whole number stays one where `int` is allowed too. Several conversions are left to pydantic.
    if converted == [_float] and any(part.rule.get("type") == "integer" for part in known):
        converted = []
    if len(known) < len(parts) or len(converted) > 1:
        return None
    rules = [part.rule for part in known]
    convert = converted[0] if converted else None
    if all(rule.keys() == {"type"} for rule in rules):
        return Plain({"type": list(dict.fromkeys(rule["type"] for rule in rules))}, convert)
    return Plain({"anyOf": rules}, convert)


# Each conversion returns a value of another type as it is: unions need that.


def _float(value: Any) -> Any:
    return float(value) if value.__class__ is int else value


def _each(convert: Converter) -> Converter:
    return lambda value: [convert(item) for item in value] if value.__class__ is list else value


def _each_value(convert: Converter) -> Converter:
    def convert_values(value: Any) -> Any:
        if value.__class__ is not dict:
            return value
        return {key: convert(item) for key, item in value.items()}

    return convert_values
