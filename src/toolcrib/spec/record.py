"""Records: immutable dataclasses whose methods are compiled when they are first needed.

`dataclass(frozen=True, slots=True)` compiles six methods of a class, which takes about half a millisecond. A
start loads more than a hundred such classes and uses a quarter of them, so this was a sixth of its time.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import FrozenInstanceError, dataclass, field, fields, make_dataclass
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
        _compile(cls)
        return getattr(cls, name)(self, *given, **named)

    compile_first.record = cls  # type: ignore[attr-defined]
    return compile_first


def _compile(cls: type) -> None:
    """Replace the methods that stand for compiled ones by those of a dataclass with the same fields."""
    # The methods of a dataclass refer to fields by name only, so those of a twin fit.
    checks = {"__post_init__": cls.__post_init__} if hasattr(cls, "__post_init__") else {}
    parts = [(one.name, one.type, one) for one in fields(cls)]
    twin = make_dataclass(cls.__name__, parts, namespace=checks, frozen=True)
    for name in _COMPILED:
        # Methods that the class defines itself, and those that another thread has just compiled, have no mark
        # and stay.
        if hasattr(cls.__dict__[name], "record"):
            setattr(cls, name, twin.__dict__[name])


class _Signature:
    """The signature of a record, for `help` and notebooks."""

    def __get__(self, _: object, cls: Any) -> Signature:
        if hasattr(cls.__init__, "record"):
            _compile(cls.__init__.record)
        found = signature(cls.__init__)
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
    """Return the fields of a record as JSON: times (`…_at`) as RFC 3339, bytes as the JSON that they hold."""
    values = {one.name: getattr(record, one.name) for one in fields(record) if one.name not in without}
    for name, value in values.items():
        if name.endswith("_at"):
            values[name] = written(value)
        elif isinstance(value, bytes):
            values[name] = _parsed(value)
        elif isinstance(value, tuple):
            values[name] = list(value)
    return values


def _parsed(text: bytes) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text.decode(errors="replace")
