"""Search over a catalogue: the tools of the project's sources and the records of the user as one list."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from threading import RLock
from typing import TYPE_CHECKING, Any, TypeVar

from toolcrib.bundles import ListedTool
from toolcrib.errors import InvalidInput, ToolcribError
from toolcrib.manifest import uncollected
from toolcrib.project.catalog.pages import Filter
from toolcrib.search import (
    Found,
    HitPlace,
    IndexUnavailable,
    MarkedIndex,
    SearchedIndex,
    SearchEntry,
    Wanted,
    find,
    suggest,
    words_of,
)

if TYPE_CHECKING:
    from toolcrib.bundles.listing import Listing
    from toolcrib.project.catalog.entries import Entries
    from toolcrib.project.catalog.registry import ToolRegistry
    from toolcrib.project.catalog.sources import Sources
    from toolcrib.project.catalog.stored import StoredTools
    from toolcrib.project.catalog.stored_search import StoredSearch

T = TypeVar("T")
_MOST_WORDS = 32


def asked(query: str, tags: Collection[str] = (), kinds: Collection[str] = ()) -> Wanted:
    """Return the question that a text asks. Raises InvalidInput if there is no word in it."""
    words = tuple(words_of(query)[:_MOST_WORDS])
    if not words:
        raise InvalidInput("a search needs at least one word", hint="`toolcrib list` shows every tool.")
    return Wanted(words, tuple(tags), tuple(kinds))


class Search:
    """Finds tools. Those of sources are in an index of the project, in `folder` or in memory without one.

    `records` returns the index of the user's records, None if there are none.
    """

    def __init__(
        self,
        stored: StoredTools,
        records: Callable[[], StoredSearch | None],
        entries: Entries,
        sources: Sources | None = None,
        registry: ToolRegistry | None = None,
        folder: Path | None = None,
    ) -> None:
        self._stored, self._records, self._entries = stored, records, entries
        self._sources, self._registry = sources, registry
        self._index = MarkedIndex(None if folder is None else folder / "search")
        self._revision: object = None
        self._off: tuple[object, tuple[str, ...]] = (None, ())
        self._using = RLock()

    def find(
        self, wanted: Wanted, within: Filter, limit: int, after: HitPlace | None, use: Callable[[Found], T]
    ) -> T:
        """Search, and return what `use` makes of the hits while nothing changes them."""
        nothing = Found([], more=False, total=0, every=lambda: iter(()))
        return self._ask(lambda parts: use(find(parts, wanted, limit, after) if parts else nothing), within)

    def suggest(self, question: str, limit: int, within: Filter) -> list[ListedTool]:
        """Return the tools that a question is about, the best first."""
        return self._ask(lambda parts: suggest(parts, question, limit), within)

    def sync(self) -> None:
        """Bring the indexes up to date."""
        if self._sources is not None:
            with self._using:
                self._sync(self._sources)
        if (records := self._records()) is not None:
            records.sync()

    def close(self) -> None:
        """Close the index."""
        self._index.close()

    def _ask(self, ask: Callable[[Sequence[SearchedIndex]], T], within: Filter) -> T:
        # A broken index is made again once in its place, and then in memory.
        for again in (True, True, False):
            try:
                with self._parts(within) as parts:
                    return ask(parts)
            except IndexUnavailable as error:
                if not again:
                    raise
                self._index.forget(error)
                if not error.busy and (records := self._records()) is not None:
                    records.repair(error)
        raise AssertionError

    @contextmanager
    def _parts(self, within: Filter) -> Iterator[list[SearchedIndex]]:
        with ExitStack() as stack:
            found = []
            if self._sources is not None:
                stack.enter_context(self._using)
                self._sync(self._sources)
            # Before the lock of the list is taken, which another writer of its index may need.
            if (records := self._records()) is not None:
                found.append(stack.enter_context(records.part(within)))
            if self._sources is not None:
                stack.enter_context(self._stored.lock)
                found.append(self._own(self._stored.listing, within))
            yield found

    def _own(self, listing: Listing, within: Filter) -> SearchedIndex:
        keys, is_on, with_key = self._index.keys, listing.is_on, listing.with_key

        def card(rank: int) -> ListedTool | None:
            tool = with_key(keys.get(rank, ""))
            return tool if tool is not None and (within.include_disabled or is_on(tool)) else None

        return SearchedIndex(
            self._index,
            card,
            within.hides if within.sees is not None else None,
            any_of=tuple(f"in:{id}" for id in within.bundles),  # noqa: A001 - the field's name
            but=(*self._index.foreign, *(() if within.include_disabled else self._switched_off(listing))),
        )

    def _switched_off(self, listing: Listing) -> tuple[str, ...]:
        """Return the keys of the tools of sources that are off."""
        _, mark = listing.since(None)
        if self._off[0] != (mark, listing.bundles):
            off = (tool.key for tool in listing.tools() if tool.full and not listing.is_on(tool))
            self._off = (mark, listing.bundles), tuple(off)
        return self._off[1]

    def _sync(self, sources: Sources) -> None:
        assert self._registry is not None
        revision = sources.revision
        if revision == self._revision and self._index.is_current:
            return
        with uncollected():
            self._registry.settle_marks()
            every = (tool for tools in sources.tools().values() for tool in tools if not tool.fault)
            by_key = {tool.key: tool for tool in every}
            known = {key: self._mark(sources, tool) for key, tool in by_key.items()}
            self._index.sync(known, lambda key: self._entry(by_key[key]))
        self._revision = revision

    def _mark(self, sources: Sources, tool: ListedTool) -> Sequence[Any]:
        """Return the mark of a tool: the same in all processes that have it."""
        assert self._registry is not None
        mark = self._registry.mark(tool.name) if tool.bundle == sources.own.id else None
        if mark:
            return mark
        entry = self._entry(tool)
        facts = () if entry is None else (*entry[:4], *entry.arguments)
        return [0, hashlib.sha256(repr(facts).encode(errors="backslashreplace")).hexdigest()]

    def _entry(self, listed: ListedTool) -> SearchEntry | None:
        assert self._registry is not None
        try:
            tool = self._registry.unused(listed.full) or self._entries.tool(listed)
        except ToolcribError:  # Its manifest has errors by now, and is reported where it is used.
            return None
        properties = tool.input_schema.get("properties")
        arguments = properties if isinstance(properties, dict) else ()
        return SearchEntry(
            (tool.name,), tool.kind, tool.tags, tool.description, arguments, (f"in:{listed.bundle}",)
        )
