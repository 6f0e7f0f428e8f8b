"""Answers as structs, made of the JSON that other interfaces show with names in Python's spelling."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any, TypeVar

import msgspec

T = TypeVar("T")


def shaped(form: type[T], value: Any) -> T:
    """Return a value as this type: the keys of its structs are renamed as theirs are, free JSON stays."""
    key: Any = form
    return msgspec.convert(_renamed(_info(key), value), form)


@cache
def _info(form: Any) -> msgspec.inspect.Type:
    return msgspec.inspect.type_info(form)


def _renamed(info: Any, value: Any) -> Any:
    if isinstance(info, msgspec.inspect.UnionType):
        fitting = (one for one in info.types if _is_for(one, value))
        return _renamed(next(fitting, None), value)
    if isinstance(info, msgspec.inspect.StructType) and isinstance(value, Mapping):
        return {
            one.encode_name: _renamed(one.type, value[one.name]) for one in info.fields if one.name in value
        }
    if isinstance(info, msgspec.inspect.ListType) and isinstance(value, list | tuple):
        return [_renamed(info.item_type, one) for one in value]
    if isinstance(info, msgspec.inspect.DictType) and isinstance(value, Mapping):
        return {key: _renamed(info.value_type, one) for key, one in value.items()}
    return value


def _is_for(info: msgspec.inspect.Type, value: Any) -> bool:
    """Return True for the member of a union that has an object or a list, if the value is one."""
    if isinstance(value, Mapping):
        return isinstance(info, msgspec.inspect.StructType | msgspec.inspect.DictType)
    return isinstance(value, list | tuple) and isinstance(info, msgspec.inspect.ListType)
