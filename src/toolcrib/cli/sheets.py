"""Tools as they are shown to the person who reviews them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from toolcrib.project.control.first_use import ReviewSheet
    from toolcrib.state import Vault

_STATUS = {"new": "not reviewed yet", "changed": "changed since its last review", "reviewed": "reviewed"}
_MAX_NAMES = 60
_SHOWN = "shown.json"
"""File of the user's folder about a project: name of a tool to the digest that was shown at the terminal."""


def names_of(sheets: Sequence[ReviewSheet]) -> str:
    """Return the names of a few tools, or the number of many."""
    names = ", ".join(sheet.tool.name for sheet in sheets)
    return names if len(names) <= _MAX_NAMES else f"these {len(sheets)} tools"


def lines_once(sheet: ReviewSheet, vault: Vault) -> Iterator[str]:
    """Yield the lines about a tool; one line if this user was shown the same before and did not decide."""
    from toolcrib.state import read_private, write_private

    path, digest = vault.folder / _SHOWN, sheet.digest.digest
    known = read_private(path)
    known = known if isinstance(known, dict) else {}
    if known.get(sheet.tool.name) == digest:
        name = sheet.tool.name
        yield f"{name}: {_STATUS[sheet.standing.status]}, as it was shown before: toolcrib review {name}"
        return
    yield from lines_of(sheet)
    write_private(path, {**known, sheet.tool.name: digest})


def lines_of(sheet: ReviewSheet) -> Iterator[str]:
    """Yield the lines about a tool for the person who reviews it, without control characters."""
    from toolcrib.guard import shown

    def flat(text: str) -> str:
        return shown(text).replace("\n", "\\n")

    tool, review = sheet.tool, sheet.standing
    yield f"{shown(tool.name)}: {_STATUS[review.status]}"
    if sheet.creator is not None:
        yield f"  created by the agent {shown(sheet.creator)}"
    yield f"  digest: {sheet.digest.digest}"
    for line in sheet.touches:
        yield f"  may touch: {flat(line)}"
    if review.last is not None and review.status == "changed":
        yield f"  last reviewed by {shown(review.last.by)}: {review.last.digest}"
        yield f"  changed since then: {flat(', '.join(sheet.changed))}"
    if review.status != "reviewed":
        yield from (f"  {line}" for line in review.diff(tool).split("\n") if line)
        yield from (f"  {flat(line)}" for line in sheet.code())
