"""From a function's signature to its schema and its keyword arguments; bad signatures are refused at once."""

from __future__ import annotations

import dataclasses
import datetime
import enum
import functools
import inspect
import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypedDict

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, Field

from toolcrib.core.context import Context
from toolcrib.errors import DefinitionError, InvalidInput
from toolcrib.schema import ArgumentCheck, inspect_function

if TYPE_CHECKING:
    from decimal import Decimal


class Color(enum.Enum):
    RED = "red"
    BLUE = "blue"


@dataclasses.dataclass
class Search:
    """What to search.

    Attributes:
        query: The words.
    """

    query: str
    limit: int = 10
    since: datetime.date | None = None


class Box(BaseModel):
    size: int = Field(ge=0)


class Words(TypedDict, total=False):
    query: str


def shape_of(function: Callable[..., Any], **options: Any) -> Any:
    return inspect_function(function, (Context,), **options)


def schema_of(function: Callable[..., Any]) -> dict[str, Any]:
    schema: dict[str, Any] = shape_of(function).schema()
    ArgumentCheck(schema)
    return schema


def called(function: Callable[..., Any], arguments: dict[str, Any]) -> Any:
    """Call the function the way a call does: checked, settled, converted."""
    shape = shape_of(function)
    checked = ArgumentCheck(shape.schema()).check(arguments)
    adapt = shape.adapter()
    return function(**(checked if adapt is None else adapt(checked)))


def search(query: str, limit: int = 10, *, kind: Literal["web", "news"] = "web") -> str:
    """Search the web.

    Args:
        query: The words.
        kind: What to
            look through.
    """
    return f"{query}/{limit}/{kind}"


def test_parameters_become_properties() -> None:
    assert schema_of(search) == {
        "type": "object",
        "properties": {
            "query": {"type": "string", "description": "The words."},
            "limit": {"type": "integer", "default": 10},
            "kind": {
                "type": "string",
                "enum": ["web", "news"],
                "default": "web",
                "description": "What to\nlook through.",
            },
        },
        "required": ["query"],
        "additionalProperties": False,
    }
    assert shape_of(search).docs.description == "Search the web."


def test_no_parameters() -> None:
    def nothing() -> None: ...

    assert schema_of(nothing) == {"type": "object", "properties": {}, "additionalProperties": False}


def test_annotated_tells_more_than_the_docstring() -> None:
    def tool(a: Annotated[int, "From Annotated"], b: int) -> None:
        """Do.

        Args:
            a: From the docstring.
            b: From the docstring.
        """

    properties = schema_of(tool)["properties"]
    assert properties["a"]["description"] == "From Annotated"
    assert properties["b"]["description"] == "From the docstring."


@pytest.mark.parametrize(
    ("kind", "arguments", "expected"),
    [
        (Search, {"query": "a", "since": "2026-01-02"}, Search("a", since=datetime.date(2026, 1, 2))),
        (Box, {"size": 1}, Box(size=1)),
        (Words, {"query": "a"}, {"query": "a"}),
        (Annotated[Search, "What"], {"query": "a"}, Search("a")),
    ],
)
def test_a_single_structure_is_the_arguments(kind: Any, arguments: dict[str, Any], expected: Any) -> None:
    def tool(given):  # type: ignore[no-untyped-def]
        return given

    tool.__annotations__["given"] = kind

    assert "given" not in schema_of(tool)["properties"]
    assert called(tool, arguments) == expected


def test_fields_of_a_single_structure_are_described() -> None:
    def tool(given: Search) -> None: ...

    schema = schema_of(tool)
    assert schema["description"] == "What to search."
    assert schema["properties"]["query"] == {"type": "string", "description": "The words."}
    assert schema["properties"]["limit"]["default"] == 10


def test_a_structure_with_company_or_a_default_is_a_parameter() -> None:
    def two(given: Search, more: int) -> None: ...
    def optional(given: Search | None = None) -> None: ...
    def rest(given: Search, **rest: int) -> None: ...

    for function in (two, optional, rest):
        assert "given" in schema_of(function)["properties"]


def test_the_context_is_no_parameter() -> None:
    def tool(a: int, ctx: Context) -> None: ...
    def optional(a: int, ctx: Context | None = None) -> None: ...

    for function in (tool, optional):
        assert list(schema_of(function)["properties"]) == ["a"]
        assert shape_of(function).context_parameter == "ctx"


