"""Records are what `dataclass(frozen=True, slots=True)` makes, whichever method is used first."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from dataclasses import KW_ONLY, FrozenInstanceError, asdict, dataclass, field, fields, is_dataclass, replace
from inspect import signature
from typing import Any

import pytest

from toolcrib.spec import ExecConfig, Limits, Retry
from toolcrib.spec.record import record


def _make(decorator: Callable[[type], type]) -> tuple[type, type]:
    class Part:
        """A part."""

        size: int
        marks: list[str] = field(default_factory=list)
        note: str = field(default="", compare=False, repr=False)

        def __post_init__(self) -> None:
            if self.size < 0:
                raise ValueError("too small")

    Part.__qualname__ = "Part"
    base = decorator(Part)

    class Long(base):  # type: ignore[misc, valid-type]
        """A part with a length."""

        _: KW_ONLY
        length: float = 2.5

        def __repr__(self) -> str:
            return "long"

    Long.__qualname__ = "Long"
    return base, decorator(Long)


def _raised(action: Callable[[], Any]) -> Any:
    try:
        return action()
    except Exception as error:
        return type(error), str(error)


USES: dict[str, Callable[[Any, Any], Any]] = {
    "made": lambda part, _: (part(3).size, part(size=3, marks=["a"]).marks, part(3).note),
    "no shared default": lambda part, _: part(1).marks is part(1).marks,
    "repr": lambda part, long: (repr(part(3, ["a"])), repr(long(3))),
    "equal": lambda part, long: (part(3) == part(3, note="x"), part(3) == part(4), part(3) == long(3)),
    "hash": lambda part, _: (hash(part(3, ())) == hash(part(3, ())), _raised(lambda: hash(part(3)))),
    "checked": lambda part, long: (_raised(lambda: part(-1)), _raised(lambda: long(-1))),
    "by keyword only": lambda _, long: (long(1, length=2.0).length, _raised(lambda: long(1, [], "", 2.0))),
    "missing": lambda part, _: _raised(part),
    "unknown": lambda part, _: _raised(lambda: part(1, color="red")),
    "too many": lambda part, _: _raised(lambda: part(1, [], "", 4)),
    "fields": lambda _, long: [(one.name, one.type) for one in fields(long)],
    "dataclass": lambda part, _: (is_dataclass(part), part.__match_args__, part.__slots__),
    "replaced": lambda _, long: replace(long(1), size=2, length=4.0).length,
    "as dict": lambda _, long: asdict(long(1, ["a"])),
    "signature": lambda _, long: str(signature(long)),
    "signature of one in use": lambda part, _: (part(1).size, str(signature(part))),
    "no dict": lambda part, _: hasattr(part(1), "__dict__"),
}


@pytest.mark.parametrize("use", USES.values(), ids=USES)
def test_as_a_dataclass(use: Callable[[Any, Any], Any]) -> None:
    assert use(*_make(record)) == use(*_make(dataclass(frozen=True, slots=True)))


def test_nothing_can_be_changed() -> None:
    part = _make(record)[0](3)
    with pytest.raises(FrozenInstanceError, match="size"):
        part.size = 4
    with pytest.raises(FrozenInstanceError, match="size"):
        del part.size
    with pytest.raises(FrozenInstanceError, match="color"):
        part.color = "red"
    assert part.size == 3


def test_copies_and_pickles() -> None:
    retry = Retry(max_attempts=4)
    assert copy.copy(retry) == copy.deepcopy(retry) == pickle.loads(pickle.dumps(retry)) == retry
    assert Limits() == pickle.loads(pickle.dumps(Limits()))


def test_a_kind_of_others_may_be_an_ordinary_frozen_dataclass() -> None:
    @dataclass(frozen=True, slots=True)
    class Greeting(ExecConfig):
        text: str

    assert replace(Greeting("a"), text="b") == Greeting("b")
