"""From a function's signature to its schema and its keyword arguments; bad signatures are refused at once."""

from __future__ import annotations

import dataclasses
import datetime
import enum
import functools
import inspect
import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any, Literal, NotRequired, TypedDict, Unpack

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, Field, StringConstraints

from toolcrib.core.context import Context
from toolcrib.errors import DefinitionError, InvalidInput
from toolcrib.schema import ArgumentCheck
from toolcrib.schema.derive import inspect_function

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
    checked = ArgumentCheck(shape.schema(), settled=shape.settled()).check(arguments)
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
    assert "valid date" in caught.value.message


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
    """A service."""

    def method(self, a: int) -> int:
        """Do it."""
        return a

    def __call__(self, a: list[Color]) -> Any:
        """Call it.

        Args:
            a: Colors.
        """
        return a


class Silent:
    """Say nothing."""

    def __call__(self, a: int) -> int:
        return a


def test_methods_partials_wrappers_and_callable_objects() -> None:
    def plain(a: int, b: int) -> int:
        return a + b

    @functools.wraps(plain)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        return plain(*args, **kwargs)

    assert called(Service().method, {"a": 1}) == 1
    assert called(Service(), {"a": ["red"]}) == [Color.RED]
    assert called(functools.partial(plain, b=1), {"a": 1}) == 2
    assert called(wrapped, {"a": 1, "b": 2}) == 3


def test_partials_and_callable_objects_have_their_own_description() -> None:
    assert (
        shape_of(functools.partial(functools.partial(search), limit=2)).docs.description == "Search the web."
    )
    assert shape_of(Service()).docs == ("Call it.", {"a": "Colors."})
    assert shape_of(functools.partial(Service(), a=[])).docs.description == "Call it."
    assert shape_of(Silent()).docs.description == "Say nothing."


class Opaque:
    pass


def no_annotation(a, b=1) -> Any:  # type: ignore[no-untyped-def]
    return [a, b]


def stars(*args: int) -> None: ...
def positional(a: int, /) -> None: ...
def unknown_type(a: object, b: Opaque) -> None: ...
def nested(a: dict[str, list[Opaque | None]]) -> None: ...
def unresolved(a: Decimal) -> None: ...
def unresolved_inside(a: list[Decimal]) -> None: ...
def look_ahead(a: Annotated[str, Field(pattern="(?=a)")]) -> None: ...
def deep_look_ahead(a: list[Annotated[str, Field(pattern="(?=a)")]]) -> None: ...
def typed_rest(**rest: Opaque) -> None: ...


