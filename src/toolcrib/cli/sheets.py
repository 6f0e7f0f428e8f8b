"""Tools as they are shown to the person who reviews them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from toolcrib.project.control.first_use import ReviewSheet

__all__ = ["lines_of", "names_of"]

_STATUS = {"new": "not reviewed yet", "changed": "changed since its last review", "reviewed": "reviewed"}
_MAX_NAMES = 60


def names_of(sheets: Sequence[ReviewSheet]) -> str:
    """Return the names of a few tools, or the number of many."""
    names = ", ".join(sheet.tool.name for sheet in sheets)
    return names if len(names) <= _MAX_NAMES else f"these {len(sheets)} tools"


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
