"""Python types in JSON: every type of the field's practice has a schema, and comes back as it was."""

from __future__ import annotations

import collections.abc
import dataclasses
import datetime
import decimal
import enum
import functools
import ipaddress
import pathlib
import re
import typing
import uuid
from typing import Annotated, Any, Literal, NewType, NotRequired, Optional, Required, TypedDict, Union

import annotated_types
import pydantic
import pytest
import typing_extensions
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, Field

from toolcrib.errors import DefinitionError, InvalidInput
from toolcrib.schema import SchemaCheck, to_json
from toolcrib.schema.annotations import Annotation
from toolcrib.schema.plain import plain


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


class Visit(TypedDict):
    when: datetime.date
    pages: list[bytes]


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


class Parcel(BaseModel):
    data: bytes
    parts: list[bytes] = []


@pydantic.dataclasses.dataclass
class Measure:
    length: float = Field(gt=0)


class Pair(typing.NamedTuple):
    left: int
    right: str = "b"


class Plain:
    pass


UserId = NewType("UserId", int)
Json = typing_extensions.TypeAliasType("Json", "dict[str, Json] | list[Json] | int")
T = typing.TypeVar("T")


def derive(annotation: Any) -> dict[str, Any]:
    """Return the schema of a type as that of a parameter has it."""
    found = plain(annotation)
    rule = Annotation(annotation).schema if found is None else found.rule
    SchemaCheck(rule)
    return rule


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
        (tuple, {"type": "array", "items": {}}),
        (set, {"type": "array", "items": {}, "uniqueItems": True}),
        (typing.List, {"type": "array"}),  # noqa: UP006 - the old spelling is what is tested
        (typing.Dict, {"type": "object"}),  # noqa: UP006
        (typing.Sequence, {"type": "array"}),
        (typing.List[int], {"type": "array", "items": {"type": "integer"}}),  # noqa: UP006
        (collections.abc.Mapping, {"type": "object"}),
        (datetime.datetime, {"type": "string", "format": "date-time"}),
        (datetime.date, {"type": "string", "format": "date"}),
        (datetime.time, {"type": "string", "format": "time"}),
        (uuid.UUID, {"type": "string", "format": "uuid"}),
        (pathlib.Path, {"type": "string", "format": "path"}),
        (datetime.timedelta, {"type": "string", "format": "duration"}),
        (decimal.Decimal, {"anyOf": [{"type": "number"}, {"type": "string"}]}),
        (bytes, {"type": "string", "contentEncoding": "base64"}),
        (Annotated[bytes, Field(max_length=3)], {"type": "string", "contentEncoding": "base64"}),
        (
            pydantic.Base64Bytes,
            {"type": "string", "format": "base64", "contentEncoding": "base64"},
        ),
        (
            pydantic.HttpUrl,
            {"type": "string", "format": "uri", "minLength": 1, "maxLength": 2083},
        ),
        (dict[int, str], {"type": "object", "additionalProperties": {"type": "string"}}),
        (
            collections.abc.Iterable[datetime.date],
            {"type": "array", "items": {"type": "string", "format": "date"}},
        ),
        (re.Pattern, {"type": "string", "format": "regex"}),
        (complex, {"type": "string"}),
        (T, {}),
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
                "propertyNames": {"$ref": "#/$defs/Color"},
                "$defs": {"Color": one_of("red", "blue")},
            },
        ),
        (Optional[int], {"type": ["integer", "null"]}),  # noqa: UP045 - the old spelling is what is tested
        (Union[int, str], {"type": ["integer", "string"]}),  # noqa: UP007
        (int | str | None, {"type": ["integer", "string", "null"]}),
        (str | pathlib.Path, {"anyOf": [{"type": "string"}, {"type": "string", "format": "path"}]}),
        (datetime.date | None, {"anyOf": [{"type": "string", "format": "date"}, {"type": "null"}]}),
        (list[int] | None, {"anyOf": [{"type": "array", "items": {"type": "integer"}}, {"type": "null"}]}),
        (Literal["a", "b"], one_of("a", "b")),
        (Literal[1, 2], {"type": "integer", "enum": [1, 2]}),
        (Literal["a", 1, None], {"enum": ["a", 1, None]}),
        (Color, one_of("red", "blue")),
        (Level, {"type": "integer", "enum": [1, 2]}),
        (Mixed, {"enum": ["a", 1]}),
        (Literal[Color.RED], one_of("red")),
        (Unlisted, {"type": "array", "enum": [[1, 2]]}),
        (
            list[Color],
            {
                "type": "array",
                "items": {"$ref": "#/$defs/Color"},
                "$defs": {"Color": one_of("red", "blue")},
            },
        ),
        (
            Pair,
            {
                "type": "array",
                "prefixItems": [{"type": "integer"}, {"type": "string", "default": "b"}],
                "minItems": 1,
                "maxItems": 2,
            },
        ),
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
            {"anyOf": [{"type": "string", "maxLength": 3}, {"type": "null"}]},
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
        (Annotated[int, Field(examples=[3])], {"type": "integer", "examples": [3]}),
        (Annotated[str, Field(title="Name")], {"type": "string", "title": "Name"}),
    ],
)
def test_the_constraints_of_annotated(annotation: Any, expected: dict[str, Any]) -> None:
    assert derive(annotation) == expected


