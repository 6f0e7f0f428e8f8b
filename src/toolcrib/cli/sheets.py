"""Tools as they are shown to the person who reviews them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from toolcrib.project.control.first_use import ReviewSheet
    from toolcrib.state import Vault

_MAX_NAMES = 60
_SHOWN = "shown.json"
"""File of the user's folder about a project: name of a tool to the digest that was shown at the terminal."""


def names_of(sheets: Sequence[ReviewSheet]) -> str:
    """Return the names of a few tools, or the number of many."""
    names = ", ".join(sheet.tool.name for sheet in sheets)
    return names if len(names) <= _MAX_NAMES else f"these {len(sheets)} tools"


def lines_once(sheet: ReviewSheet, vault: Vault) -> Iterator[str]:
    """Yield the lines about a tool; one line if this user was shown the same before and did not decide."""
    from toolcrib.project.control.first_use import STATUS
    from toolcrib.state import read_private, write_private

    path, digest = vault.folder / _SHOWN, sheet.digest.digest
    known = read_private(path)
    known = known if isinstance(known, dict) else {}
    if known.get(sheet.tool.name) == digest:
        name = sheet.tool.name
        yield f"{name}: {STATUS[sheet.standing.status]}, as it was shown before: toolcrib review {name}"
        return
    yield from sheet.lines()
    write_private(path, {**known, sheet.tool.name: digest})
