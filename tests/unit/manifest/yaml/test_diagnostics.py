"""Findings as a person sees them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from toolcrib.errors import ManifestError
from toolcrib.manifest import Diagnostic, diagnostics_of, failure, load, report
from toolcrib.spec.naming import nearest, printable


def finding(line: str, column: int, **others: Any) -> Diagnostic:
    return Diagnostic("tool.yml", 3, column, "error", "name", "no good", source=line, **others)


def test_the_line_the_caret_and_the_mend_stand_below_the_message() -> None:
    assert finding("  nmae: x", 3, hint="did you mean `name`?").render().splitlines() == [
        "tool.yml:3:3: error[name]: no good",
        "    nmae: x",
        "    ^",
        "  hint: did you mean `name`?",
    ]


@pytest.mark.parametrize(
    ("line", "column", "caret"),
    [("名前: x", 5, 8), ("e\u0301: x", 5, 5), ("\tx: 1", 2, 3), ("x", 40, 3)],
)
def test_the_caret_is_below_its_sign_whatever_its_width(line: str, column: int, caret: int) -> None:
    assert finding(line, column).render().splitlines()[2].index("^") == caret


def test_a_long_line_is_cut_round_the_place() -> None:
    shown = finding("a" * 500 + "X" + "b" * 500, 501).render().splitlines()
    assert len(shown[1]) < 120
    assert shown[1][shown[2].index("^")] == "X"
    assert shown[1].strip().startswith("…")
    assert shown[1].endswith("…")


def test_nothing_in_a_file_or_its_name_can_steer_the_terminal() -> None:
    evil = "\x1b[31m\u202e\x07\r\u200b"
    shown = Diagnostic(f"a{evil}", 1, 1, "error", "name", evil, evil, source=evil + "x").render()
    assert not {"\x1b", "\u202e", "\x07", "\r", "\u200b"} & set(shown)
    assert printable("ordinary ü 名") == "ordinary ü 名"


def test_findings_survive_the_way_through_an_error_and_json() -> None:
    found = (finding("x", 1), finding("y", 1, hint="do this", where="$.a"))
    error = failure(found)
    assert diagnostics_of(error) == found
    assert json.loads(json.dumps(error.as_dict()))["details"]["diagnostics"][1]["where"] == "$.a"
    assert error.message.endswith("and 1 more")
    assert diagnostics_of(ManifestError("another")) == ()


def test_the_first_error_leads_even_after_warnings() -> None:
    warning = Diagnostic("tool.yml", 1, 1, "warning", "grant", "wide")
    assert failure([warning, finding("x", 1)]).message.startswith("tool.yml:3:1: error[name]")
    assert report([warning, finding("x", 1)])["warnings"] == 1


@pytest.mark.parametrize(
    ("name", "near"), [("nmae", "name"), ("Name", "name"), ("on-violation", "on_violation"), ("xyz", None)]
)
def test_the_nearest_name(name: str, near: str | None) -> None:
    assert nearest(name, ["name", "on_violation", "tags"]) == near
    assert nearest("x" * 100_000, ["name"]) is None


@pytest.mark.parametrize("text", ["- " + "[" * 200_000, "a: " + "{a: " * 200_000])
def test_a_place_far_to_the_right_is_shown(text: str) -> None:
    with pytest.raises(ManifestError) as caught:
        load(text.encode(), "t.yml")
    (found,) = diagnostics_of(caught.value)
    assert found.column > 5_000
    _, line, caret, *_ = found.render().splitlines()
    assert line[caret.index("^")] in "[{"
    assert len(line) < 200
