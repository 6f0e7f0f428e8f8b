"""Tables as plain lines: whole for a pipe, wrapped for a terminal, one below the other where it is narrow."""

from __future__ import annotations

import shutil
import sys
import unicodedata
from collections.abc import Sequence

from toolcrib.cli.output import printable

__all__ = ["brief", "lay_out", "print_table"]

_GAP = 2
_BRIEF = 240
"""Characters of a description in a list."""
_LEAST = 24
"""Cells that the last column needs, or the rows are laid out one below the other."""


def print_table(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print to standard output; only a terminal has a width."""
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
    for line in lay_out(headings, rows, width):
        sys.stdout.write(line + "\n")
    sys.stdout.flush()  # Notes that follow on standard error must not come before it.


def brief(text: str) -> str:
    """The first line of a text, cut where it is long: a list is to be looked over."""
    line = next(iter(text.strip().splitlines()), "")
    return line if len(line) <= _BRIEF else line[: _BRIEF - 1].rstrip() + "…"


def lay_out(headings: Sequence[str], rows: Sequence[Sequence[str]], width: int | None) -> list[str]:
    """The lines of a table whose last column takes what room is left; `width` None leaves it whole."""
    cells = [[printable(cell).replace("\n", " ").replace("\t", " ") for cell in row] for row in rows]
    widths = [max(map(cell_width, column)) for column in zip(headings, *cells, strict=True)][:-1]
    start = sum(widths) + _GAP * len(widths)
    if width is not None and width - start < _LEAST:
        return _stacked(cells, width)
    lines = []
    for row in [list(headings), *cells]:
        lead = "".join(pad(cell, size + _GAP) for cell, size in zip(row, widths, strict=False))
        last = wrap(row[-1], width - start) if width is not None else [row[-1]]
        lines.append((lead + last[0]).rstrip())
        lines += [" " * start + more for more in last[1:]]
    return lines


def _stacked(rows: Sequence[Sequence[str]], width: int) -> list[str]:
    lines: list[str] = []
    for row in rows:
        facts = ", ".join(cell for cell in row[1:-1] if cell)
        lines += wrap(f"{row[0]} ({facts})" if facts else row[0], width)
        lines += [f"  {line}" for line in wrap(row[-1], max(1, width - 2))]
    return lines


def wrap(text: str, width: int) -> list[str]:
    """The text in lines of at most `width` cells; a word that is longer is broken. At least one line."""
    lines = [""]
    for word in text.split():
        room = width - cell_width(lines[-1]) - 1
        if lines[-1] and cell_width(word) <= room:
            lines[-1] += f" {word}"
            continue
        if lines[-1]:
            lines.append("")
        for char in word:
            if lines[-1] and cell_width(lines[-1]) + cell_width(char) > width:
                lines.append("")
            lines[-1] += char
    return lines


def pad(text: str, size: int) -> str:
    """The text with blanks up to `size` cells."""
    return text + " " * max(0, size - cell_width(text))


def cell_width(text: str) -> int:
    """How many cells of a terminal the text takes."""
    if text.isascii():
        return len(text)
    return sum(
        0 if unicodedata.combining(char) else 2 if unicodedata.east_asian_width(char) in "WF" else 1
        for char in text
    )