def test_further_arguments() -> None:
    def anything(a: int, **rest) -> Any:  # type: ignore[no-untyped-def]
        return {"a": a, **rest}

    def dates(a: int, **rest: datetime.date) -> Any:
        return {"a": a, **rest}

    assert schema_of(anything)["additionalProperties"] is True
    assert schema_of(dates)["additionalProperties"] == {"type": "string", "format": "date"}
    assert called(anything, {"a": 1, "b": [1]}) == {"a": 1, "b": [1]}
    assert called(dates, {"a": 1, "b": "2026-01-02"}) == {"a": 1, "b": datetime.date(2026, 1, 2)}


def test_defaults_arrive_as_they_were_written() -> None:
    odd = object()

    def tool(
        color: Color = Color.RED,
        day: datetime.date = datetime.date(2026, 1, 2),
        tags: list[str] = [],  # noqa: B006 - what a user may write
        pair: Any = (1, 2),
        nan: float = math.nan,
        inf: float = math.inf,
        marker: Any = odd,
        box: Box = Box(size=1),  # noqa: B008 - what a user may write
        names: frozenset[str] = frozenset({"a"}),
        big: int = 2**70,
    ) -> Any:
        return locals()

    properties = schema_of(tool)["properties"]
    assert {name: rule["default"] for name, rule in properties.items() if "default" in rule} == {
        "color": "red",
        "day": "2026-01-02",
        "tags": [],
        "box": {"size": 1},
        "names": ["a"],
    }
    found = called(tool, {})
    assert math.isnan(found.pop("nan"))
    assert found == {
        "color": Color.RED,
        "day": datetime.date(2026, 1, 2),
        "tags": [],
        "pair": (1, 2),
        "inf": math.inf,
        "marker": odd,
        "box": Box(size=1),
        "names": frozenset({"a"}),
        "big": 2**70,
    }


def test_a_default_that_changes_is_left_to_the_dataclass() -> None:
    counter = iter(range(10))

    @dataclasses.dataclass
    class Numbered:
        number: int = dataclasses.field(default_factory=lambda: next(counter))

    def tool(given):  # type: ignore[no-untyped-def]
        return given.number

    tool.__annotations__["given"] = Numbered

    assert "default" not in schema_of(tool)["properties"]["number"]
    assert [called(tool, {}), called(tool, {})] == [0, 1]


def test_whole_numbers_arrive_as_integers() -> None:
    def tool(a: int, b: list[int], c: float, d: int | None = None) -> Any:
        return [a, b, c, d]

    found = called(tool, {"a": 2.0, "b": [3.0], "c": 4.0, "d": 5.0})
    assert repr(found) == "[2, [3], 4.0, 5]"


def test_values_that_do_not_convert_are_reported_together() -> None:
    def tool(day: datetime.date, box: Box, size: int) -> None: ...

    with pytest.raises(InvalidInput) as caught:
        called(tool, {"day": "soon", "box": {"size": 1}, "size": 1})
    assert [v.path for v in caught.value.violations] == ["$.day"]
    assert caught.value.message == "$.day Invalid isoformat string: 'soon'"


class Even(BaseModel):
    number: int

    def model_post_init(self, _: Any) -> None:
        if self.number % 2:
            raise ValueError("is odd")


def test_a_models_own_checks_are_violations() -> None:
    @dataclasses.dataclass
    class Positive:
        number: int

        def __post_init__(self) -> None:
            if self.number < 0:
                raise ValueError("is negative")

    def both(even: Even, positive: Any) -> None: ...

    both.__annotations__["positive"] = Positive
    with pytest.raises(InvalidInput) as caught:
        called(both, {"even": {"number": 1}, "positive": {"number": -1}})
    assert [v.path for v in caught.value.violations] == ["$.even", "$.positive"]


def test_names_in_strings_are_looked_up() -> None:
    namespace: dict[str, Any] = {"Color": Color}
    exec("def tool(a: list['Color'], b: 'Color | None' = None): return a, b", namespace)

    assert called(namespace["tool"], {"a": ["red"], "b": "blue"}) == ([Color.RED], Color.BLUE)


