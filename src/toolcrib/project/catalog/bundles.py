"""The one catalogue of a user's tools: the project's sources and the records of the user, as bundles."""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections import Counter, OrderedDict
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from toolcrib.core.context import Context
from toolcrib.errors import InvalidInput, StateUnavailable
from toolcrib.executors.function.threads import run_in_thread
from toolcrib.project.catalog.pages import Facets, Filter, ToolPage, page_token, read_page_token
from toolcrib.spec import Call, Caller, Result
from toolcrib.spec.record import record
from toolcrib.state.shared import shared_property

if TYPE_CHECKING:
    from toolcrib.bundles import BundleRecord, ListedTool, Store, ToolRecord
    from toolcrib.bundles.answers import BundleAnswer, FoundTool, ToolAnswer, ToolItem
    from toolcrib.bundles.listing import Listing, Ordered, Sort
    from toolcrib.project.catalog.entries import Entries
    from toolcrib.project.catalog.search import Search
    from toolcrib.project.catalog.stored import StoredTools
    from toolcrib.project.catalog.stored_search import StoredSearch
    from toolcrib.schema.provider_shapes import Shape
    from toolcrib.search import Found, HitPlace, Wanted
    from toolcrib.state.usage import UsageCounts, UsageOfTool

_log = logging.getLogger(__name__)
_MOST = 256
_MOST_BYTES = 256 * 1024
"""Bytes of the tools of a page; one larger tool is a page of its own."""
_ORDERS = 16
"""Orders of pages that are kept for the pages after them."""
_LARGE = 1_000
"""Tools from which on list and index are made before anybody asks for them."""
_LOOK_S = 0.2
"""Seconds until changes of other processes are seen."""
_LATER_S = 5.0
"""Seconds after which a store that could not be read is tried again."""


@record
class Wish:
    """The conditions of a list, a search or a count; of several values one must match."""

    bundles: Collection[str] = ()
    """Ids of bundles."""
    tags: Collection[str] = ()
    kinds: Collection[str] = ()
    sources: Collection[str] = ()
    availability: Collection[str] = ()
    touches: Collection[str] = ()
    """Things that they may touch; not with more than 1,000 records, each of which is read for this."""
    include_disabled: bool = False
    caller: str = "local"
    identity: Caller | None = None
    models: bool = False
    """Only what a model may read: tools that somebody has trusted, in the words that were trusted."""
    shape: Shape | None = None
    """The provider in whose form each tool is shown as well."""

    def key(self, *more: object) -> tuple[object, ...]:
        """Return what makes two questions the same."""
        return (
            *map(sorted, (self.bundles, self.tags, self.kinds, self.sources)),
            *map(sorted, (self.availability, self.touches)),
            self.include_disabled,
            *more,
        )


EVERYTHING = Wish()
"""Every tool that is on, for this machine's own user."""


class Parts(NamedTuple):
    """The parts of a catalogue that are made when it is first read."""

    stored: StoredTools
    entries: Entries
    search: Search


