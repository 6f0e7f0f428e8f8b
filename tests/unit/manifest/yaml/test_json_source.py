"""JSON files: read strictly, with the place of every value."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolcrib.errors import ManifestError
from toolcrib.manifest import diagnostics_of
from toolcrib.manifest.yaml.json_source import load_json

VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text('abc"\\\n/é', max_size=4), inner, max_size=4)
    ),
    max_leaves=20,
)


def refused(text: str | bytes) -> tuple[str, int, int, str]:
    with pytest.raises(ManifestError) as caught:
        load_json(text.encode() if isinstance(text, str) else text, "t.json")
    finding = diagnostics_of(caught.value)[0]
    return finding.rule, finding.line, finding.column, finding.message


@given(VALUES, st.booleans())
def test_what_is_read_is_what_was_written(value: Any, indent: bool) -> None:
    raw = orjson.dumps(value, option=orjson.OPT_INDENT_2 if indent else None)
    document = load_json(raw, "t.json")
    assert document.data == value
    for path, leaf in leaves(value):
        spot, exact = document._spot(path)
        assert exact
        assert spot is not None
        assert orjson.loads(document.text[spot.start.index : spot.end]) == leaf


def leaves(value: Any, path: tuple[str | int, ...] = ()) -> Iterator[tuple[tuple[str | int, ...], Any]]:
    if isinstance(value, (dict, list)):
        for key, part in value.items() if isinstance(value, dict) else enumerate(value):
            yield from leaves(part, (*path, key))
    else:
        yield path, value


def test_every_value_and_key_has_its_place() -> None:
    document = load_json(
        b'{\n  "a": [1, {"b": "x${y}z"}], // told\n\t"c" : null /* all\n of it */ }', "t.json"
    )
    assert document.data == {"a": [1, {"b": "x${y}z"}], "c": None}
    assert document.locate(()) == (1, 1)
    assert document.locate(("a",)) == (2, 8)
    assert document.locate(("a",), key=True) == (2, 3)
    assert document.locate(("a", 1, "b")) == (2, 18)
    assert document.locate_text(("a", 1, "b"), "${y}") == (2, 20)
    assert document.locate(("c",), key=True) == (3, 2)
    assert document.locate(("a", 1, "gone")) == (2, 12)


@pytest.mark.parametrize(
    ("text", "rule", "line", "column", "expected"),
    [
        ("{\n 'a': 1}", "json-syntax", 2, 2, "expected a string key"),
        ('{"a": 1,}', "json-syntax", 1, 8, "trailing comma"),
        ('{"a" 1}', "json-syntax", 1, 6, "expected ':'"),
        ("[1 2]", "json-syntax", 1, 4, "expected ',' or ']'"),
        ("[1\n", "json-syntax", 2, 1, "unexpected end of data"),
        ("[1}", "json-syntax", 1, 3, "expected ',' or ']'"),
        ("]", "json-syntax", 1, 1, "expected a JSON value"),
        ('{"a": 1}\n{"b": 2}', "json-syntax", 2, 1, "unexpected content after document"),
        ('{"a": 1, "b": 2,\n "a": 3}', "yaml-duplicate-key", 2, 2, "`a` is used twice in this object"),
        ('{"b": /* "a" */ "a", "c": [{"a": 1, "\\u0061": 2}]}', "yaml-duplicate-key", 1, 37, "twice"),
        ("{1: 2}", "json-syntax", 1, 2, "expected a string key"),
        ('["a\nb"]', "json-syntax", 1, 4, "unexpected control character"),
        (r'["\ud800"]', "json-syntax", 1, 3, "no low surrogate"),
        (r'["\q"]', "json-syntax", 1, 3, "invalid escaped sequence"),
        ('["18446744073709551616", 18446744073709551616]', "yaml-number", 1, 26, "beyond 64 bits"),
        ("[1e999]", "json-syntax", 1, 2, "number is infinity"),
        ("[" + "9" * 5000 + "]", "json-syntax", 1, 2, "number is infinity"),
        ("[NaN]", "json-syntax", 1, 2, "expected a JSON value"),
        ("[01]", "json-syntax", 1, 2, "leading zero"),
        ('["a\tb"]', "json-syntax", 1, 4, "unexpected control character"),
        ("[True]", "json-syntax", 1, 2, "expected a JSON value"),
        ("[1] /* on and on", "json-syntax", 1, 5, "never closed"),
        ("// nothing", "json-syntax", 1, 1, "has no value"),
        (b'{"a": "\xff"}', "encoding", 1, 8, "is not UTF-8"),
        (b"\xff\xfe{\x00}\x00", "encoding", 1, 1, "is not UTF-8"),
        ("[" * 128 + "[]" + "]" * 128, "yaml-depth", 1, 1, "more than 128 deep"),
        ("[" * 200_000, "json-syntax", 1, 1026, "depth limit exceeded"),
        ('{"a":' * 200_000, "json-syntax", 1, 5122, "depth limit exceeded"),
        (b" " * (1 << 20) + b"1", "too-large", 1, 1, "larger than 1 MiB"),
    ],
)  # fmt: skip
def test_what_is_not_json_is_reported_at_its_place(
    text: str | bytes, rule: str, line: int, column: int, expected: str
) -> None:
    found = refused(text)
    assert found[:3] == (rule, line, column)
    assert expected in found[3]


def test_a_byte_order_mark_and_windows_lines_are_fine() -> None:
    document = load_json(b'\xef\xbb\xbf{\r\n"a": true\r\n}', "t.json")
    assert document.data == {"a": True}
    assert document.locate(("a",), key=True) == (2, 1)


@pytest.mark.parametrize(
    "text",
    [
        "[" * 120 + ",".join(["1"] * 500_000) + "]" * 120,
        '["' + "a" * 1_000_000 + '"]',
        '["' + "\\n" * 500_000 + '"]',
        '["' + "\\" * 1_000_001,
        "/*" * 500_000,
        "//" * 500_000,
        " " * 1_000_000,
        "{" + ",".join(f'"{at}":0' for at in range(90_000)) + "}",
    ],
    ids=["wide-and-deep", "scalar", "escapes", "backslashes", "comments", "slashes", "blanks", "keys"],
)
@pytest.mark.timeout(30)
def test_a_hostile_file_costs_little_time(text: str) -> None:
    started = time.process_time()
    with contextlib.suppress(ManifestError):
        load_json(text.encode(), "t.json")
    assert time.process_time() - started < 10
