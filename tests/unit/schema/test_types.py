"""Python types as JSON Schema: every type of the field's practice, nested, constrained, or refused."""

from __future__ import annotations

import collections.abc
import dataclasses
import datetime
import decimal
import enum
import pathlib
import re
import typing
import uuid
from typing import Annotated, Any, Literal, NewType, NotRequired, Optional, Required, TypedDict, Union

import annotated_types
import pydantic
import pytest
import typing_extensions
from pydantic import BaseModel, Field

from toolcrib.errors import DefinitionError
from toolcrib.schema import SchemaCheck
from toolcrib.schema.types import TypeSchemas


class Color(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 2


class Mixed(enum.Enum):
    TEXT = "a"
    NUMBER = 1


class Unlisted(enum.Enum):
    PAIR = (1, 2)


@dataclasses.dataclass
class Person:
    """Somebody.

    Attributes:
        name: Full name.
        age: In years.
    """

    name: str
    age: int = 0
    email: Annotated[str | None, "Where to write"] = None
    tags: list[str] = dataclasses.field(default_factory=list)
    born: datetime.date = dataclasses.field(default_factory=datetime.date.today)
    note: str = dataclasses.field(default="", metadata={"description": "Anything else"})
    serial: int = dataclasses.field(default=0, init=False)


@dataclasses.dataclass
class Node:
    value: int
    children: list[Node] = dataclasses.field(default_factory=list)
    parent: Node | None = None


class Movie(TypedDict):
    title: str
    year: NotRequired[int]


class Partial(TypedDict, total=False):
    """Some of it."""

    title: Required[Annotated[str, "The title"]]
    year: int


class Extended(typing_extensions.TypedDict):
    name: str


class Address(BaseModel):
    street: str = Field(min_length=1, description="Street and number")
    zip: str = Field(pattern="^[0-9]{5}$")


class Customer(BaseModel):
    """Somebody who buys."""

    name: str
    address: Address
    others: list[Address] = []


class Tree(BaseModel):
    name: str
    branches: list[Tree] = []


@pydantic.dataclasses.dataclass
class Measure:
    length: float = Field(gt=0)


UserId = NewType("UserId", int)


def derive(annotation: Any) -> dict[str, Any]:
    schemas = TypeSchemas()
    rule = schemas.schema(annotation)
    whole = {**rule, "$defs": schemas.defs} if schemas.defs else rule
    SchemaCheck(whole)
    return whole


def one_of(*values: Any) -> dict[str, Any]:
    return {"type": "string", "enum": list(values)}


@pytest.mark.parametrize(
    ("annotation", "expected"),
    [
        (str, {"type": "string"}),
        (int, {"type": "integer"}),
        (float, {"type": "number"}),
        (bool, {"type": "boolean"}),
        (None, {"type": "null"}),
        (type(None), {"type": "null"}),
        (Any, {}),
        (object, {}),
        (dict, {"type": "object"}),
        (list, {"type": "array"}),
        (tuple, {"type": "array"}),
        (set, {"type": "array", "uniqueItems": True}),
        (typing.List, {"type": "array"}),  # noqa: UP006 - the old spelling is what is tested
        (typing.Dict, {"type": "object"}),  # noqa: UP006
        (typing.Sequence, {"type": "array"}),
        (typing.List[int], {"type": "array", "items": {"type": "integer"}}),  # noqa: UP006
        (collections.abc.Mapping, {"type": "object"}),
        (datetime.datetime, {"type": "string", "format": "date-time"}),
        (datetime.date, {"type": "string", "format": "date"}),
        (datetime.time, {"type": "string", "format": "time"}),
        (uuid.UUID, {"type": "string", "format": "uuid"}),
        (pathlib.Path, {"type": "string"}),
        (list[int], {"type": "array", "items": {"type": "integer"}}),
        (collections.abc.Sequence[str], {"type": "array", "items": {"type": "string"}}),
        (collections.abc.Iterable[str], {"type": "array", "items": {"type": "string"}}),
        (set[str], {"type": "array", "items": {"type": "string"}, "uniqueItems": True}),
        (frozenset[int], {"type": "array", "items": {"type": "integer"}, "uniqueItems": True}),
        (tuple[int, ...], {"type": "array", "items": {"type": "integer"}}),
        (
            tuple[int, str],
            {
                "type": "array",
                "prefixItems": [{"type": "integer"}, {"type": "string"}],
                "minItems": 2,
                "maxItems": 2,
            },
        ),
        (tuple[()], {"type": "array", "minItems": 0, "maxItems": 0}),
        (dict[str, int], {"type": "object", "additionalProperties": {"type": "integer"}}),
        (
            dict[str, dict[str, list[float]]],
            {
                "type": "object",
                "additionalProperties": {
                    "type": "object",
                    "additionalProperties": {"type": "array", "items": {"type": "number"}},
                },
            },
        ),
        (
            dict[Color, int],
            {
                "type": "object",
                "additionalProperties": {"type": "integer"},
                "propertyNames": one_of("red", "blue"),
            },
        ),
        (Optional[int], {"type": ["integer", "null"]}),  # noqa: UP045 - the old spelling is what is tested
        (Union[int, str], {"type": ["integer", "string"]}),  # noqa: UP007
        (int | str | None, {"type": ["integer", "string", "null"]}),
        (str | pathlib.Path, {"type": ["string"]}),
        (list[int] | None, {"anyOf": [{"type": "array", "items": {"type": "integer"}}, {"type": "null"}]}),
        (Literal["a", "b"], one_of("a", "b")),
        (Literal[1, 2], {"type": "integer", "enum": [1, 2]}),
        (Literal["a", 1, None], {"enum": ["a", 1, None]}),
        (Color, one_of("red", "blue")),
        (Level, {"type": "integer", "enum": [1, 2]}),
        (Mixed, {"enum": ["a", 1]}),
        (list[Color], {"type": "array", "items": one_of("red", "blue")}),
        (UserId, {"type": "integer"}),
        (
            list[Annotated[UserId, "Who"]],
            {"type": "array", "items": {"type": "integer", "description": "Who"}},
        ),
    ],
)
def test_the_schema_of_a_type(annotation: Any, expected: dict[str, Any]) -> None:
    assert derive(annotation) == expected


@pytest.mark.parametrize(
    ("annotation", "expected"),
    [
        (Annotated[int, Field(ge=1, lt=9)], {"type": "integer", "minimum": 1, "exclusiveMaximum": 9}),
        (Annotated[float, Field(gt=0, le=1.5)], {"type": "number", "exclusiveMinimum": 0, "maximum": 1.5}),
        (Annotated[int, Field(multiple_of=5)], {"type": "integer", "multipleOf": 5}),
        (
            Annotated[str, Field(min_length=1, max_length=3)],
            {"type": "string", "minLength": 1, "maxLength": 3},
        ),
        (Annotated[str, Field(pattern="^a+$")], {"type": "string", "pattern": "^a+$"}),
        (
            Annotated[str, pydantic.StringConstraints(pattern=re.compile("^a"))],
            {"type": "string", "pattern": "^a"},
        ),
        (
            Annotated[list[int], Field(min_length=1, max_length=3)],
            {"type": "array", "items": {"type": "integer"}, "minItems": 1, "maxItems": 3},
        ),
        (
            Annotated[dict[str, int], annotated_types.Len(1, 2)],
            {
                "type": "object",
                "additionalProperties": {"type": "integer"},
                "minProperties": 1,
                "maxProperties": 2,
            },
        ),
        (
            Annotated[int, annotated_types.Interval(ge=0, le=5)],
            {"type": "integer", "minimum": 0, "maximum": 5},
        ),
        (
            Annotated[str | None, Field(max_length=3)],
            {"type": ["string", "null"], "maxLength": 3},
        ),
        (
            Annotated[list[int] | None, Field(max_length=3)],
            {"anyOf": [{"type": "array", "items": {"type": "integer"}, "maxItems": 3}, {"type": "null"}]},
        ),
        (
            list[Annotated[int, Field(ge=0)]],
            {"type": "array", "items": {"type": "integer", "minimum": 0}},
        ),
        (Annotated[str, "What"], {"type": "string", "description": "What"}),
        (Annotated[str, Field(description="What")], {"type": "string", "description": "What"}),
        (Annotated[str, typing_extensions.Doc("What")], {"type": "string", "description": "What"}),
        (
            Annotated[Annotated[int, Field(ge=0)], "What"],
            {"type": "integer", "minimum": 0, "description": "What"},
        ),
    ],
)
def test_the_constraints_of_annotated(annotation: Any, expected: dict[str, Any]) -> None:
    assert derive(annotation) == expected


def test_a_dataclass_is_an_object_with_its_fields() -> None:
    schema = derive(Person)

    assert schema["$ref"] == "#/$defs/Person"
    assert schema["$defs"]["Person"] == {
        "type": "object",
        "description": "Somebody.",
        "properties": {
            "name": {"type": "string", "description": "Full name."},
            "age": {"type": "integer", "default": 0, "description": "In years."},
            "email": {"type": ["string", "null"], "default": None, "description": "Where to write"},
            "tags": {"type": "array", "items": {"type": "string"}, "default": []},
            "born": {"type": "string", "format": "date"},
            "note": {"type": "string", "default": "", "description": "Anything else"},
        },
        "required": ["name"],
        "additionalProperties": False,
    }


def test_a_dataclass_that_contains_itself() -> None:
    check = SchemaCheck(derive(Node))

    assert check.is_valid({"value": 1, "children": [{"value": 2, "parent": {"value": 3}}]})
    assert [v.path for v in check.violations({"value": 1, "children": [{"value": "2"}]})] == [
        "$.children[0].value"
    ]


@pytest.mark.parametrize(
    ("struct", "required"), [(Movie, ["title"]), (Partial, ["title"]), (Extended, ["name"])]
)
def test_a_typed_dict_is_an_object(struct: Any, required: list[str]) -> None:
    rule = derive(struct)["$defs"][struct.__name__]

    assert rule["required"] == required
    assert rule["additionalProperties"] is False


def test_the_descriptions_of_a_typed_dict() -> None:
    rule = derive(Partial)["$defs"]["Partial"]

    assert rule["description"] == "Some of it."
    assert rule["properties"] == {
        "title": {"type": "string", "description": "The title"},
        "year": {"type": "integer"},
    }


def test_a_pydantic_model_describes_itself() -> None:
    check = SchemaCheck(derive(list[Customer]))

    assert check.is_valid([{"name": "Ada", "address": {"street": "x", "zip": "12345"}}])
    assert {v.path for v in check.violations([{"address": {"street": "", "zip": "1"}}])} == {
        "$[0].name",
        "$[0].address.street",
        "$[0].address.zip",
    }


def test_a_pydantic_model_that_contains_itself() -> None:
    check = SchemaCheck(derive(Tree))

    assert check.is_valid({"name": "a", "branches": [{"name": "b"}]})
    assert [v.path for v in check.violations({"name": "a", "branches": [{"name": 1}]})] == [
        "$.branches[0].name"
    ]


def test_a_pydantic_dataclass_describes_itself() -> None:
    check = SchemaCheck(derive(Measure))

    assert check.is_valid({"length": 1})
    assert not check.is_valid({"length": 0})


def other_address() -> type:
    class Address(BaseModel):
        """Where on the network."""

        host: str

    class Server(BaseModel):
        address: Address

    return Server


def test_two_types_of_one_name_are_kept_apart() -> None:
    Server = other_address()  # noqa: N806 - a class
    first = dataclasses.make_dataclass("Same", [("a", int)])
    second = dataclasses.make_dataclass("Same", [("b", int)])
    check = SchemaCheck(derive(tuple[first, second, Customer, Server]))  # type: ignore[valid-type]

    person = {"name": "A", "address": {"street": "x", "zip": "12345"}}
    assert check.is_valid([{"a": 1}, {"b": 1}, person, {"address": {"host": "h"}}])
    assert not check.is_valid([{"b": 1}, {"b": 1}, person, {"address": {"host": "h"}}])
    assert not check.is_valid([{"a": 1}, {"b": 1}, person, {"address": person["address"]}])


class Plain:
    pass


T = typing.TypeVar("T")


@pytest.mark.parametrize(
    "annotation",
    [
        Plain,
        bytes,
        complex,
        decimal.Decimal,
        datetime.timedelta,
        T,
        type[int],
        collections.abc.Callable[[int], int],
        typing.Callable,
        re.Pattern,
        dict[int, str],
        Unlisted,
        Literal[b"a"],
        Literal[Color.RED],
    ],
    ids=str,
)
@pytest.mark.parametrize(
    "around",
    [
        lambda kind: kind,
        lambda kind: list[kind],  # type: ignore[valid-type]
        lambda kind: Annotated[kind, "words"],
        lambda kind: Optional[kind],  # noqa: UP045 - not every one takes `|`
        lambda kind: dict[str, tuple[int, kind]],  # type: ignore[valid-type]
        lambda kind: dataclasses.make_dataclass("Holder", [("field", kind)]),
    ],
    ids=["bare", "list", "annotated", "optional", "dict", "dataclass"],
)
def test_a_type_without_a_schema_is_refused_wherever_it_is(annotation: Any, around: Any) -> None:
    with pytest.raises(DefinitionError) as caught:
        derive(around(annotation))

    assert caught.value.message


def test_a_pattern_that_is_not_linear_is_refused() -> None:
    with pytest.raises(DefinitionError, match="regex"):
        derive(list[Annotated[str, Field(pattern="(?=a)")]])


def test_a_named_alias_is_looked_through() -> None:
    alias = typing_extensions.TypeAliasType("alias", dict[str, int])

    assert derive(list[alias])["items"] == {"type": "object", "additionalProperties": {"type": "integer"}}
