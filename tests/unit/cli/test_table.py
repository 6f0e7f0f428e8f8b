"""Tables for pipes, terminals, and narrow terminals."""

from __future__ import annotations

import pytest

from toolcrib.cli.table import format_table, wrap
from toolcrib.spec.naming import cell_width

ROWS = [
    ("scan", "command", "Lists every TODO below a folder, then how many there are."),
    ("名前", "http", "短い"),
]
HEADINGS = ("NAME", "KIND", "DESCRIPTION")


def test_a_pipe_gets_one_whole_line_for_each() -> None:
    assert format_table(HEADINGS, ROWS, None) == [
        "NAME  KIND     DESCRIPTION",
        "scan  command  Lists every TODO below a folder, then how many there are.",
        "名前  http     短い",
    ]


def test_a_terminal_gets_the_last_column_wrapped() -> None:
    assert format_table(HEADINGS, ROWS, 40)[1:4] == [
        "scan  command  Lists every TODO below a",
        "               folder, then how many",
        "               there are.",
    ]


@pytest.mark.parametrize("width", [1, 2, 10, 20, 38])
def test_a_narrow_one_gets_them_one_below_the_other(width: int) -> None:
    lines = format_table(HEADINGS, ROWS, width)
    assert max(map(cell_width, lines)) <= max(width, 4)
    assert "".join(lines).replace(" ", "").startswith("scan(kindcommand)ListseveryTODO")
    assert (
        format_table(["NAME", "", "DETAIL"], [["user namespace", "ok", "works"]], 20)[0]
        == "user namespace (ok)"
    )


def test_nothing_steers_the_terminal() -> None:
    lines = format_table(("A", "B"), [("x\x1b[2J", "a\nb\tc\u202e")], None)
    assert lines[1] == "x\ufffd[2J  a b c\ufffd"


def test_long_words_are_broken_and_wide_ones_counted() -> None:
    assert wrap("abcdefgh ij", 3) == ["abc", "def", "gh", "ij"]
    assert wrap("漢字漢字", 5) == ["漢字", "漢字"]
    assert wrap("", 5) == [""]
