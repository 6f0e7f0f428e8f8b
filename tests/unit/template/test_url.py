"""A URL template: what the author wrote stays his, what a caller gives stays a value."""

from __future__ import annotations

from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolcrib.errors import InvalidInput, ManifestError
from toolcrib.template import (
    Namespaces,
    Values,
    parse,
    parse_text,
    render_argv,
    render_header,
    render_path,
    render_value,
)
from toolcrib.template.url import parse_query, parse_url, render_url

NAMES = Namespaces(frozenset({"a", "b", "host"}), frozenset({"KEY"}))
texts = st.text(max_size=40).filter(lambda text: all(not 0xD800 <= ord(char) < 0xE000 for char in text))


def url(source: str, *, hosts: bool = False, query: dict[str, Any] | None = None, **arguments: Any) -> str:
    parsed = parse_url(source, NAMES, host_placeholders=hosts)
    return render_url(parsed, Values(arguments, secrets={"KEY": "k"}), parse_query(query or {}, NAMES))


@pytest.mark.parametrize(
    ("source", "result"),
    [
        ("https://x.org", "https://x.org/"),
        ("HTTPS://X.org:443/", "https://x.org/"),
        ("https://x.org:8443/a/b/", "https://x.org:8443/a/b/"),
        ("http://[::1]:80/a", "http://[::1]/a"),
        ("https://x.org/a%20b/ü?q=é ü&flag&z=%41", "https://x.org/a%20b/%C3%BC?q=%C3%A9%20%C3%BC&flag&z=%41"),
        ("https://x.org/100%/x", "https://x.org/100%25/x"),
        ("https://x.org?q=${a}", "https://x.org/?q=1"),
        ("https://x.org/${a}.json?k=${KEY}&n=${b}", "https://x.org/1.json?k=k"),
    ],
)
def test_urls_come_out_encoded(source: str, result: str) -> None:
    assert url(source, a=1) == result


def test_query_entries_are_scalars_or_lists_of_them() -> None:
    query = {"q": "${a}", "n": 5, "yes": True, "tag": ["x", "${a}", "${b}"], "gone": "${b}", "no": None}
    assert url("https://x.org/?own=1", a="p&q", query=query) == (
        "https://x.org/?own=1&q=p%26q&n=5&yes=true&tag=x&tag=p%26q"
    )


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("ftp://x.org", "http://"),
        ("x.org/a", "http://"),
        ("${a}://x.org", "scheme"),
        ("http${a}://x.org", "scheme"),
        ("https://${host}/", "permissions.network.allow"),
        ("https://a.${host}.org/", "permissions.network.allow"),
        ("https://x.org:${a}/", "port"),
        ("https://u:p@x.org/", "user name"),
        ("https://${a}@x.org/", "user name"),
        ("https://x.org/#top", "fragment"),
        ("https:///x", "no host"),
        ("https://x org/", "no host"),
        ("https://x.org\\@evil.org/", "no host|user name"),
        ("https://x.org:99999/", "port"),
        ("https://x.org:/", "port"),
        ("https://x.org/?${a}=1", "name of a query"),
        ("https://x.org/?${a}", "name of a query"),
        ("https://x.org/${nope}", "neither"),
    ],
)
def test_bad_urls_are_refused_when_parsed(source: str, message: str) -> None:
    with pytest.raises(ManifestError, match=message):
        parse_url(source, NAMES)


@pytest.mark.parametrize(
    "value", ["evil.org/x", "a@b", "a:1", "", "a..b", ".a", "a#", "a?x", "[::1]", "a b", None]
)
def test_a_value_in_the_host_is_a_name_and_nothing_else(value: Any) -> None:
    assert url("https://${host}.x.org/", hosts=True, host="eu-1") == "https://eu-1.x.org/"
    with pytest.raises(InvalidInput):
        url("https://${host}.x.org/", hosts=True, host=value)


@pytest.mark.parametrize("bad", [{"${a}": 1}, {"a": {"b": 1}}, {"a": [[1]]}])
def test_bad_query_mappings_are_refused(bad: dict[str, Any]) -> None:
    with pytest.raises(ManifestError):
        parse_query(bad, NAMES)


@given(texts, texts)
def test_no_value_changes_the_structure_of_a_url(a: str, b: str) -> None:
    try:
        made = url("https://x.org/v1/${a}/end?q=${b}&fixed=1", a=a, b=b, query={"k": "${b}"})
    except InvalidInput:
        assert a in ("", ".", "..")
        return
    parts = urlsplit(made)
    assert (parts.scheme, parts.netloc, parts.fragment) == ("https", "x.org", "")
    assert [unquote(segment) for segment in parts.path.split("/")] == ["", "v1", a, "end"]
    assert parse_qsl(parts.query.replace("%20", "+"), keep_blank_values=True) == [
        ("q", b),
        ("fixed", "1"),
        ("k", b),
    ]


@given(st.dictionaries(st.sampled_from(["a", "b"]), texts))
def test_no_value_adds_a_key_to_a_json_body(arguments: dict[str, str]) -> None:
    tree = parse({"x": "${a}", "y": {"z": "<${b}>"}, "l": ["${a}"]}, NAMES)
    try:
        body = render_value(tree, Values(arguments))
    except InvalidInput:
        assert "b" not in arguments
        return
    assert body["y"] == {"z": f"<{arguments['b']}>"}
    assert set(body) == {"y", "l"} | ({"x"} if "a" in arguments else set())
    assert body["l"] == ([arguments["a"]] if "a" in arguments else [])


@given(texts)
def test_no_value_adds_a_header(value: str) -> None:
    try:
        header = render_header(parse_text("v ${a}", NAMES), Values({"a": value}))
    except InvalidInput:
        assert any(char < " " or char == "\x7f" for char in value)
        return
    assert header is not None
    assert not set(header) & {"\r", "\n", "\0"}
    assert header == f"v {value}"


@given(texts)
def test_no_value_adds_an_argument_or_an_option(value: str) -> None:
    template = [parse_text(element, NAMES) for element in ("${a}", "--x=${a}", "--", "${a}")]
    try:
        made = render_argv(template, Values({"a": value}))
    except InvalidInput:
        assert value.startswith("-") or "\0" in value
        return
    assert made == [value, f"--x={value}", "--", value]


@given(texts)
def test_no_value_leaves_its_place_in_a_path(value: str) -> None:
    try:
        made = render_path(parse_text("root/${a}/file", NAMES), Values({"a": value}))
    except InvalidInput:
        assert "/" in value or "\0" in value or value in ("", ".", "..")
        return
    assert made.split("/") == ["root", value, "file"]