class Bundles:
    """The catalogue of one project, or outside of one the records of a user. Safe for threads.

    `make` makes the parts. `checked` looks at tools before they are shown, and returns False if one has
    proved unusable. `kept` returns the names of tools that every model may read.
    """

    def __init__(
        self,
        data: Path,
        make: Callable[[], Parts],
        checked: Callable[[Sequence[ListedTool]], bool] = lambda _: True,
        kept: Callable[[], Mapping[str, Any]] = dict,
        size: Callable[[], int] = int,
    ) -> None:
        self._data, self._make, self._checked, self._kept, self._size = data, make, checked, kept, size
        self.was_missing = not self.exist
        self._keeper: asyncio.Task[None] | None = None
        self._orders: OrderedDict[str, Ordered] = OrderedDict()
        self._counts: tuple[object, Counter[str]] = (None, Counter())

    @property
    def exist(self) -> bool:
        """True if there may be records. Without their folder nothing is read, made or imported."""
        return "_parts" in self.__dict__ or (self._data / "bundles").is_dir()

    @shared_property
    def _parts(self) -> Parts:
        return self._make()

    @property
    def stored(self) -> StoredTools:
        """The records as tools of the project, and the names of all."""
        return self._parts.stored

    @property
    def entries(self) -> Entries:
        """Makes the record of a tool."""
        return self._parts.entries

    @property
    def store(self) -> Store:
        """The bundles, to be read and changed."""
        return self.stored.store

    @shared_property
    def records_index(self) -> StoredSearch:
        """Finds records of the user."""
        from toolcrib.project.catalog.stored_search import StoredSearch

        return StoredSearch(self.stored)

    @shared_property
    def usage(self) -> UsageCounts:
        """Counts of calls by the id of the tool."""
        from toolcrib.state.usage import UsageCounts

        return UsageCounts(self._data / "usage.db")

    def count(self) -> int:
        """Return how many records there are, disabled ones too."""
        return self.stored.listing.records if self.exist else 0

    def find(self, text: str) -> str | None:
        """Return the name of the tool that `[BUNDLE/]NAME[@VERSION]` means; None if there is none.

        Raises UsageError if tools of several bundles may be meant.
        """
        tool = self.stored.find(text)
        return None if tool is None else self.stored.full_name(tool)

    # -- lists -------------------------------------------------------------------------------------

    def tools(
        self, wish: Wish = EVERYTHING, *, sort: Sort = "createdAt", limit: int = 25, page: str | None = None
    ) -> ToolPage[ToolItem]:
        """Return a page of tools: by name the first ones, otherwise the newest or greatest.

        `limit` is at most 256, and a page has at most 256 KiB. `page` is the `next` of the page before: the
        order is then that of the first page, whatever has changed meanwhile. Raises InvalidInput for another
        limit, and for a page of another list, and InvalidToken.
        """
        _check_limit(limit)
        question = wish.key("tools", sort)
        start = None if page is None else read_page_token(page, question, str, int, list)
        sees = self.sees(wish)
        with self.stored.lock:
            name, order, at = self._order(self.stored.listing, wish, sort, start)
            while True:
                listing = self.stored.listing
                numbered = enumerate(islice(order.tools, at, None), at)
                found = self._among(listing, wish, sees, numbered, limit + 1)
                tools = [tool for _, tool in found[:limit]]
                if not listing.notice(tools) and self._checked(tools):
                    break
            items = self._items(tools, wish)
        following = None
        if len(items) < len(found):
            last, _ = found[len(items) - 1]
            following = page_token(question, [self._keep_order(name, order), last + 1, [*order.place(last)]])
        return ToolPage(items, following)

    def all(self, wish: Wish = EVERYTHING) -> list[ToolItem]:
        """Return every tool, by name."""
        tools = self._every(wish)
        return self.entries.items(tools, self._used(tools), wish.caller, wish.identity, models=wish.models)

    def names(self, wish: Wish = EVERYTHING) -> list[str]:
        """Return the name of every tool, in their order; some may prove unusable when they are used."""
        return [self.stored.full_name(one) for one in self._every(wish, check=False)]

    def described(
        self, wish: Wish = EVERYTHING, start: int = 0, count: int | None = None
    ) -> list[tuple[str, str]]:
        """Return name and description of usable tools in the order of their names, from a number on."""
        tools, full_name = self._every(wish, start, count), self.stored.full_name
        return [(full_name(one), self.entries.text(one, models=wish.models)) for one in tools]

    def _every(
        self, wish: Wish, start: int = 0, count: int | None = None, *, check: bool = True
    ) -> list[ListedTool]:
        """Return tools by name, from a number on."""
        sees = self.sees(wish)
        with self.stored.lock:
            while True:
                listing = self.stored.listing
                order = listing.ordered("name", self._ids(listing, wish), wish.tags)
                found = self._among(listing, wish, sees, enumerate(order.tools))[start:][:count]
                tools = [tool for _, tool in found]
                if not check or self._checked(tools):
                    return tools

    def search(
        self, query: str, wish: Wish = EVERYTHING, *, limit: int = 25, page: str | None = None
    ) -> ToolPage[FoundTool]:
        """Return a page of the tools that match some words, the best first, with the number of all.

        Limits, pages and errors as of `tools`. Raises InvalidInput for a query without a word too.
        """
        from msgspec.structs import asdict

        from toolcrib.bundles.answers import FoundTool
        from toolcrib.project.catalog.search import asked
        from toolcrib.search import HitPlace

        _check_limit(limit)
        wanted = asked(query, wish.tags, wish.kinds)
        question = wish.key("search", wanted.words)
        after = None if page is None else HitPlace(*read_page_token(page, question, int, int))
        found = self._hits(wanted, self._within(wish), limit, after)
        items = self._items([hit.tool for hit in found.hits], wish)
        hits = [
            FoundTool(**asdict(item), match=hit.match, field=hit.field)
            for item, hit in zip(items, found.hits, strict=False)
        ]
        more = found.more or len(hits) < len(found.hits)
        following = page_token(question, [*found.hits[len(hits) - 1].place]) if more else None
        return ToolPage(hits, following, found.total)

    def best(self, query: str, wish: Wish = EVERYTHING, *, limit: int = 5) -> list[str]:
        """Return the names of the tools that `search` finds, and behind them those that `suggest` finds."""
        from toolcrib.project.catalog.search import asked

        within = self._within(wish)
        hits = self._hits(asked(query), within, limit).hits
        names = [self.stored.full_name(hit.tool) for hit in hits]
        more = self._suggested(query, within, limit) if len(names) < limit else []
        return list(dict.fromkeys([*names, *more]))[:limit]

    def _hits(self, wanted: Wanted, within: Filter, limit: int, after: HitPlace | None = None) -> Found:
        while True:
            found = self._parts.search.find(wanted, within, limit, after, lambda found: found)
            tools = [hit.tool for hit in found.hits]
            with self.stored.lock:
                if not self.stored.listing.notice(tools) and self._checked(tools):
                    return found

    def suggest(self, question: str, wish: Wish = EVERYTHING, *, limit: int = 5) -> list[str]:
        """Return the names of the tools that a question is about, the best first."""
        return self._suggested(question, self._within(wish), limit)

    def _suggested(self, question: str, within: Filter, limit: int) -> list[str]:
        found = self._parts.search.suggest(question, limit, within)
        self._checked(found)
        with self.stored.lock:
            listing = self.stored.listing
            return [self.stored.full_name(one) for one in found if listing.with_key(one.key) is not None]

    def facets(self, query: str | None = None, wish: Wish = EVERYTHING) -> Facets:
        """Return how many tools there are, or match some words, by their facts.

        No tool is made ready for it. Raises InvalidInput for a query without a word, and InvalidToken.
        """
        found = every = self._found(query, replace(wish, include_disabled=True))
        with self.stored.lock:
            on = list(filter(self.stored.listing.is_on, every))
        disabled = len(every) - len(on)
        if not wish.include_disabled:
            # A search is made anew: what is enabled may match better or worse than what is disabled.
            found = on if query is None else self._found(query, wish)
        sources = self.store.sources
        tags, bundles = (
            Counter(tag for one in found for tag in one.tags),
            Counter(one.bundle for one in found),
        )
        of = Counter[str]()
        for id_, number in bundles.items():
            of[sources[id_].source if id_ in sources else "user"] += number
        kinds, types = Counter(one.kind for one in found), Counter(one.type for one in found)
        availability = Counter(map(self.entries.availability, found))
        read = found if self._are_read else ()
        touches = Counter(what for one in read for what in self.entries.touched(one))
        counts = (tags, kinds, types, of, bundles, availability, touches)
        return Facets(len(found), disabled, *(dict(one.most_common()) for one in counts))

    def _found(self, query: str | None, wish: Wish) -> Sequence[ListedTool]:
        """Return every tool of a list or search."""
        from toolcrib.project.catalog.search import asked

        if query is None:
            return self._every(wish, check=False)
        wanted, within = asked(query, wish.tags, wish.kinds), self._within(wish)
        return self._parts.search.find(wanted, within, 1, None, lambda found: list(found.every()))

    @property
    def _are_read(self) -> bool:
        """True if there are so few records that each is read to know what it may touch."""
        return self.count() <= _LARGE

    def sees(self, wish: Wish) -> Callable[[ListedTool], bool] | None:
        """Return the check of what a caller may see and asks for; None for all.

        Raises InvalidToken, and InvalidInput for what cannot be asked of a large catalogue.
        """
        entries = self.entries
        visible = entries.visible(wish.caller, wish.identity)
        checks = [] if visible is None else [visible]
        if wish.models:
            checks.append(entries.offered(self._kept))
        if wish.availability:
            checks.append(lambda tool: entries.availability(tool) in wish.availability)
        if wish.touches:
            if not self._are_read:
                raise InvalidInput(
                    f"more than {_LARGE} records cannot be filtered by what they may touch",
                    hint="Leave out `touches`.",
                )
            checks.append(lambda tool: any(one in wish.touches for one in entries.touched(tool)))
        if len(checks) < 2:  # A search may ask the check about every tool.
            return checks[0] if checks else None
        return lambda tool: all(check(tool) for check in checks)

    def _within(self, wish: Wish) -> Filter:
        with self.stored.lock:
            ids = self._ids(self.stored.listing, wish)
        return Filter(ids, wish.include_disabled, self.sees(wish))

    def _ids(self, listing: Listing, wish: Wish) -> Collection[str]:
        """Return the ids of the bundles that a list is limited to; none for all."""
        if not wish.sources:
            return wish.bundles
        sources = self.store.sources
        of = {
            id
            for id in listing.bundles  # noqa: A001 - the field's name
            if (sources[id].source if id in sources else "user") in wish.sources
        }
        # An id of nothing, because no id at all would mean all.
        return (of & {*wish.bundles} if wish.bundles else of) or {""}

    def _among(
        self,
        listing: Listing,
        wish: Wish,
        sees: Callable[[ListedTool], bool] | None,
        numbered: Any,
        count: int | None = None,
    ) -> list[tuple[int, ListedTool]]:
        def wanted(tool: ListedTool) -> bool:
            return (
                (wish.include_disabled or listing.is_on(tool))
                and (not wish.kinds or tool.kind in wish.kinds)
                and (sees is None or sees(tool))
            )

        return listing.page(numbered, count, wanted, self._ids(listing, wish), wish.tags)

    def _order(
        self, listing: Listing, wish: Wish, sort: Sort, start: list[Any] | None
    ) -> tuple[str, Ordered, int]:
        """Return the name of an order of tools if it is kept, the order, and where a page begins in it."""
        if start is not None and start[0] in self._orders and start[1] >= 0:
            self._orders.move_to_end(start[0])
            return start[0], self._orders[start[0]], start[1]
        order = listing.ordered(sort, self._ids(listing, wish), wish.tags, self._numbers(sort))
        if start is None or not order.tools:
            return "", order, 0
        # Another process has made the first page: what was listed since then begins behind its last tool.
        last = tuple(start[2])
        if list(map(type, last)) != list(map(type, order.place(0))):
            raise InvalidInput("this is not a token of a page", hint="Use `next` of the page before.")
        return "", order, order.behind(last)

    def _keep_order(self, name: str, order: Ordered) -> str:
        with self.stored.lock:
            name = name or secrets.token_hex(6)
            self._orders[name] = order
            while len(self._orders) > _ORDERS:
                self._orders.popitem(last=False)
        return name

    def _numbers(self, sort: Sort) -> Mapping[str, float] | None:
        if sort not in ("callCount", "lastCalledAt") or not self._are_counted:
            return None
        with suppress(StateUnavailable):
            return self.usage.numbers("calls" if sort == "callCount" else "last")
        return None

    @property
    def _are_counted(self) -> bool:
        return "usage" in self.__dict__ or (self._data / "usage.db").exists()

    def _used(self, tools: Sequence[ListedTool] | None) -> Mapping[str, UsageOfTool]:
        """Return the counts of calls of these tools, or of all. Lists are shown without them if need be."""
        if not self._are_counted:
            return {}
        with suppress(StateUnavailable):
            ids = None if tools is None or len(tools) > _MOST else [tool.id for tool in tools]
            return self.usage.all(ids)
        return {}

    def _items(self, tools: Sequence[ListedTool], wish: Wish) -> list[ToolItem]:
        from toolcrib.project.catalog.entries import fitting

        made = self.entries.items(
            tools, self._used(tools), wish.caller, wish.identity, models=wish.models, shape=wish.shape
        )
        return fitting(made, _MOST_BYTES)

    # -- single ones -------------------------------------------------------------------------------

    def name(self, bundle_id: str, slug: str, version: str) -> str:
        """Return the name to call a tool by, and to get it from the project.

        Raises as `Store.tool`. A disabled tool has a name too; its calls are refused.
        """
        self.store.tool(bundle_id, slug, version)
        return self.stored.name_of(bundle_id, slug, version)

    def answer(self, record: ToolRecord, caller: str = "local", identity: Caller | None = None) -> ToolAnswer:
        """Return the whole record of a tool that is in a bundle."""
        from toolcrib.bundles.listing import listed_of

        with self.stored.lock:
            listed = self.stored.listing.find(record.bundle_id, record.slug, record.version)
        if listed is None or not listed.full:  # The list may be a moment behind the record.
            listed = listed_of(record)
        return self.entries.answer(listed, record, self._used([listed]), caller, identity)

    def tool(self, text: str, caller: str = "local", identity: Caller | None = None) -> ToolAnswer | None:
        """Return the whole record of the tool that a name means; None if there is none. Raises as `find`."""
        listed = self.stored.find(text)
        if listed is None:
            return None
        return self.answer(self.store.tool(listed.bundle, listed.slug, listed.version), caller, identity)

    def bundle_answers(
        self, bundles: Sequence[BundleRecord], caller: str = "local", identity: Caller | None = None
    ) -> list[BundleAnswer]:
        """Return bundles as they are read, with the number of their tools that the caller may see."""
        from toolcrib.bundles.answers import BundleAnswer
        from toolcrib.bundles.records import BundleRecord, DamagedBundle

        visible = self.entries.visible(caller, identity)
        with self.stored.lock:
            listing = self.stored.listing
            _, mark = listing.since(None)
            if self._counts[0] != mark:
                self._counts = mark, Counter(tool.bundle for tool in listing.tools())
            counts = self._counts[1]
            if visible is not None:
                counts = Counter(tool.bundle for tool in listing.tools() if visible(tool))
        names, sources = BundleRecord.__struct_fields__, self.store.sources
        found = []
        for one in bundles:
            why = one.unavailable_because if isinstance(one, DamagedBundle) else None
            answer = BundleAnswer(
                **{name: getattr(one, name) for name in names},
                source=sources[one.id].source if one.id in sources else "user",
                tool_count=counts[one.id],
                availability="available" if why is None else "unavailable",
                unavailable_because=why,
            )
            found.append(answer)
        return found

    # -- in step -----------------------------------------------------------------------------------

    def prepare(self) -> None:
        """Make the index of a large catalogue, which otherwise its first search does."""
        if self._size() > _LARGE:
            from toolcrib.search import IndexUnavailable

            with suppress(IndexUnavailable):
                self._parts.search.sync()

    def start(self) -> None:
        """Look after the bundles until `stop`: take up changes of other processes, also for searches, and
        remove deleted bundles."""
        if self._keeper is None:
            self._keeper = asyncio.create_task(self._keep(), name="toolcrib: bundles")

    async def stop(self) -> None:
        """End that."""
        if self._keeper is not None:
            self._keeper.cancel()
            await asyncio.wait([self._keeper])
            self._keeper = None

    async def _keep(self) -> None:
        while True:
            try:
                # The first list and search of a small project take no time that anybody notices.
                if self.exist or self._size() > _LARGE:
                    await self._keep_once()
            # A task that ends by an error is noticed by nobody, and the list would never change again.
            except Exception as error:
                known = isinstance(error, StateUnavailable)
                _log.warning("the bundles cannot be kept: %s", error, exc_info=not known)
                await asyncio.sleep(_LATER_S)
            await asyncio.sleep(_LOOK_S)

    async def _keep_once(self) -> None:
        if self.stored.is_behind:
            await run_in_thread(self.stored.catch_up)
        # In this thread, to which the registry belongs; the reading before may run in another.
        self.stored.settle()

        def keep() -> None:
            self._parts.search.sync()
            if self.store.exists:
                self.stored.reap()

        await run_in_thread(keep)

    async def invoke(self, call: Call, path: Callable[[Call], Awaitable[Result]]) -> Result:
        """Make a call by a name that is not in the list of tools: find the tool, and call it by `path`."""
        if self.stored.is_behind:
            await run_in_thread(self.stored.catch_up)  # It waits for writers.
        name = self.stored.ready(call.tool)
        if name is None:
            return await path(call)
        # A context of its own, because the tool has another name than the call.
        ctx = call if isinstance(call, Context) else Context.of(call)
        asked, ctx.tool = ctx.tool, name
        result = await path(ctx)
        if asked != name:
            result.details = {**(result.details or {}), "tool": name}
        return result

    def close(self) -> None:
        """Write what is counted, and close the indexes."""
        if "_parts" in self.__dict__:
            self._parts.search.close()
            self.stored.close()
        if "records_index" in self.__dict__:
            self.records_index.close()
        if "usage" in self.__dict__:
            # Counts are statistics: the project closes also if they cannot be written.
            with suppress(StateUnavailable):
                self.usage.close()


def _check_limit(limit: int) -> None:
    if not 1 <= limit <= _MOST:
        raise InvalidInput(f"a page of {limit} tools", hint=f"Ask for 1 to {_MOST}.")
