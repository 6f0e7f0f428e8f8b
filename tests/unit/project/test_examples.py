"""What an example's expected output says of a value."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolcrib.project.authoring.examples import matches

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text('ab. "\\{}[]', max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("ab", max_size=2), inner, max_size=3),
    max_leaves=8,
)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ({"a": 1, "b": [2]}, '{"b": [2],\n "a": 1}\n'),
        ([{"t": "x", "d": "y"}, 3, 4], '[{"t": "x", "d": "..."}, ...]'),
        ([{"t": "x"}], '[{"t": "x"}, ...]'),
        ([], "[...]"),
        ([1, 2], "[...]"),
        ({"a": {"deep": 1}}, '{"a": ...}'),
        ({"ts": "1234.5", "ok": True}, '{"ok": true, "ts": "...5"}'),
        ("Scan complete.\nMatches found: 2\n", "Scan complete.\r\nMatches found: 2\n"),
        ("Scan complete.\nMatches found: 17", "Scan complete.\nMatches found: ..."),
        ("a 1 b 2 c", "a ... b ... c"),
        ("anything", "..."),
        (None, "null"),
        (1.0, "1"),
        ('{"a": 1}', '{"a": 1}'),
        ("two ... dots", "two ... dots"),
    ],
)
def test_it_fits(value: Any, expected: str) -> None:
    assert matches(value, expected)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ({"a": 1}, '{"a": 2}'),
        ({"a": 1, "b": 2}, '{"a": 1}'),
        ({"a": 1}, '{"a": 1, "b": ...}'),
        ([1], "[1, 2, ...]"),
        ([1, 2], "[1]"),
        (True, "1"),
        (1, "true"),
        (None, "0"),
        ("Matches found: 2", "Matches found: 3"),
        ("a b", "a ... b"),
        ("aba", "ab...ba"),
        ("a c b", "a b ..."),
        ({}, "[]"),
        ("text", '{"a": 1}'),
    ],
)
def test_it_does_not_fit(value: Any, expected: str) -> None:
    assert not matches(value, expected)


def test_a_long_text_and_a_long_wildcard_take_no_long_time() -> None:
    assert not matches("a" * 4_000_000, "..." + "a" * 100_000 + "b...")


@given(JSON)
def test_a_value_always_fits_itself(value: Any) -> None:
    assert matches(value, json.dumps(value, indent=1))


@given(JSON, JSON)
def test_two_values_fit_only_when_they_are_the_same(one: Any, other: Any) -> None:
    text = json.dumps(other)
    if "..." not in text and not isinstance(one, str):
        assert matches(one, text) == (json.dumps(one, sort_keys=True) == json.dumps(other, sort_keys=True))


def test_many_wildcards_are_not_slow() -> None:
    started = time.process_time()
    assert not matches("a" * 100_000, "...".join(["a"] * 2_000) + "b")
    assert time.process_time() - started < 10
