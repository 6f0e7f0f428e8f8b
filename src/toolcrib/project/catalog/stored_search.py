"""Search over the tools of the user's store."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

from toolcrib.errors import UsageError
from toolcrib.project.catalog.pages import ToolHit, ToolHits, page_token, read_page_token
from toolcrib.search import Entry, Found, IndexUnavailable, Place, SearchIndex, Wanted, words_of
from toolcrib.state import cache_folder

if TYPE_CHECKING:
    from toolcrib.bundles.listing import ListedTool
    from toolcrib.project.catalog.stored import StoredTools

__all__ = ["StoredSearch"]

_MOST_WORDS = 32


class StoredSearch:
    """Finds tools of the store. The index is in the user's cache folder."""

    def __init__(self, stored: StoredTools) -> None:
        self._stored = stored
        cache = cache_folder(stored.data)
        self._index = SearchIndex(None if cache is None else Path(cache) / "search")
        self._tools: dict[str, ListedTool] = {}

    def find(
        self,
        query: str,
        bundles: Collection[str],
        tags: Collection[str],
        include_disabled: bool,
        limit: int,
        page: str | None,
    ) -> ToolHits:
        """Search as `Bundles.search`."""
        words = tuple(words_of(query)[:_MOST_WORDS])
        if not words:
            raise UsageError("a search needs at least one word", hint="A list shows every tool.")
        wanted = Wanted(words, tuple(tags))
        question = ("search", words, sorted(bundles), sorted(tags), include_disabled)
        after = None if page is None else Place(*read_page_token(page, question, int, int))
        with self._stored.lock:
            listing = self._stored.listing

            def sees(key: str) -> bool:
                tool = self._tools.get(key)
                return (
                    tool is not None
                    and (not bundles or tool.bundle in bundles)
                    and (include_disabled or listing.is_on(tool))
                )

            found = self._found(wanted, limit, after, sees)
            hits = [ToolHit(self._tools[hit.key], hit.match, hit.field) for hit in found.hits]
        following = page_token(question, [*found.hits[-1].place]) if found.more else None
        return ToolHits(hits, following, found.total, dict(found.tags), dict(found.kinds))

    def close(self) -> None:
        """Close the index."""
        self._index.close()

    def _found(self, wanted: Wanted, limit: int, after: Place | None, sees: object) -> Found:
        try:
            self._sync()
            return self._index.find(wanted, limit, after, sees)  # type: ignore[arg-type]
        except IndexUnavailable as error:
            self._index.forget(error)
            self._sync()
            return self._index.find(wanted, limit, after, sees)  # type: ignore[arg-type]

    def _sync(self) -> None:
        self._tools = {f"{tool.bundle}/{tool.file}": tool for tool in self._stored.listing.tools()}
        marks = {key: [_moment(tool.modified), tool.id] for key, tool in self._tools.items()}
        self._index.sync(marks, self._entry)

    def _entry(self, key: str) -> Entry:
        tool = self._tools[key]
        return Entry(f"{tool.slug} {tool.name}", tool.type, tool.tags, tool.description, tool.arguments)


def _moment(text: str) -> int:
    return int(datetime.fromisoformat(text).timestamp() * 1_000) * 1_000_000
