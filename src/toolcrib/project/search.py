"""Search over a project's tools, with facets."""

from __future__ import annotations

import secrets
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from toolcrib.errors import ToolcribError, UsageError
from toolcrib.project.search_index import Hit, SearchIndex, Wanted, words_of
from toolcrib.project.shelf import Shelf
from toolcrib.spec import Tool
from toolcrib.toolset import Toolset

__all__ = ["Search"]

_MOST_WORDS = 32
_HERE = f"0:{secrets.token_hex(8)}"
"""The mark of functions: they live as long as this process."""


class Search:
    """Finds tools of one project. The index is kept in `folder`, or in memory without one."""

    def __init__(self, shelf: Shelf, toolset: Toolset, folder: Path | None) -> None:
        self._shelf = shelf
        self._toolset = toolset
        self._index = SearchIndex(None if folder is None else folder / "search.db")
        self._revision = -1

    def find(
        self,
        query: str,
        tags: tuple[str, ...],
        kinds: tuple[str, ...],
        limit: int,
        sees: Callable[[str], bool] | None,
    ) -> dict[str, Any]:
        """As `Project.search`; `sees` says of a name whether the caller may see it."""
        words = tuple(words_of(query)[:_MOST_WORDS])
        if not words:
            raise UsageError("a search needs at least one word", hint="`toolcrib list` shows every tool.")
        if self._revision != self._toolset.revision:
            self._revision = self._toolset.revision
            held = self._shelf.marks
            marks = {
                name: ":".join(map(str, held[name])) if held.get(name) else _HERE
                for name in self._toolset.names
            }
            self._index.sync(marks, self._tool)
        hits = self._index.find(Wanted(words, tags, kinds))
        if sees is not None:
            hits = [hit for hit in hits if hit.name in self._toolset and sees(hit.name)]
        shown: list[dict[str, Any]] = []
        bad = 0
        for hit in hits:
            if len(shown) >= limit:
                break
            told = self._told(hit)
            if told is None:
                bad += 1
            else:
                shown.append(told)
        return {"hits": shown, "total": len(hits) - bad, "facets": _facets(hits)}

    def close(self) -> None:
        """Let go of the index."""
        self._index.close()

    def _tool(self, name: str) -> Tool | None:
        try:
            return self._toolset.get(name)
        except ToolcribError:  # Its manifest went bad since; it is told where it is used.
            return None

    def _told(self, hit: Hit) -> dict[str, Any] | None:
        """A hit as JSON; None for a tool that turns out not to be usable."""
        self._shelf.check(hit.name)
        tool = self._tool(hit.name)
        if tool is None:
            return None
        return {
            "name": hit.name,
            "kind": hit.kind,
            "tags": list(hit.tags),
            "match": hit.match,
            "field": hit.field,
            "description": tool.description,
        }


def _facets(hits: Sequence[Hit]) -> dict[str, dict[str, int]]:
    """How many there are of each tag and kind, the most frequent first."""
    tags = Counter(tag for hit in hits for tag in hit.tags)
    kinds = Counter(hit.kind for hit in hits)
    return {"tags": dict(tags.most_common(50)), "kinds": dict(kinds.most_common())}
