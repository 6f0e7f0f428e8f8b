"""Every position writes a value in its own way, and none lets it become structure."""

from __future__ import annotations

from typing import Any

import pytest

from toolcrib.errors import InvalidInput, UnavailableError
from toolcrib.template import (
    MISSING,
    Namespaces,
    Values,
    parse,
    parse_text,
    render_argv,
    render_env,
    render_header,
    render_path,
    render_text,
    render_value,
)
from toolcrib.template.render import render_path_segment, render_query_value

NAMES = Namespaces(frozenset({"a", "b", "c"}), frozenset({"KEY"}), frozenset({"HOME"}))


def text(source: str) -> Any:
    return parse_text(source, NAMES)


def argv(elements: list[str], **arguments: Any) -> list[str]:
    return render_argv([text(element) for element in elements], Values(arguments))


@pytest.mark.parametrize(
    "value", [1, 0, True, False, None, 1.5, "x", "", [1, "a"], {"k": [None]}, "${b}", 2**70]
)
def test_a_lone_reference_keeps_its_json_type(value: Any) -> None:
    rendered = render_value(parse({"x": "${a}"}, NAMES), Values({"a": value, "b": "never"}))
    assert rendered == {"x": value}
    assert type(rendered["x"]) is type(value)


def test_absent_values_drop_their_key_or_item() -> None:
    tree = parse({"a": "${a}", "b": ["${b}", 1, "${c}"], "n": {"c": "${c}"}, "deep": "${a.x}"}, NAMES)
    assert render_value(tree, Values({"a": 1})) == {"a": 1, "b": [1], "n": {}}
    assert render_value(parse("${a}", NAMES), Values()) is MISSING


def test_inside_text_a_value_is_written_as_text() -> None:
    tree = parse("${a}-${b}-${c}", NAMES)
    assert (
        render_value(tree, Values({"a": True, "b": 1e22, "c": 1e-7}))
        == "true-10000000000000000000000-0.0000001"
    )


@pytest.mark.parametrize("value", [[1], {"a": 1}, float("nan"), float("inf"), "\ud800"])
def test_what_has_no_plain_text_is_invalid_input(value: Any) -> None:
    with pytest.raises(InvalidInput) as caught:
        render_value(parse("x ${a}", NAMES), Values({"a": value}))
    assert [violation.path for violation in caught.value.violations] == ["$.a"]


def test_a_number_of_too_many_digits_is_invalid_input() -> None:
    with pytest.raises(InvalidInput, match="digits"):
        render_value(parse("x ${a}", NAMES), Values({"a": 10**5000}))


def test_an_absent_value_inside_text_is_invalid_input() -> None:
    with pytest.raises(InvalidInput, match="not given"):
        render_value(parse({"x": "Hello ${a}"}, NAMES), Values())


def test_whole_numbers_are_never_written_in_exponent_form() -> None:
    rendered = render_value(parse({"x": "${a}"}, NAMES), Values({"a": [1e22, 2.5, {"y": 1e16}]}))
    assert [type(item) for item in rendered["x"]] == [int, float, dict]
    assert rendered["x"][0] == 10**22


def test_a_value_is_never_expanded_again() -> None:
    values = Values({"a": "${KEY} ${b}", "b": "x"}, secrets={"KEY": "s3cret"})
    assert render_value(parse({"x": "${a}", "y": "<${a}>"}, NAMES), values) == {
        "x": "${KEY} ${b}",
        "y": "<${KEY} ${b}>",
    }


@pytest.mark.parametrize(
    ("value", "segment"),
    [
        ("../admin?x=", "u-..%2Fadmin%3Fx%3D"),
        ("a b", "u-a%20b"),
        ("é/ü", "u-%C3%A9%2F%C3%BC"),
        (5, "u-5"),
        (False, "u-false"),
        ("%2e%2e", "u-%252e%252e"),
        (";v=1", "u-%3Bv%3D1"),
    ],
)
def test_a_path_segment_is_encoded_whole(value: Any, segment: str) -> None:
    assert render_path_segment(text("u-${a}"), Values({"a": value})) == segment


@pytest.mark.parametrize(
    ("source", "value"),
    [("${a}", ".."), ("${a}", "."), ("${a}", ""), (".${a}", "."), ("%2e${a}", "."), ("${a}", None)],
)
def test_a_path_segment_cannot_traverse_or_vanish(source: str, value: Any) -> None:
    with pytest.raises(InvalidInput):
        render_path_segment(text(source), Values({"a": value}))


