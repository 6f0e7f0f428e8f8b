"""The user's bundles as one project sees them: records, pages of tools, search, calls, counts of calls."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from toolcrib.core.context import Context
from toolcrib.core.toolset import Toolset
from toolcrib.errors import InvalidInput, StateUnavailable, ToolNotFound
from toolcrib.executors.function.threads import run_in_thread
from toolcrib.manifest import ANY_FILE
from toolcrib.project.catalog.pages import ToolHits, ToolPage, page_token, read_page_token
from toolcrib.project.catalog.registry import ToolRegistry
from toolcrib.project.root import Place
from toolcrib.spec import Call, Result, Tool
from toolcrib.state.shared import shared_property

if TYPE_CHECKING:
    from toolcrib.bundles import BuiltIn, Store
    from toolcrib.bundles.listing import ListedTool
    from toolcrib.bundles.usage import UsageCounts
    from toolcrib.project.catalog.stored import StoredTools
    from toolcrib.project.catalog.stored_search import StoredSearch

__all__ = ["Bundles", "ToolHits", "ToolPage"]

_log = logging.getLogger(__name__)
_MOST = 256
_LOOK_S = 0.2
"""Seconds until changes of other processes are seen."""
_LATER_S = 5.0
"""Seconds after which a store that could not be read is tried again."""


class Bundles:
    """The bundles of this user. Its methods may be called in any thread."""

    def __init__(self, data: Path, built_in: Sequence[BuiltIn], make: Callable[[bool], StoredTools]) -> None:
        self._data, self._built_in, self._make = data, built_in, make
        self._was_missing = not self.exist
        self._keeper: asyncio.Task[None] | None = None

    @classmethod
    def without_project(cls, data: Path) -> Bundles:
        """Return the bundles in a data folder, to be listed and searched. No tool of them can be called."""
        from toolcrib.project.catalog.stored import StoredTools, builtin_bundle

        def refuse(tool: Tool, *_: object) -> NoReturn:
            raise ToolNotFound(
                f"{tool.name} can only be called in a project", hint="toolcrib init makes one."
            )

        registry, own = ToolRegistry(Place(data, data), ANY_FILE, Toolset(), refuse), (builtin_bundle(),)
        return cls(
            data, own, lambda _: StoredTools(data, registry, lambda _: None, lambda: None, built_in=own)
        )

    @property
    def exist(self) -> bool:
        """True if there may be tools. Without a folder of bundles nothing is read, made or imported."""
        return "stored" in self.__dict__ or bool(self._built_in) or (self._data / "bundles").is_dir()

    @shared_property
    def stored(self) -> StoredTools:
        """Their tools in the catalog."""
        return self._make(self._was_missing)

    @shared_property
    def index(self) -> StoredSearch:
        """Finds tools."""
        from toolcrib.project.catalog.stored_search import StoredSearch

        return StoredSearch(self.stored)

    @property
    def store(self) -> Store:
        """The records, to be read and changed."""
        return self.stored.store

    @shared_property
    def usage(self) -> UsageCounts:
        """Counts of calls by the id of the tool."""
        from toolcrib.bundles.usage import UsageCounts

        return UsageCounts(self._data / "usage.db")

    def count(self) -> int:
        """Return how many tools there are, disabled ones too."""
        return len(self.stored.listing) if self.exist else 0

    def name(self, bundle_id: str, slug: str, version: str) -> str:
        """Return the name to call a tool by, and to get it from the project: `bundle/slug@version`.

        Raises as `Store.tool`. A disabled tool has a name too; its calls are refused.
        """
        tool = self.store.tool(bundle_id, slug, version)
        self.stored.catch_up()
        return self.stored.full_name(tool)

    def find(self, text: str) -> str | None:
        """Return the full name of the tool that `[BUNDLE/]NAME[@VERSION]` means; None if there is none.

        Raises UsageError if tools of several bundles may be meant.
        """
        tool = self.stored.find(text) if self.exist else None
        return None if tool is None else self.stored.full_name(tool)

    def tools(
        self,
        *,
        bundles: Collection[str] = (),
        tags: Collection[str] = (),
        include_disabled: bool = False,
        limit: int = 25,
        page: str | None = None,
        sees: Callable[[str], bool] | None = None,
    ) -> ToolPage:
        """Return the tools of these bundles (ids; all if none are given) with any of these tags.

        The newest come first. `sees` says of a full name if the caller may see it. `limit` is at most 256;
        `page` is the `next` of the page before. Raises InvalidInput for another limit, and for a page of
        another list.
        """
        _check_limit(limit)
        question = ("tools", sorted(bundles), sorted(tags), include_disabled)
        before = None
        if page is not None:
            created, id_, bundle, file = read_page_token(page, question, str, str, str, str)
            before = (created, id_, bundle, file)
        if not self.exist:
            return ToolPage([], None)
        with self.stored.lock:
            listing = self.stored.listing
            every = listing.bundles.values()
            within = bundles
            if not bundles and not include_disabled and not all(one.is_enabled for one in every):
                within = [one.id for one in every if one.is_enabled]

            def wanted(tool: ListedTool) -> bool:
                return (include_disabled or listing.is_on(tool)) and (
                    sees is None or sees(self.stored.full_name(tool))
                )

            found = listing.page(limit + 1, before, wanted, within, tags)
        more = len(found) > limit
        return ToolPage(found[:limit], page_token(question, [*found[limit - 1].order]) if more else None)

    def described(self, sees: Callable[[Tool], bool] | None) -> list[tuple[str, str]]:
        """Return full name and description of every tool that is not disabled and that the caller sees."""
        if not self.exist:
            return []
        with self.stored.lock:
            listing = self.stored.listing
            on = [tool for tool in listing.tools() if listing.is_on(tool)]
        return [self.index.described(one) for one in on if sees is None or sees(self.index.seen(one))]

    def search(
        self,
        query: str,
        *,
        bundles: Collection[str] = (),
        tags: Collection[str] = (),
        kinds: Collection[str] = (),
        include_disabled: bool = False,
        limit: int = 25,
        page: str | None = None,
        sees: Callable[[str], bool] | None = None,
    ) -> ToolHits:
        """Return the tools that match some words, the best first; filters and pages as of `tools`.

        Raises InvalidInput for a query without a word too.
        """
        _check_limit(limit)
        from toolcrib.project.catalog.stored_search import Filter, asked
        from toolcrib.search import HitPlace

        wanted = asked(query, tags, kinds)
        key = ("search", wanted.words, [sorted(one) for one in (bundles, tags, kinds)], include_disabled)
        after = None if page is None else HitPlace(*read_page_token(page, key, int, int))
        if not self.exist:
            return ToolHits([], None, 0)
        within = Filter(bundles, include_disabled, sees)
        found = self.index.find(wanted, within, limit, after)
        with self.stored.lock:
            changed = self.stored.listing.notice(hit.tool for hit in found.hits)
        if changed:
            found = self.index.find(wanted, within, limit, after)
        following = page_token(key, [*found.hits[-1].place]) if found.more else None
        return ToolHits(found.hits, following, found.total, found)

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
                if self.exist:
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
            self.index.sync()
            self.stored.reap()

        await run_in_thread(keep)

    async def invoke(self, call: Call, path: Callable[[Call], Awaitable[Result]]) -> Result:
        """Make a call that may be of a tool of a bundle: find the tool, call it by `path`, count the call."""
        if self.stored.is_behind:
            await run_in_thread(self.stored.catch_up)  # It waits for writers.
        name = self.stored.ready(call.tool)
        if name is None:
            return await path(call)
        # A context of its own, because it says in the end if the tool ran.
        ctx = call if isinstance(call, Context) else Context.of(call)
        asked, ctx.tool, id_ = ctx.tool, name, self.stored.id_of(name)
        result = await path(ctx)
        if asked != name:
            result.details = {**(result.details or {}), "tool": name}
        if id_ is not None and ctx.started:  # What was refused is not a call of the tool.
            self.usage.count(id_, failed=not result.ok)
        return result

    def close(self) -> None:
        """Write what is counted, and close the index."""
        if "index" in self.__dict__:
            self.index.close()
        if "stored" in self.__dict__:
            self.stored.close()
        if "usage" in self.__dict__:
            # Counts are statistics: the project closes also if they cannot be written.
            with suppress(StateUnavailable):
                self.usage.close()


def _check_limit(limit: int) -> None:
    if not 1 <= limit <= _MOST:
        raise InvalidInput(f"a page of {limit} tools", hint=f"Ask for 1 to {_MOST}.")