class Service:
    def method(self, a: int) -> int:
        """Do it."""
        return a

    def __call__(self, a: int) -> int:
        return a


def test_methods_partials_wrappers_and_callable_objects() -> None:
    def plain(a: int, b: int) -> int:
        return a + b

    @functools.wraps(plain)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        return plain(*args, **kwargs)

    assert called(Service().method, {"a": 1}) == 1
    assert called(Service(), {"a": 1}) == 1
    assert called(functools.partial(plain, b=1), {"a": 1}) == 2
    assert called(wrapped, {"a": 1, "b": 2}) == 3


def no_annotation(a) -> None: ...  # type: ignore[no-untyped-def]
def stars(*args: int) -> None: ...
def positional(a: int, /) -> None: ...
def unknown_type(a: object, b: complex) -> None: ...
def nested(a: dict[str, list[bytes | None]]) -> None: ...
def unresolved(a: Decimal) -> None: ...
def unresolved_inside(a: list[Decimal]) -> None: ...
def field_default(a: int = Field(ge=0)) -> None: ...
def look_ahead(a: Annotated[str, Field(pattern="(?=a)")]) -> None: ...
def deep_look_ahead(a: list[Annotated[str, Field(pattern="(?=a)")]]) -> None: ...
def typed_rest(**rest: bytes) -> None: ...


@pytest.mark.parametrize(
    ("function", "says"),
    [
        (no_annotation, "'a' has no type annotation"),
        (stars, "'args' cannot be given by name"),
        (positional, "'a' cannot be given by name"),
        (unknown_type, "'b': the type complex has no JSON Schema"),
        (nested, "'a': the type bytes has no JSON Schema"),
        (unresolved, "'Decimal' cannot be resolved"),
        (unresolved_inside, "'Decimal' cannot be resolved"),
        (field_default, "the default of 'a' is a Field"),
        (look_ahead, "regex"),
        (deep_look_ahead, "regex"),
        (typed_rest, "'rest': the type bytes has no JSON Schema"),
        (Service.method, "a method has no 'self'"),
        (lambda a: a, "'a' has no type annotation"),
        (dict.update, "no signature found"),
    ],
)
def test_a_bad_signature_is_refused_with_the_reason(function: Callable[..., Any], says: str) -> None:
    with pytest.raises(DefinitionError) as caught:
        shape_of(function)

    assert says in caught.value.message


def test_names_that_lead_nowhere_are_refused() -> None:
    namespace: dict[str, Any] = {}
    exec("def tool(a: list['Nowhere']): ...\ndef other(a: 'no such('): ...", namespace)

    for name in ("tool", "other"):
        with pytest.raises(DefinitionError):
            shape_of(namespace[name])


def test_annotations_may_be_missing_where_a_schema_is_given() -> None:
    assert [p.name for p in shape_of(no_annotation, typed=False).parameters] == ["a"]


PARAMETERS = st.lists(
    st.sampled_from(["int", "str", "bool", "float", "list[int]", "int | None", "dict[str, str]", "Color"]),
    max_size=5,
)
VALUES: dict[str, st.SearchStrategy[Any]] = {
    "int": st.integers(-9, 9),
    "str": st.text(st.characters(codec="utf-8"), max_size=3),
    "bool": st.booleans(),
    "float": st.floats(allow_nan=False, allow_infinity=False),
    "list[int]": st.lists(st.integers(-9, 9), max_size=3),
    "int | None": st.none() | st.integers(-9, 9),
    "dict[str, str]": st.dictionaries(st.just("k"), st.just("v")),
    "Color": st.sampled_from(Color),
}


@given(PARAMETERS, st.data())
def test_the_schema_takes_what_the_function_takes(kinds: list[str], data: st.DataObject) -> None:
    signature = ", ".join(f"p{index}: {kind}" for index, kind in enumerate(kinds))
    namespace: dict[str, Any] = {"Color": Color}
    exec(f"def tool({signature}): return locals()", namespace)
    given_values = {f"p{index}": data.draw(VALUES[kind]) for index, kind in enumerate(kinds)}

    assert called(namespace["tool"], given_values) == given_values
    assert inspect.signature(namespace["tool"]).parameters.keys() == given_values.keys()
