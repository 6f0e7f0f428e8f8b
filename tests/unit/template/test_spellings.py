"""Placeholders in Vega's spelling, defaults and conditions, in every position."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolcrib.errors import InvalidInput, ManifestError
from toolcrib.spec import ABSENT, Choice, Spelling
from toolcrib.template import (
    Namespaces,
    Values,
    names_in,
    parse,
    parse_conditional,
    parse_text,
    problems,
    render_argv,
    render_env,
    render_header,
    render_path,
    render_value,
)
from toolcrib.template.url import parse_query, parse_url, render_query, render_url

VEGA = Namespaces(frozenset({"x", "y", "a", "my-name"}), frozenset({"KEY"}), spelling=Spelling.DOUBLE_BRACE)
PLAIN = Namespaces(frozenset({"x"}), frozenset({"KEY"}))


def value(text: Any, names: Namespaces = VEGA, /, **values: Any) -> Any:
    return render_value(parse(text, names), Values(values, secrets={"KEY": "s3"}, context={"run_id": "r1"}))


@pytest.mark.parametrize(
    ("text", "came"),
    [
        ("{{x}}", [1]),
        ("{{ .x }}", [1]),
        ("<{{y}}>", "<b>"),
        ("{{my-name}}", "m"),
        ("{{a.b[0].c}} ${a.b[0].c}", "7 7"),
        ("{{a.b[0].c}}", 7),
        ("${KEY} ${run_id} ${x[0]}", "s3 r1 1"),
        ("{{a.none | default:10}}", 10),
        ("{{a.none|default: 'ten'}}", "ten"),
        ("${a.none | default:true}", True),
        ("<{{a.none | default:some text}}>", "<some text>"),
        ("{{y | default:10}}", "b"),
        ("$${y} {{y}}", "${y} b"),
        ("${{y}}", "$b"),
        ("{{if y}}{{y}}{{else}}none{{end}}!", "b!"),
        ("{{if a.none}}1{{else if .x}}2{{else}}3{{end}}", "2"),
        ("{{if y}}{{if a.none}}1{{else}}2{{end}}{{end}}", "2"),
        ("{{if a.none}}1{{end}}", ""),
        ("a } b }} c { d", "a } b }} c { d"),
    ],
)
def test_spellings_of_one_tree(text: str, came: Any) -> None:
    named: dict[str, Any] = {"x": [1], "y": "b", "a": {"b": [{"c": 7}]}, "my-name": "m"}
    assert value(text, VEGA, **named) == came


def test_braces_are_text_where_the_dialect_has_none() -> None:
    assert value("{{x}} {{if x}}", PLAIN) == "{{x}} {{if x}}"
    assert value("${x | default:3}", PLAIN) == 3
    assert value("${x|default:3}", PLAIN, x=None) == 3


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("{{z}}", "`z` is not a parameter"),
        ("{{KEY}}", "`KEY` is not a parameter"),
        ("{{run_id}}", "`run_id` is not a parameter"),
        ("{{}}", "no name"),
        ("{{x", "not closed"),
        ("{{.}}", "`.` is not supported"),
        ("{{range x}}", "`range x`"),
        ("{{with x}}", "`with x`"),
        ("{{ eq x y }}", "`eq x y`"),
        ("{{printf `%s` x}}", "printf"),
        ("{{template `t`}}", "template"),
        ("{{/* c */}}", "`/* c */`"),
        ("{{- x}}", "`- x`"),
        ("{{x -}}", "`x -`"),
        ("{{$v := x}}", "`$v := x`"),
        ('{{"{{"}}', "is not supported"),
        ("{{x | upper}}", "`upper` is not a filter"),
        ("{{x | default 3}}", "needs a colon"),
        ("{{x y}}", "not the name of an argument"),
        ("{{if x}}", "not ended"),
        ("{{if x}}a" * 51 + "{{end}}" * 51, "more than 50"),
        ("{{if not x}}a{{end}}", "`not x`"),
        ("{{if z}}a{{end}}", "`z`"),
        ("{{end}}", "without"),
        ("{{else}}", "without"),
        ("{{if x}}{{else}}{{else}}{{end}}", "after"),
        ("{{if x}}${nope}{{end}}", "`nope`"),
        ({"{{x}}": 1}, "in a key"),
        ({"a{{if x}}b{{end}}": 1}, "in a key"),
    ],
)
def test_what_is_no_template_is_refused_by_name(text: Any, expected: str) -> None:
    found = problems(text, VEGA)
    assert found
    assert expected in found[0].message
    with pytest.raises(ManifestError):
        parse(text, VEGA)


def test_names_in_too_many_conditions_are_no_fault() -> None:
    assert names_in("${x}" + "{{if y}}" * 500 + "{{end}}" * 500, Spelling.DOUBLE_BRACE)


@pytest.mark.parametrize("empty", [None, False, 0, "", [], {}])
def test_a_test_fails_for_what_is_empty(empty: Any) -> None:
    assert value("{{if x}}1{{else}}2{{end}}", x=empty) == "2"
    assert value("{{if x}}1{{else}}2{{end}}", x="0") == "1"


def test_a_choice_that_gives_nothing_drops_its_entry() -> None:
    choice = Choice((("x", "{{x}}"), ("y", ABSENT), (None, 3)))
    assert value({"k": choice, "l": [choice, 1]}, x=5) == {"k": 5, "l": [5, 1]}
    assert value({"k": choice, "l": [choice, 1]}, y=1) == {"l": [1]}
    assert value({"k": choice, "l": [choice, 1]}) == {"k": 3, "l": [3, 1]}
    header = parse_conditional(Choice((("x", "a {{x}}"), (None, ABSENT))), VEGA)
    assert render_header(header, Values({"x": "b"})) == "a b"
    assert render_header(header, Values()) is None
    assert render_env(header, Values()) is None
    assert render_argv([header], Values()) == []


def test_no_condition_is_allowed_in_a_url() -> None:
    with pytest.raises(ManifestError, match="is not allowed here"):
        parse_url("https://a.example/{{if x}}b{{end}}", VEGA)
    with pytest.raises(ManifestError, match="is not allowed here"):
        parse_text("{{if x}}b{{end}}", VEGA)


@given(st.text(max_size=30))
def test_no_value_becomes_structure(text: str) -> None:
    values = Values({"x": text, "y": text})

    def or_refused(render: Any) -> Any:
        try:
            return render()
        except InvalidInput:
            return None

    assert value({"k": "{{x}}", "t": "<{{if x}}{{x}}{{end}}>"}, x=text) == {"k": text, "t": f"<{text}>"}
    url = or_refused(lambda: render_url(parse_url("https://a.example/u/{{x}}/e", VEGA), values))
    assert url is None or (url.startswith("https://a.example/u/") and url.count("/") == 5)
    assert url is None or not {"?", "#", " ", "\n"} & set(url)
    query = or_refused(lambda: render_query(parse_query({"q": "{{if x}}{{x}}{{end}}", "z": 1}, VEGA), values))
    assert query is None or (query.count("&") == 1 and query.count("=") == 2)
    header = or_refused(lambda: render_header(parse_conditional("{{if x}}{{x}}{{end}}", VEGA), values))
    assert header is None or not {"\r", "\n", "\0"} & set(header)
    argv = or_refused(lambda: render_argv([parse_conditional("{{x}}{{if y}}{{y}}{{end}}", VEGA)], values))
    assert argv is None or (argv == [text * 2] and not argv[0].startswith("-"))
    path = or_refused(lambda: render_path(parse_conditional("d/{{x}}.txt", VEGA), values))
    assert path is None or (path.count("/") == 1 and path == f"d/{text}.txt")
