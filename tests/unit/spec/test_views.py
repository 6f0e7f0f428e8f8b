"""How results read."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolcrib.errors import (
    ApprovalRequired,
    Cancelled,
    InvalidInput,
    TimedOut,
    ToolCancelled,
    ToolcribError,
    ToolFailed,
    ToolNotFound,
    Violation,
)
from toolcrib.spec import Result
from toolcrib.spec.views import cut_text, error_text, text_view, value_text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("as it is\n", "as it is\n"),
        (3, "3"),
        (2.5, "2.5"),
        (True, "true"),
        (None, "null"),
        ({"ä": [1, "x"]}, '{"ä":[1,"x"]}'),
        ([], "[]"),
    ],
)
def test_a_value_reads_as_itself_or_as_compact_json(value: Any, text: str) -> None:
    assert value_text(value) == text
    assert text_view(Result("ok", value)) == text


def test_what_is_no_json_still_reads() -> None:
    circle: list[Any] = []
    circle.append(circle)
    assert value_text(circle) == "[[...]]"
    assert value_text({(1, 2): 3}) == "{(1, 2): 3}"
    assert value_text({"path": object}) == """{"path":"<class 'object'>"}"""


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (ToolFailed("disk full"), "Tool call failed: disk full"),
        (TimedOut("took longer than 5 ms"), "Tool call failed: took longer than 5 ms"),
        (InvalidInput("$.a is required"), "Invalid input: $.a is required"),
        (
            ToolNotFound("no tool 'ad'", hint="Did you mean add?"),
            "Invalid input: no tool 'ad'\nDid you mean add?",
        ),
        (ToolCancelled("gave up"), "Cancelled: gave up"),
        (Cancelled(), "Cancelled: The caller cancelled the call."),
    ],
)
def test_an_error_begins_with_what_kind_it_is(error: ToolcribError, text: str) -> None:
    assert text_view(Result("error", error=error)) == text


def test_every_violation_is_told_and_none_twice() -> None:
    error = InvalidInput(
        "$.a is required; $.b must be at least 1",
        violations=[Violation("$.a", "is required"), Violation("$.c", "is not one of: x, y")],
        hint="Mend it.",
    )
    assert error_text(error).splitlines() == [
        "Invalid input: $.a is required; $.b must be at least 1",
        "- $.c: is not one of: x, y",
        "Mend it.",
    ]


def test_a_pending_call_says_that_a_person_must_approve() -> None:
    assert text_view(Result("pending", call_id="c1")).startswith("Tool call failed: the call waits for")
    assert "ask Ann" in text_view(Result("pending", error=ApprovalRequired("ask Ann")))


def test_cut_text_says_what_is_missing_and_how_to_read_on() -> None:
    text = text_view(Result("ok", "x" * 60_000))
    head, last = text.rsplit("\n", 1)
    assert head == "x" * 50_000
    assert "the first 50,000 of 60,000 bytes; 10,000 are missing" in last
    assert "To read on" in last


def test_text_at_the_limit_is_not_cut() -> None:
    assert text_view(Result("ok", "é" * 25_000)) == "é" * 25_000
    assert "25,001" not in text_view(Result("ok", "é" * 25_001)).split("[cut")[0]


@given(st.text(max_size=200), st.integers(0, 300))
def test_a_cut_never_breaks_a_character(text: str, limit: int) -> None:
    cut = cut_text(text, limit)
    head = cut.rsplit("\n[cut", 1)[0]
    assert text.startswith(head)
    assert len(head.encode()) <= limit or cut == text


def test_a_long_error_is_cut_too() -> None:
    assert "[cut:" in text_view(Result("error", error=ToolFailed("x" * 99)), limit=50)
