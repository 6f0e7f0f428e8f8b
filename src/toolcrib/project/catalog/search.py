"""Search over a project's tools, with facets."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any, TypeVar

from toolcrib.core.toolset import Toolset
from toolcrib.errors import InvalidInput, ToolcribError
from toolcrib.manifest import uncollected
from toolcrib.project.catalog.pages import page_token, read_page_token
from toolcrib.project.catalog.registry import ToolRegistry
from toolcrib.project.catalog.stored_search import StoredSearch, asked
from toolcrib.search import (
    Card,
    Hit,
    HitPlace,
    IndexUnavailable,
    MarkedIndex,
    SearchedIndex,
    SearchEntry,
    find,
    suggest,
)
from toolcrib.spec import Tool

T = TypeVar("T")

_MOST_HITS = 256
_MOST_TAGS = 50


class Search:
    """Finds tools of one project and of its user's bundles, as if they were one list.

    The index of the project is kept in `folder`, or in memory without one; `stored` returns that of the
    bundles, None if there are none.
    """

    def __init__(
        self,
        registry: ToolRegistry,
        toolset: Toolset,
        folder: Path | None,
        stored: Callable[[], StoredSearch | None],
    ) -> None:
        self._registry, self._toolset, self._stored = registry, toolset, stored
        self._index = MarkedIndex(None if folder is None else folder / "search")
        self._revision = -1

    def find(
        self,
        query: str,
        tags: Sequence[str],
        kinds: Sequence[str],
        limit: int,
        page: str | None,
        sees: Callable[[Tool], bool] | None,
        facets: bool,
    ) -> dict[str, Any]:
        """Search as `Project.search`; `sees` returns True for a tool that the caller may see."""
        wanted = asked(query, tags, kinds)
        if not 1 <= limit <= _MOST_HITS:
            raise InvalidInput(f"a page of {limit} hits", hint=f"Ask for 1 to {_MOST_HITS}.")
        question = (wanted.words, sorted(tags), sorted(kinds))
        after = None if page is None else HitPlace(*read_page_token(page, question, int, int))
        unusable: set[str] = set()
        while True:
            found = self._ask(lambda parts: find(parts, wanted, limit, after), unusable, sees)
            shown = [self._as_json(hit) for hit in found.hits]
            bad = {hit.tool.key for hit, one in zip(found.hits, shown, strict=True) if one is None}
            if not bad:
                break
            # Its manifest proves wrong only when it is shown: then the page is filled up with others.
            unusable |= bad
        answer: dict[str, Any] = {"hits": shown, "total": found.total}
        if facets:
            answer["facets"] = {
                "tags": dict(found.tags.most_common(_MOST_TAGS)),
                "kinds": dict(found.kinds.most_common()),
            }
        answer["next"] = page_token(question, [*found.hits[-1].place]) if found.more else None
        return answer

    def suggest(self, question: str, limit: int, sees: Callable[[Tool], bool] | None) -> list[str]:
        """Return the names of the tools that a question is about, as `Project.suggest`."""
        cards = self._ask(lambda parts: suggest(parts, question, limit), set(), sees)
        shown = [self._as_json(Hit(card, "", "", HitPlace(0, 0))) for card in cards]
        return [one["name"] for one in shown if one is not None]

    def close(self) -> None:
        """Close the index."""
        self._index.close()

    def _ask(
        self,
        ask: Callable[[Sequence[SearchedIndex]], T],
        unusable: set[str],
        sees: Callable[[Tool], bool] | None,
    ) -> T:
        """Ask the indexes, brought up to date, about tools that are not unusable and that the caller sees."""

        def hides(card: Card) -> bool:
            # The index is shared by processes: it may hold a tool that is not, or no longer, in this list.
            if card.key in unusable or card.key not in self._toolset:
                return True
            return sees is not None and not sees(self._toolset.get(card.key))

        def unseen(found: StoredSearch) -> Callable[[Any], bool] | None:
            return None if sees is None else lambda tool: not sees(found.seen(tool))

        hidden = hides if sees or unusable else None
        # A broken index is made again once in its place, and then in memory.
        for again in (True, True, False):
            try:
                found = self._stored()
                with nullcontext(None) if found is None else found.part(unseen(found)) as stored:
                    self._sync()
                    own = SearchedIndex(self._index, self._index.cards.get, hidden, but=self._index.foreign)
                    return ask([own, stored] if stored else [own])
            except IndexUnavailable as error:
                if not again:
                    raise
                self._index.forget(error)
                if not error.busy and (found := self._stored()) is not None:
                    found.repair(error)
        raise AssertionError

    def _sync(self) -> None:
        revision = self._toolset.revision
        if revision != self._revision or not self._index.is_current:
            marks = self._registry.marks
            with uncollected():
                self._registry.settle_marks()
                # A full name with a slash is a tool of a bundle, and those have an index of their own.
                names = [name for name in self._toolset.names if "/" not in name]
                known = {name: marks.get(name) or self._mark(name) for name in names}
                self._index.sync(known, self._entry)
            self._revision = revision

    def _mark(self, name: str) -> list[Any]:
        """Return the mark of a tool that is not from a manifest: the same in all processes that have it."""
        entry = self._entry(name)
        facts = () if entry is None else (*entry[:4], *entry.arguments)
        return [0, hashlib.sha256(repr(facts).encode(errors="backslashreplace")).hexdigest()]

    def _entry(self, name: str) -> SearchEntry | None:
        tool = self._tool(name)
        if tool is None:
            return None
        properties = tool.input_schema.get("properties")
        arguments = properties if isinstance(properties, dict) else ()
        return SearchEntry((tool.name,), tool.kind, tool.tags, tool.description, arguments)

    def _tool(self, name: str) -> Tool | None:
        try:
            return self._toolset.get(name)
        except ToolcribError:  # its manifest has errors by now, and is reported where it is used
            return None

    def _as_json(self, hit: Hit) -> dict[str, Any] | None:
        """Return a hit as JSON; None for a tool that proves unusable."""
        if isinstance(hit.tool, Card):
            self._registry.check(hit.tool.key)
            tool = self._tool(hit.tool.key)
            if tool is None:
                return None
            name, description = tool.name, tool.description
        else:
            stored = self._stored()
            assert stored is not None
            name, description = stored.described(hit.tool)
        found = {"name": name, "kind": hit.tool.kind, "tags": list(hit.tool.tags)}
        return {**found, "match": hit.match, "field": hit.field, "description": description}