def test_a_query_value_cannot_add_entries_and_is_dropped_when_absent() -> None:
    assert render_query_value(text("${a}"), Values({"a": "1&admin=1#x+y"})) == "1%26admin%3D1%23x%2By"
    assert render_query_value(text("x${a}"), Values()) is None
    assert render_query_value(text("${a}"), Values({"a": None})) is None


@pytest.mark.parametrize("bad", ["a\r\nX-Evil: 1", "a\nb", "a\rb", "a\0b", "a\x7fb", "\x1b[0m"])
def test_a_header_refuses_control_characters(bad: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        render_header(text("Bearer ${a}"), Values({"a": bad}))
    assert bad not in str(caught.value)


def test_a_header_is_dropped_when_a_value_is_absent() -> None:
    assert render_header(text("Bearer ${a}"), Values()) is None
    assert render_header(text("Bearer ${a}"), Values({"a": "x\ty é"})) == "Bearer x\ty é"


def test_a_bad_secret_is_not_the_callers_fault_and_is_not_shown() -> None:
    with pytest.raises(UnavailableError) as caught:
        render_header(text("Bearer ${KEY}"), Values(secrets={"KEY": "s3cret\n"}))
    assert "KEY" in caught.value.message
    assert "s3cret" not in str(caught.value.as_dict())


@pytest.mark.parametrize("value", ["a b", "$(id)", "`id`; rm -rf /", "a'b\"c", "*", "", "x\ny"])
def test_an_argv_element_is_always_one_element(value: str) -> None:
    assert argv(["run", "${a}", "--x=${a}"], a=value) == ["run", value, f"--x={value}"]


def test_a_lone_absent_argv_element_is_dropped() -> None:
    assert argv(["x", "${a}", "${b}"], b=3) == ["x", "3"]
    with pytest.raises(InvalidInput):
        argv(["--x=${a}"])


@pytest.mark.parametrize("elements", [["${a}"], ["x", "${a}.txt"], ["${b}", "${a}"]])
def test_a_value_never_becomes_an_option(elements: list[str]) -> None:
    with pytest.raises(InvalidInput, match="option"):
        argv(elements, a="-rf", b="x")
    with pytest.raises(InvalidInput, match="option"):
        argv(["${a}"], a=-5)


def test_after_two_dashes_a_value_may_begin_with_a_dash() -> None:
    assert argv(["--", "${a}"], a="-rf") == ["--", "-rf"]
    with pytest.raises(InvalidInput):
        argv(["${b}", "${a}"], a="-rf", b="--")
    with pytest.raises(InvalidInput):
        argv(["-${b}", "${a}"], a="-rf", b="-")


@pytest.mark.parametrize("render", [render_env, render_path, lambda t, v: render_argv([t], v)])
def test_nul_is_refused(render: Any) -> None:
    with pytest.raises(InvalidInput, match="NUL"):
        render(text("${a}"), Values({"a": "a\0b"}))


def test_an_environment_variable_is_dropped_when_a_value_is_absent() -> None:
    assert render_env(text("${a}:${HOME}"), Values({"a": 1}, env={"HOME": "/h"})) == "1:/h"
    assert render_env(text("${a}:${HOME}"), Values({"a": 1})) is None


@pytest.mark.parametrize("value", ["../x", "/etc/passwd", "a/b"])
def test_a_lone_value_may_be_any_path_but_inside_one_it_is_one_name(value: str) -> None:
    assert render_path(text("${a}"), Values({"a": value})) == value
    with pytest.raises(InvalidInput):
        render_path(text("data/${a}"), Values({"a": value}))


@pytest.mark.parametrize(
    ("source", "value"), [("d/${a}", ".."), ("d/${a}/x", "."), (".${a}/x", "."), ("${a}", "")]
)
def test_a_value_in_a_path_cannot_be_a_dotted_or_empty_name(source: str, value: str) -> None:
    with pytest.raises(InvalidInput):
        render_path(text(source), Values({"a": value}))


def test_a_path_is_joined_from_its_names() -> None:
    assert render_path(text("../d/${a}-${b}.json"), Values({"a": "x", "b": 2})) == "../d/x-2.json"
    with pytest.raises(InvalidInput, match="not given"):
        render_path(text("${a}"), Values())


def test_text_is_plain() -> None:
    assert render_text(text("${a}/${b}"), Values({"a": "<&>", "b": "\n"})) == "<&>/\n"
    assert render_text(text("${a}"), Values()) is MISSING
