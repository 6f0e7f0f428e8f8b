"""One rule for what Python values are in JSON."""

from __future__ import annotations

import collections
import dataclasses
import datetime
import decimal
import enum
import ipaddress
import math
import pathlib
import types
import uuid
from collections import namedtuple
from typing import Any

import pydantic
import pytest

from toolcrib.schema import to_json


class Color(enum.Enum):
    RED = "red"


@dataclasses.dataclass
class Point:
    x: int
    tags: set[str]


class Model(pydantic.BaseModel):
    when: datetime.date = pydantic.Field(alias="day")


Pair = namedtuple("Pair", ["left", "right"])


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (Point(1, {"b", "a"}), {"x": 1, "tags": ["a", "b"]}),
        (Model(day=datetime.date(2026, 1, 2)), {"day": "2026-01-02"}),
        ([Model(day=datetime.date(2026, 1, 2))], [{"day": "2026-01-02"}]),
        (Color.RED, "red"),
        ({Color.RED: 1, 2: 3, None: 4}, {"red": 1, "2": 3, "null": 4}),
        ([{"a": 1}, {"b": {2: {"c": Color.RED}}}], [{"a": 1}, {"b": {"2": {"c": "red"}}}]),
        ({type("Text", (str,), {})("a"): 1}, {"a": 1}),
        ((1, (2,)), [1, [2]]),
        (Pair(1, {2}), [1, [2]]),
        (b"\xff\xfe", "//4="),
        ({"a": [bytearray(b"hi")]}, {"a": ["aGk="]}),
        (datetime.timedelta(seconds=90), "PT1M30S"),
        (pydantic.HttpUrl("https://example.com"), "https://example.com/"),
        (ipaddress.ip_address("127.0.0.1"), "127.0.0.1"),
        (collections.deque([1]), [1]),
        (1j, "1j"),
        (frozenset({3, 1, 2}), [1, 2, 3]),
        (pathlib.Path("/a/b"), "/a/b"),
        (datetime.datetime(2026, 1, 2, 3, 4, 5, tzinfo=datetime.UTC), "2026-01-02T03:04:05+00:00"),
        (datetime.time(0, 0, 0, 10_000), "00:00:00.010000"),
        (uuid.UUID(int=1), "00000000-0000-0000-0000-000000000001"),
        (decimal.Decimal("1.10"), "1.10"),
        (types.MappingProxyType({"a": 1}), {"a": 1}),
        (math.nan, None),
        ([math.inf, -math.inf], [None, None]),
        (2**64 - 1, 2**64 - 1),
    ],
)
def test_it_becomes(value: Any, expected: Any) -> None:
    assert to_json(value) == expected


def test_a_set_of_mixed_types_is_an_array_in_some_order() -> None:
    assert sorted(to_json({1, "a"}), key=str) == [1, "a"]


def endless() -> list[Any]:
    items: list[Any] = []
    items.append(items)
    return items


@pytest.mark.parametrize(
    "value",
    [object(), 2**64, -(2**63) - 1, endless(), "\ud800", {"a": lambda: 1}, {(1, 2): 3}, Color],
    ids=lambda value: type(value).__name__,
)
def test_it_has_no_form(value: Any) -> None:
    with pytest.raises(TypeError):
        to_json(value)
