"""Tables as plain lines: whole in a pipe, wrapped on a terminal, stacked on a narrow one."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from toolcrib.cli.output import one_line, print_json, print_note, printable, results
from toolcrib.spec.naming import cell_width

Column = str | tuple[str, str | Callable[[Mapping[str, Any]], Any]]
"""A heading, with the key of its values or a function that returns the value of an entry; a heading alone is
also the key, in lower case."""

_GAP = 2
_BRIEF = 240
"""Characters of a description in a list."""
_LEAST = 24
"""Cells that the last column needs; with fewer, each row is stacked."""


def print_listing(
    as_json: bool,
    name: str,
    entries: Sequence[Mapping[str, Any]],
    columns: Sequence[Column],
    *,
    empty: str = "",
    limit: int | None = None,
    **more: Any,
) -> None:
    """Print entries as the document of `--json`, `{name: entries, …}`, or as a table of some of their values.

    `empty` is the note for an empty list. With as many entries as `limit` there may be a next page.
    """
    if as_json:
        print_json({name: entries, **more})
        return
    if entries:
        print_entries(entries, columns)
    else:
        print_note(empty)
    if len(entries) == limit:
        print_note(f"There may be more: --before {entries[-1]['id']}")


def print_entries(entries: Sequence[Mapping[str, Any]], columns: Sequence[Column]) -> None:
    """Print a table of JSON objects: lists with commas, other JSON in one line, nothing for null."""
    named = [(one, one.lower()) if isinstance(one, str) else one for one in columns]
    rows = [[_cell(key(entry) if callable(key) else entry[key]) for _, key in named] for entry in entries]
    print_table([heading for heading, _ in named], rows)


def _cell(value: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, list) and all(isinstance(one, str) for one in value):
        return ", ".join(value)
    words = {None: "", True: "yes", False: "no"}
    return words[value] if value is None or isinstance(value, bool) else json.dumps(value, ensure_ascii=False)


def facts(values: Mapping[str, str | None]) -> list[str]:
    """Return a line for each name that has a value."""
    return [f"{name:10} {one_line(value)}" for name, value in values.items() if value]


def print_table(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print a table to standard output, as wide as the terminal if it is one."""
    width = shutil.get_terminal_size().columns if results().isatty() else None
    for line in format_table(headings, rows, width):
        results().write(line + "\n")
    results().flush()  # A note that follows on standard error must not come first.


def _brief(entry: Mapping[str, Any]) -> str:
    """Return the first line of a description, cut if it is long; without one, the name that people see.

    Of what cannot be used it is the reason.
    """
    text = entry.get("unavailableBecause") or entry["description"] or entry.get("displayName") or ""
    line = next(iter(text.strip().splitlines()), "")
    return line if len(line) <= _BRIEF else line[: _BRIEF - 1].rstrip() + "…"


DESCRIPTION: Column = ("DESCRIPTION", _brief)


def format_table(headings: Sequence[str], rows: Sequence[Sequence[str]], width: int | None) -> list[str]:
    """Return the lines of a table. The last column is wrapped to `width` cells, or whole if that is None."""
    cells = [[printable(cell).replace("\n", " ").replace("\t", " ") for cell in row] for row in rows]
    widths = [max(map(cell_width, column)) for column in zip(headings, *cells, strict=True)][:-1]
    start = sum(widths) + _GAP * len(widths)
    if width is not None and width - start < _LEAST:
        return _stacked(headings, cells, width)
    lines = []
    for row in [list(headings), *cells]:
        lead = "".join(
            cell + " " * (size + _GAP - cell_width(cell)) for cell, size in zip(row, widths, strict=False)
        )
        last = wrap(row[-1], width - start) if width is not None else [row[-1]]
        lines.append((lead + last[0]).rstrip())
        lines += [" " * start + more for more in last[1:]]
    return lines


def _stacked(headings: Sequence[str], rows: Sequence[Sequence[str]], width: int) -> list[str]:
    lines: list[str] = []
    names = [heading.lower() for heading in headings[1:-1]]
    for row in rows:
        facts = ", ".join(
            f"{name} {cell}".strip() for name, cell in zip(names, row[1:-1], strict=True) if cell
        )
        lines += wrap(f"{row[0]} ({facts})" if facts else row[0], width)
        lines += [f"  {line}" for line in wrap(row[-1], max(1, width - 2))]
    return lines


def wrap(text: str, width: int) -> list[str]:
    """Return the text in lines of at most `width` cells, at least one; a longer word is broken."""
    lines = [""]
    for word in text.split():
        space = width - cell_width(lines[-1]) - 1
        if lines[-1] and cell_width(word) <= space:
            lines[-1] += f" {word}"
            continue
        if lines[-1]:
            lines.append("")
        for char in word:
            if lines[-1] and cell_width(lines[-1]) + cell_width(char) > width:
                lines.append("")
            lines[-1] += char
    return lines