def test_a_dataclass_is_an_object_with_its_fields() -> None:
    assert derive(list[Person])["$defs"]["Person"] == {
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
    rule = derive(struct)

    assert rule["required"] == required
    assert rule["additionalProperties"] is False


def test_the_descriptions_of_a_typed_dict() -> None:
    rule = derive(Partial)

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


@pytest.mark.parametrize(
    "annotation", [Plain, collections.abc.Callable[[int], int], typing.Callable], ids=str
)
@pytest.mark.parametrize(
    "around",
    [
        lambda kind: kind,
        lambda kind: list[kind],  # type: ignore[valid-type]
        lambda kind: Annotated[kind, "words"],
        lambda kind: dict[str, tuple[int, kind]],  # type: ignore[valid-type]
        lambda kind: dataclasses.make_dataclass("Holder", [("field", kind)]),
    ],
    ids=["bare", "list", "annotated", "dict", "dataclass"],
)
def test_a_type_without_a_schema_is_refused_wherever_it_is(annotation: Any, around: Any) -> None:
    with pytest.raises(DefinitionError, match="has no JSON Schema"):
        derive(around(annotation))


def test_a_pattern_that_is_not_linear_is_refused() -> None:
    with pytest.raises(DefinitionError, match="regex"):
        derive(list[Annotated[str, Field(pattern="(?=a)")]])


def test_a_pattern_that_only_pydantic_can_check_is_no_part_of_the_schema() -> None:
    class Word(BaseModel, regex_engine="python-re"):
        text: str = Field(pattern="^(?!no)")

    check = Annotation(Word)
    assert check.schema["properties"]["text"] == {"type": "string"}
    assert check.read({"text": "yes"}) == Word(text="yes")
    with pytest.raises(InvalidInput, match="match pattern"):
        check.read({"text": "nothing"})


def test_a_wrong_name_of_a_property_has_the_place_of_the_property() -> None:
    with pytest.raises(InvalidInput) as caught:
        Annotation(dict[int, str]).read({"u": "a"}, ("x",))
    assert [one.path for one in caught.value.violations] == ["$.x.u"]


def test_a_named_alias_is_looked_through() -> None:
    alias = typing_extensions.TypeAliasType("alias", dict[str, int])

    assert derive(list[alias])["items"] == {"type": "object", "additionalProperties": {"type": "integer"}}


def test_an_alias_may_contain_itself() -> None:
    check = Annotation(Json)
    assert check.read({"a": [1, {"b": 2}]}) == {"a": [1, {"b": 2}]}
    assert SchemaCheck(check.schema).is_valid({"a": [1, {"b": 2}]})
    assert not SchemaCheck(check.schema).is_valid({"a": ["text"]})


# -- values -----------------------------------------------------------------------------------------


def round_trip(annotation: Any, value: Any) -> Any:
    """Through JSON and back, as the value of a checked argument. It matches both schemas on the way."""
    said = to_json(value)
    found = plain(annotation)
    if found is not None:
        assert SchemaCheck(found.rule).violations(said) == []
        return said if found.convert is None else found.convert(said)
    read, returned = Annotation(annotation), Annotation(annotation, returned=True)
    assert SchemaCheck(read.schema).violations(said) == []
    assert SchemaCheck(returned.schema).violations(said) == []
    return read.read(said)


LEAVES: list[tuple[Any, st.SearchStrategy[Any]]] = [
    (int, st.integers(-(2**63), 2**63 - 1)),
    (float, st.floats(allow_nan=False, allow_infinity=False)),
    (str, st.text(st.characters(codec="utf-8"), max_size=5)),
    (bool, st.booleans()),
    (Color, st.sampled_from(Color)),
    (Level, st.sampled_from(Level)),
    (datetime.date, st.dates()),
    (datetime.datetime, st.datetimes()),
    (datetime.time, st.times()),
    (datetime.timedelta, st.timedeltas()),
    (uuid.UUID, st.uuids()),
    (pathlib.Path, st.sampled_from([pathlib.Path("/a/b"), pathlib.Path("c")])),
    (bytes, st.binary(max_size=5)),
    (decimal.Decimal, st.decimals(-9, 9, places=3)),
    (ipaddress.IPv4Address, st.ip_addresses(v=4)),
    (Pair, st.builds(Pair, st.integers(0, 9))),
    (Person, st.builds(Person, name=st.just("Ada"), age=st.integers(0, 9))),
    (Movie, st.fixed_dictionaries({"title": st.just("M")}, optional={"year": st.integers(1900, 2000)})),
    (Visit, st.fixed_dictionaries({"when": st.dates(), "pages": st.lists(st.binary(max_size=3))})),
    (Tree, st.builds(Tree, name=st.just("t"), branches=st.just([]))),
    (Parcel, st.builds(Parcel, data=st.binary(max_size=3), parts=st.lists(st.binary(max_size=3)))),
]
HASHABLE = LEAVES[:15]


def around(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    def grow(drawn: tuple[Any, st.SearchStrategy[Any]]) -> st.SearchStrategy[Any]:
        kind, values = drawn
        return st.sampled_from(
            [
                (list[kind], st.lists(values, max_size=3)),  # type: ignore[valid-type]
                (collections.abc.Sequence[kind], st.lists(values, max_size=3)),  # type: ignore[valid-type]
                (dict[str, kind], st.dictionaries(st.just("k"), values, max_size=3)),  # type: ignore[valid-type]
                (dict[int, kind], st.dictionaries(st.integers(0, 9), values, max_size=3)),  # type: ignore[valid-type]
                (tuple[kind, ...], st.lists(values, max_size=3).map(tuple)),  # type: ignore[valid-type]
                (tuple[int, kind], st.tuples(st.integers(0, 9), values)),  # type: ignore[valid-type]
                (kind | None, st.none() | values),
                (holder(kind), values.map(holder(kind))),
            ]
        )

    return inner.flatmap(grow)


@functools.cache
def holder(kind: Any) -> Any:
    return dataclasses.make_dataclass("Holder", [("field", kind)])


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


@pytest.mark.parametrize("value", [uuid.UUID(int=1), datetime.date(2026, 1, 2), Color.RED])
def test_keys_and_values_of_one_type_are_both_converted(value: Any) -> None:
    kind = type(value)
    assert round_trip(dict[kind, kind], {value: value}) == {value: value}  # type: ignore[valid-type]


def test_structures_are_built_to_the_bottom() -> None:
    node = Node(1, [Node(2, [Node(3)])], Node(4))

    assert round_trip(Node, node) == node
    assert round_trip(dict[str, list[Node | None]], {"a": [node, None]}) == {"a": [node, None]}


def test_a_default_of_a_structure_is_no_given_value() -> None:
    assert Annotation(Tree).read({"name": "a"}).model_fields_set == {"name"}


@pytest.mark.parametrize(
    ("annotation", "value", "expected"),
    [
        (float, 3, 3.0),
        (list[float], [1, 2.5], [1.0, 2.5]),
        (dict[str, float | None], {"a": 1, "b": None}, {"a": 1.0, "b": None}),
        (float | int, 3, 3),
        (float | str, 3, 3.0),
        (Any, 3, 3),
    ],
)
def test_a_float_gets_a_float(annotation: Any, value: Any, expected: Any) -> None:
    found = plain(annotation)
    assert found is not None
    back = value if found.convert is None else found.convert(value)
    assert repr(back) == repr(expected) == repr(pydantic.TypeAdapter(annotation).validate_python(value))
