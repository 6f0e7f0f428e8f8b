"""JSON arguments are read strictly: nothing is dropped, rounded or guessed."""

from __future__ import annotations

import json
from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from toolcrib.errors import InvalidInput
from toolcrib.schema import decode_object

TEXT = st.text(st.characters(codec="utf-8"), max_size=8)
JSON_VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | TEXT,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXT, inner, max_size=4),
    max_leaves=12,
)
OBJECTS = st.dictionaries(TEXT, JSON_VALUES, max_size=5)


def refusal(text: bytes | str) -> InvalidInput:
    with pytest.raises(InvalidInput) as caught:
        decode_object(text)
    return caught.value


@given(OBJECTS, st.sampled_from([None, 2]), st.booleans())
def test_what_was_written_is_read(value: dict[str, Any], indent: int | None, ascii_only: bool) -> None:
    text = json.dumps(value, indent=indent, ensure_ascii=ascii_only)

    assert decode_object(text) == value
    assert decode_object(text.encode()) == value


@given(OBJECTS)
def test_compact_text_is_read(value: dict[str, Any]) -> None:
    assert decode_object(orjson.dumps(value)) == value


@given(OBJECTS, TEXT, JSON_VALUES, JSON_VALUES)
def test_a_key_given_twice_is_refused_at_any_depth(
    value: dict[str, Any], key: str, first: Any, second: Any
) -> None:
    twice = f"{{{json.dumps(key)}: {json.dumps(first)}, {json.dumps(key)}: {json.dumps(second)}}}"
    text = f'{{"outer": [{json.dumps(value)}, {twice}]}}'

    assert "is given twice" in refusal(text).message


SPACE = st.text(" \n\r\t", max_size=2)
INTEGERS = st.integers(-(2**63), 2**64 - 1)
HUGE = st.integers(2**64) | st.integers(max_value=-(2**63) - 1)
# Keys and texts of few letters, so that some come twice; signs that look like JSON's own.
SHORT = st.text(' ":,{}[]\\a1\u00e9', max_size=2)
LITERALS = st.booleans().map(json.dumps) | st.just("null")
REALS = st.floats(allow_nan=False, allow_infinity=False).map(repr)


@st.composite
def written(draw: st.DrawFn, kinds: st.SearchStrategy[str], depth: int = 3) -> str:
    """JSON text in any spacing, its keys and its escapes as they come."""
    shape = draw(st.sampled_from(["object", "array", "scalar"])) if depth else "scalar"
    if shape == "scalar":
        return draw(kinds)
    count = draw(st.integers(0, 3))
    items = [draw(SPACE) + draw(written(kinds, depth - 1)) + draw(SPACE) for _ in range(count)]
    if shape == "array":
        return f"[{','.join(items)}]"
    keys = [json.dumps(draw(SHORT), ensure_ascii=draw(st.booleans())) for _ in range(count)]
    members = [f"{draw(SPACE)}{key}{draw(SPACE)}:{item}" for key, item in zip(keys, items, strict=True)]
    return "{" + ",".join(members) + "}"


def by_the_standard_parser(text: str) -> Any:
    """What the text says; None where it is ambiguous or says a number that does not fit."""

    def pairs(items: list[tuple[str, Any]]) -> dict[str, Any]:
        if len(dict(items)) != len(items):
            raise OverflowError("a key is given twice")
        return dict(items)

    def integer(digits: str) -> int:
        if not -(2**63) <= int(digits) < 2**64:
            raise OverflowError("an integer is too large")
        return int(digits)

    try:
        return json.loads(text, object_pairs_hook=pairs, parse_int=integer)
    except OverflowError:
        return None


@settings(max_examples=500)
@given(written(SHORT.map(json.dumps) | LITERALS | REALS | INTEGERS.map(str) | HUGE.map(str)))
def test_what_is_read_is_what_the_standard_parser_reads(text: str) -> None:
    text = f'{{"": {text}}}'
    expected = by_the_standard_parser(text)

    if expected is None:
        assert "ambiguous" in refusal(text).message
    else:
        found = decode_object(text)
        assert found == expected
        assert json.dumps(found) == json.dumps(expected)  # 2 and 2.0 are equal


@pytest.mark.parametrize(
    "text",
    [
        '{"a":1,"a":1}',
        '{"a":1,"a" :2}',
        '{"a":1,"\\u0061":2}',
        '{"a":1,"a":":"}',
        '{"a:":1,"a:":2}',
        '{"a":{"b":1,"b":2}}',
        '{"a":[[{"b":":","b":2}]]}',
        '{"":1,"":2}',
        '{"a b":1,"a b":2}',
        '{"a": " ", "a": ""}',
        '{"a":"","a":", \\"a\\": 1"}',
    ],
)
def test_duplicate_keys_in_every_disguise(text: str) -> None:
    assert "is given twice" in refusal(text).message


@pytest.mark.parametrize("number", [-(2**63), 2**64 - 1, 0, -1, 2**53, 2**53 + 1])
def test_integers_of_64_bits_are_exact(number: int) -> None:
    assert decode_object(f'{{"n":{number}}}') == {"n": number}
    assert decode_object(f'{{"n": [[{number}]]}}') == {"n": [[number]]}


@pytest.mark.parametrize("number", [-(2**63) - 1, 2**64, 10**30, -(10**30), 10**300])
@pytest.mark.parametrize("form", ['{{"":{}}}', '{{"n": {}}}', '{{"a":{{"n":[{}]}}}}'])
def test_larger_integers_are_refused_not_rounded(number: int, form: str) -> None:
    error = refusal(form.format(number))

    assert "does not fit in 64 bits" in error.violations[0].message


@pytest.mark.parametrize("text", ['{"x":1e30}', '{"x":-1.5e300}', '{"x": 123456789012345680000.0}'])
def test_large_floats_are_no_integers(text: str) -> None:
    assert decode_object(text) == json.loads(text)


@pytest.mark.parametrize(
    ("text", "kind"),
    [("[1]", "array"), ("1", "number"), ('"a"', "string"), ("null", "null"), ("true", "boolean")],
)
def test_only_objects_are_arguments(text: str, kind: str) -> None:
    assert refusal(text).message == f"the arguments must be a JSON object, not {kind}"


@pytest.mark.parametrize(
    "text",
    [
        "",
        " ",
        "{",
        '{"a":1,}',
        '{"a":NaN}',
        '{"a":Infinity}',
        "{'a':1}",
        '{"a":01}',
        '{"a":1} x',
        b'{"a":"\xff"}',
    ],
)
def test_what_is_not_json_is_refused(text: bytes | str) -> None:
    error = refusal(text)

    assert error.code == "invalid_input"
    assert error.violations[0].path == "$"
    assert error.hint


def test_a_string_that_is_no_unicode_is_refused() -> None:
    assert "surrogates" in refusal('{"a":"\ud800"}').message


@pytest.mark.parametrize("depth", [300, 1_000, 100_000])
def test_what_is_nested_too_deeply_is_refused(depth: int) -> None:
    assert refusal('{"a":' + "[" * depth + "]" * depth + "}").code == "invalid_input"


def test_text_of_200_levels_is_read() -> None:
    assert decode_object('{"a": ' + "[" * 200 + "]" * 200 + "}")["a"] != []
