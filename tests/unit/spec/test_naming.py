"""Patterns of names."""

from __future__ import annotations

import time
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolcrib.spec import Caller
from toolcrib.spec.naming import fits


@pytest.mark.parametrize(
    ("pattern", "name", "expected"),
    [
        ("delete_*", "delete_x", True),
        ("delete_*", "delete_", True),
        ("delete_*", "Delete_x", False),
        ("*", "", True),
        ("*", "two\nlines", True),
        ("a?c", "abc", True),
        ("a?c", "ac", False),
        ("a[bc]", "ab", False),
        ("a[bc]", "a[bc]", True),
        ("a", "a\n", False),
        ("a.c", "abc", False),
        ("caf\u00e9", "cafe\u0301", True),
        ("cafe\u0301", "caf\u00e9", True),
        ("\uff44elete", "delete", False),
    ],
)
def test_what_fits(pattern: str, name: str, expected: bool) -> None:
    assert fits(pattern, name) is expected


@given(st.text(alphabet="ab[]!^-\\.$(é", max_size=8))
def test_a_pattern_without_stars_is_the_name_itself(name: str) -> None:
    assert fits(name, name)
    assert fits(name, unicodedata.normalize("NFD", name))
    assert not fits(name, name + "x")


def test_a_pattern_of_many_stars_costs_little() -> None:
    started = time.process_time()
    assert not fits("a*" * 100 + "b", "a" * 5_000)
    assert time.process_time() - started < 30


def test_a_tokens_filter_goes_by_the_same_patterns() -> None:
    caller = Caller("ci", frozenset({"invoke"}), ("repo_*", "a[bc]"))
    assert caller.covers("repo_scan")
    assert caller.covers("a[bc]")
    assert not caller.covers("ab")
    assert not caller.covers("Repo_scan")