@pytest.mark.parametrize(
    ("function", "says"),
    [
        (stars, "'args' cannot be given by name"),
        (positional, "'a' cannot be given by name"),
        (unknown_type, "'b': the type Opaque has no JSON Schema"),
        (
            nested,
            "'a': the type dict[str, list[tests.unit.schema.test_derive.Opaque | None]] has no JSON Schema",
        ),
        (unresolved, "'Decimal' cannot be resolved"),
        (unresolved_inside, "'Decimal' cannot be resolved"),
        (look_ahead, "regex"),
        (deep_look_ahead, "regex"),
        (typed_rest, "'rest': the type Opaque has no JSON Schema"),
        (Service.method, "a method has no 'self'"),
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


def test_a_parameter_without_annotation_takes_any_value() -> None:
    assert schema_of(no_annotation) == {
        "type": "object",
        "properties": {"a": {}, "b": {"default": 1}},
        "required": ["a"],
        "additionalProperties": False,
    }
    assert called(no_annotation, {"a": {"x": [1]}}) == [{"x": [1]}, 1]
    assert called(lambda a: a, {"a": 1}) == 1


def test_a_type_without_schema_is_taken_where_a_schema_is_given() -> None:
    shape = shape_of(unknown_type, typed=False)

    assert [p.name for p in shape.parameters] == ["a", "b"]
    adapt = shape.adapter()
    assert adapt({"a": 1, "b": [2]}) == {"a": 1, "b": [2]}


@dataclasses.dataclass
class Filters:
    """Words."""

    n: int = 0
    since: datetime.date = None  # type: ignore[assignment] # what a user may write


class Visit(TypedDict):
    when: datetime.date


@pytest.mark.parametrize("kind", [Filters, Words, Visit, Box, dict[str, Box], list[Visit], datetime.date])
def test_none_may_be_the_default_of_any_type(kind: Any) -> None:
    def tool(x: int, v=None) -> Any:  # type: ignore[no-untyped-def]
        return v

    tool.__annotations__["v"] = kind

    assert called(tool, {"x": 1}) is None
    assert "default" not in schema_of(tool)["properties"]["v"]
    # A model that writes all arguments writes null for those that it leaves out.
    assert called(tool, {"x": 1, "v": None}) is None


def test_none_may_be_the_default_of_a_field() -> None:
    def tool(x: int, filters: Filters) -> Any:
        return filters

    assert called(tool, {"x": 1, "filters": {"n": 2}}) == Filters(2)
    assert called(tool, {"x": 1, "filters": {"since": "2026-01-02"}}) == Filters(0, datetime.date(2026, 1, 2))


def test_a_field_as_default_says_constraints_and_default() -> None:
    def tool(
        a: int = Field(default=4, ge=1),
        b: str = Field(examples=["x"], description="Words"),
        c: list[int] = Field(default_factory=list),  # noqa: B008 - what a user may write
        d: Annotated[int, Field(default=5)] = Field(le=9),
        e: Annotated[str, Field(alias="from")] = "here",
    ) -> Any:
        return [a, b, c, d, e]

    schema = schema_of(tool)
    assert schema["properties"] == {
        "a": {"type": "integer", "minimum": 1, "default": 4},
        "b": {"type": "string", "examples": ["x"], "description": "Words"},
        "c": {"type": "array", "items": {"type": "integer"}, "default": []},
        "d": {"type": "integer", "maximum": 9, "default": 5},
        "from": {"type": "string", "default": "here"},
    }
    assert schema["required"] == ["b"]
    assert called(tool, {"b": "q"}) == [4, "q", [], 5, "here"]
    assert called(tool, {"a": 7, "b": "q", "c": [1], "d": 9, "from": "there"}) == [7, "q", [1], 9, "there"]
    with pytest.raises(InvalidInput, match="less than the minimum"):
        called(tool, {"a": 0, "b": "q"})


def test_a_validator_in_annotated_runs() -> None:
    def tool(name: Annotated[str, StringConstraints(strip_whitespace=True, to_lower=True)]) -> str:
        return name

    assert called(tool, {"name": " Ada "}) == "ada"


class Options(TypedDict):
    deep: bool
    since: NotRequired[datetime.date]


def test_unpacked_options_are_parameters() -> None:
    def tool(a: int, **options: Unpack[Options]) -> Any:
        return a, options

    schema = schema_of(tool)
    assert list(schema["properties"]) == ["a", "deep", "since"]
    assert schema["required"] == ["a", "deep"]
    assert called(tool, {"a": 1, "deep": True}) == (1, {"deep": True})
    assert called(tool, {"a": 1, "deep": True, "since": "2026-01-02"})[1]["since"] == datetime.date(
        2026, 1, 2
    )


class Cat(BaseModel):
    kind: Literal["cat"]
    lives: int


class Dog(BaseModel):
    kind: Literal["dog"]
    bark: str


def by_kind(p: Annotated[Cat | Dog, Field(discriminator="kind")]) -> Any:
    return p


def of_any_kind(p: Cat | Dog | None) -> Any:
    return p


@pytest.mark.parametrize("function", [by_kind, of_any_kind])
@pytest.mark.parametrize(
    ("value", "violations"),
    [
        ({"kind": "cow"}, ["$.p.kind tag 'cow', expected 'cat' or 'dog'"]),
        ({"kind": "cat", "lives": "nine"}, ['$.p.cat.lives "nine" is not of type "integer"']),
        ({"kind": "dog"}, ["$.p.dog.bark is required"]),
        ({"lives": 9}, ["$.p.kind is required"]),
        (3, ['$.p 3 is not of type "object"']),
    ],
)
def test_a_union_names_the_tag_and_the_field(
    function: Callable[..., Any], value: Any, violations: list[str]
) -> None:
    assert called(function, {"p": {"kind": "cat", "lives": 9}}) == Cat(kind="cat", lives=9)
    with pytest.raises(InvalidInput) as caught:
        called(function, {"p": value})
    assert [f"{v.path} {v.message}" for v in caught.value.violations] == violations


@pytest.mark.parametrize(
    ("returned", "schema"),
    [
        (Search, {"type": "object", "required": ["query"]}),
        (Box, {"type": "object", "required": ["size"]}),
        (Visit, {"type": "object", "required": ["when"]}),
        (list[int], {"type": "array", "items": {"type": "integer"}}),
        ("datetime.timedelta", {"type": "string", "format": "duration"}),
    ],
)
def test_what_a_function_returns_has_a_schema(returned: Any, schema: dict[str, Any]) -> None:
    def tool() -> Any: ...

    tool.__annotations__["return"] = returned

    found = shape_of(tool).output_schema()
    assert found is not None
    assert {word: found.get(word) for word in schema} == schema


class Branch(BaseModel):
    inner: Branch | None = None


def test_a_reference_at_the_root_is_written_out() -> None:
    def tool(branch: Branch) -> Branch:
        return branch

    shape = shape_of(tool)
    assert shape.schema()["type"] == shape.output_schema()["type"] == "object"
    assert called(tool, {"inner": {"inner": None}}) == Branch(inner=Branch())


@pytest.mark.parametrize("returned", [bytes, bytes | None, str, None, Any, "Nowhere", Opaque])
def test_what_is_no_structure_has_no_output_schema(returned: Any) -> None:
    def tool() -> Any: ...

    tool.__annotations__["return"] = returned

    assert shape_of(tool).output_schema() is None


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
