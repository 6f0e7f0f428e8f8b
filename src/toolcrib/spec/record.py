"""Records: immutable dataclasses whose methods are compiled when they are first needed.

`dataclass(frozen=True, slots=True)` compiles six methods of a class, which takes about half a millisecond. A
start loads more than a hundred such classes and makes values of a quarter of them, so this was a sixth of its
time.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import MISSING, FrozenInstanceError, dataclass, field, fields, make_dataclass
from functools import cache
from inspect import Signature, signature
from typing import Any, NoReturn, TypeVar, dataclass_transform

from toolcrib.spec.moment import written

T = TypeVar("T")

_COMPILED = ("__init__", "__repr__", "__eq__", "__hash__")


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def record(cls: type[T]) -> type[T]:
    """Make of a class what `dataclass(frozen=True, slots=True)` makes of it; methods of its own stay."""
    made = dataclass(init=False, repr=False, eq=False, slots=True)(cls)
    for name in _COMPILED:
        if name not in cls.__dict__:
            setattr(made, name, _at_first_use(made, name))
    for name, method in _SHARED.items():
        setattr(made, name, method)
    return made


def _at_first_use(cls: type, name: str) -> Callable[..., Any]:
    def compile_first(self: Any, /, *given: Any, **named: Any) -> Any:
        _compile(cls, name)
        return getattr(cls, name)(self, *given, **named)

    return compile_first


def _compile(cls: type, name: str) -> None:
    """Replace the method that stands for a compiled one."""
    if name == "__init__":
        setattr(cls, name, _init_of(cls))
    else:  # The methods of a dataclass refer to fields by name only, so those of a twin fit.
        setattr(cls, name, _twin_of(cls, init=False, unsafe_hash=True).__dict__[name])


def _init_of(cls: type) -> Callable[..., None]:
    """Return what `dataclass` makes as `__init__`, in a tenth of the time: most records need nothing else."""
    names: dict[str, Any] = {"_set": object.__setattr__, "_made": object()}
    given, lines = ["self"], []
    for name, one in ((one.name, one) for one in fields(cls)):
        value = name
        if one.kw_only and "*" not in given:
            given.append("*")
        if one.default_factory is not MISSING:
            names[f"_{name}"] = one.default_factory
            given.append(f"{name}=_made")
            value = f"_{name}() if {name} is _made else {name}"
        elif one.default is not MISSING:
            names[f"_{name}"] = one.default
            given.append(f"{name}=_{name}")
        else:
            given.append(name)
        lines.append(f"    _set(self, {name!r}, {value})")
    if hasattr(cls, "__post_init__"):
        lines.append("    self.__post_init__()")
    exec(f"def __init__({', '.join(given)}):\n" + "\n".join(lines or ["    pass"]), names)  # noqa: S102 - names of fields only
    made: Callable[..., None] = names["__init__"]
    made.__qualname__ = f"{cls.__qualname__}.__init__"
    return made


def _twin_of(cls: type, **options: Any) -> type:
    # With a docstring of its own: `dataclass` would write one from the signature, which takes milliseconds.
    given = [(one.name, one.type, one) for one in fields(cls)]
    return make_dataclass(cls.__name__, given, namespace={"__doc__": "As `cls`."}, **options)


class _Signature:
    """The signature of a record, for `help` and notebooks."""

    def __get__(self, _: object, cls: Any) -> Signature:
        found = signature(_twin_of(cls).__dict__["__init__"])
        return found.replace(parameters=list(found.parameters.values())[1:])


def _refuse(self: Any, name: str, *_: Any) -> NoReturn:
    raise FrozenInstanceError(f"{type(self).__name__} cannot be changed: {name}")


# Without these two, `copy` and `pickle` would set each field by `setattr`, which a record refuses.
def _state(self: Any) -> list[Any]:
    return [getattr(self, one.name) for one in fields(self)]


def _set_state(self: Any, state: list[Any]) -> None:
    for one, value in zip(fields(self), state, strict=True):
        object.__setattr__(self, one.name, value)


_SHARED = {
    "__setattr__": _refuse,
    "__delattr__": _refuse,
    "__getstate__": _state,
    "__setstate__": _set_state,
    "__signature__": _Signature(),
}


def json_form(record: Any, *without: str) -> dict[str, Any]:
    """Return the fields of a record as JSON with keys in camelCase.

    Times (`…_at`) are RFC 3339, bytes the JSON that they hold.
    """
    values = {one.name: getattr(record, one.name) for one in fields(record) if one.name not in without}
    for name, value in values.items():
        if name.endswith("_at"):
            values[name] = written(value)
        elif isinstance(value, bytes):
            values[name] = _parsed(value)
        elif isinstance(value, tuple):
            values[name] = list(value)
    return camel(values)


def camel(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return a mapping with its own keys in camelCase; those of its values stay."""
    return {_camel(name): value for name, value in values.items()}


@cache
def _camel(name: str) -> str:
    first, *more = name.split("_")
    return first + "".join(word.capitalize() for word in more)


def _parsed(text: bytes) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text.decode(errors="replace")
