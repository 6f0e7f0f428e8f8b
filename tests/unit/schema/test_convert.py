"""Checked JSON becomes the annotated type again, at any depth; misfits are reported with their place."""

from __future__ import annotations

import dataclasses
import datetime
import enum
import pathlib
import uuid
from collections.abc import Sequence
from typing import Any, TypedDict

import pydantic
import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolcrib.schema import SchemaCheck, to_json
from toolcrib.schema.convert import convert, misfits
from toolcrib.schema.types import TypeSchemas


class Color(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Level(enum.IntEnum):
    LOW = 1


@dataclasses.dataclass
class Point:
    x: int
    y: float = 0.0

    def __post_init__(self) -> None:
        if self.x < 0:
            raise ValueError("x must not be negative")


@dataclasses.dataclass
class Path:
    points: list[Point]
    color: Color | None = None
    next: Path | None = None


class Visit(TypedDict):
    when: datetime.date
    who: str


class Box(pydantic.BaseModel):
    size: int = pydantic.Field(ge=0)
    inner: Box | None = None


def round_trip(annotation: Any, value: Any) -> Any:
    """Through JSON and back, as the value of a checked argument."""
    said = to_json(value)
    schemas = TypeSchemas()
    rule = schemas.schema(annotation)
    assert SchemaCheck({**rule, "$defs": schemas.defs}).violations(said) == []
    inner = convert(annotation)
    return said if inner is None else inner(said)


TEXT = st.text(st.characters(codec="utf-8"), max_size=5)
INTEGERS = st.integers(-(2**63), 2**63 - 1)
FLOATS = st.floats(allow_nan=False, allow_infinity=False)
LEAVES: list[tuple[Any, st.SearchStrategy[Any]]] = [
    (int, INTEGERS),
    (float, FLOATS),
    (str, TEXT),
    (bool, st.booleans()),
    (Color, st.sampled_from(Color)),
    (Level, st.sampled_from(Level)),
    (datetime.date, st.dates()),
    (datetime.datetime, st.datetimes()),
    (datetime.time, st.times()),
    (uuid.UUID, st.uuids()),
    (pathlib.Path, st.sampled_from([pathlib.Path("/a/b"), pathlib.Path("c")])),
    (Point, st.builds(Point, st.integers(0, 9), FLOATS)),
    (Box, st.builds(Box, size=st.integers(0, 9))),
    (Visit, st.fixed_dictionaries({"when": st.dates(), "who": TEXT})),
]
HASHABLE = LEAVES[:11]


def around(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    def grow(drawn: tuple[Any, st.SearchStrategy[Any]]) -> st.SearchStrategy[Any]:
        kind, values = drawn
        return st.sampled_from(
            [
                (list[kind], st.lists(values, max_size=3)),  # type: ignore[valid-type]
                (Sequence[kind], st.lists(values, max_size=3)),  # type: ignore[valid-type]
                (dict[str, kind], st.dictionaries(TEXT, values, max_size=3)),  # type: ignore[valid-type]
                (tuple[kind, ...], st.lists(values, max_size=3).map(tuple)),  # type: ignore[valid-type]
                (tuple[int, kind], st.tuples(st.integers(0, 9), values)),  # type: ignore[valid-type]
                (kind | None, st.none() | values),
            ]
        )

    return inner.flatmap(grow)


@pytest.mark.parametrize("value", [uuid.UUID(int=1), datetime.date(2026, 1, 2), Color.RED])
def test_keys_and_values_of_one_type_are_both_converted(value: Any) -> None:
    kind = type(value)
    assert round_trip(dict[kind, kind], {value: value}) == {value: value}  # type: ignore[valid-type]


TYPES = st.recursive(st.sampled_from(LEAVES), around, max_leaves=4)


@given(TYPES.flatmap(lambda drawn: st.tuples(st.just(drawn[0]), drawn[1])))
def test_every_type_comes_back_as_it_was(drawn: tuple[Any, Any]) -> None:
    annotation, value = drawn

    assert round_trip(annotation, value) == value


@given(
    st.sampled_from(HASHABLE).flatmap(
        lambda drawn: st.tuples(st.just(drawn[0]), st.sets(drawn[1], max_size=3))
    )
)
def test_sets_come_back_as_sets(drawn: tuple[Any, set[Any]]) -> None:
    kind, value = drawn

    assert round_trip(set[kind], value) == value  # type: ignore[valid-type]
    assert round_trip(frozenset[kind], frozenset(value)) == value  # type: ignore[valid-type]


def test_structures_are_built_to_the_bottom() -> None:
    path = Path([Point(1), Point(2, 0.5)], Color.RED, Path([], None, Path([Point(3)])))

    assert round_trip(Path, path) == path
    assert round_trip(dict[str, list[Path | None]], {"a": [path, None]}) == {"a": [path, None]}


def test_a_model_is_built_by_itself() -> None:
    box = Box(size=1, inner=Box(size=2))

    assert round_trip(list[Box], [box]) == [box]


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("2026-01-02", datetime.date(2026, 1, 2)),
        ("soon", "soon"),
        (7, 7),
        ({"x": 1}, Point(1)),
        ({"size": 1}, Box(size=1)),
        (["red"], (Color.RED,)),
        (None, None),
    ],
)
def test_of_a_union_the_first_that_fits_is_taken(value: Any, expected: Any) -> None:
    inner = convert(datetime.date | str | int | Point | Box | tuple[Color] | None)

    assert inner is not None
    assert inner(value) == expected


def test_what_fits_no_alternative_is_an_error() -> None:
    inner = convert(datetime.date | uuid.UUID)

    assert inner is not None
    with pytest.raises(ValueError, match="Invalid isoformat"):
        inner("neither")


@pytest.mark.parametrize(
    "annotation", [int, str, float, bool, Any, None, list[int], dict[str, int], int | str]
)
def test_plain_json_needs_no_conversion(annotation: Any) -> None:
    assert convert(annotation) is None


def test_a_complaint_names_the_place() -> None:
    with pytest.raises(ValueError, match="validation error") as caught:
        convert(list[Box])([{"size": 1}, {"size": 1, "inner": {"size": -1}}])  # type: ignore[misc]

    assert [(v.path, v.message) for v in misfits(["boxes"], caught.value)] == [
        ("$.boxes.inner.size", "Input should be greater than or equal to 0")
    ]
    assert misfits(["a", 0], ValueError("no")) == [("$.a[0]", "no")]
