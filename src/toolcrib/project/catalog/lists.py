"""The lists of a project: pages, search and counts of its one catalogue."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Any

from toolcrib.project.catalog.bundles import Bundles, Wish
from toolcrib.project.catalog.catalog import ProjectCatalog
from toolcrib.spec import Caller, Tool
from toolcrib.spec.calls.caller import OWN_CALLERS

if TYPE_CHECKING:
    from toolcrib.bundles.answers import Source, ToolItem
    from toolcrib.bundles.listing import Sort
    from toolcrib.project.catalog.pages import ToolPage


class ListParts:
    """A project as those see it who look for its tools."""

    catalog: ProjectCatalog
    bundles: Bundles

    def tools(
        self, caller: str = "local", identity: Caller | None = None, *, among: Collection[str] | None = None
    ) -> Sequence[Tool]:
        """Return every usable tool that this caller may see: by names of manifests, then as registered.

        Tools of bundles come last. `among` are names: then only these.
        Raises InvalidToken, as `search` and `subscribe` do, if the caller's token is no longer valid.
        """
        return self.catalog.tools(caller, identity, among)

    def list_tools(
        self,
        *,
        tags: Sequence[str] = (),
        kinds: Sequence[str] = (),
        sources: Sequence[Source] = (),
        disabled: bool = False,
        sort: Sort = "name",
        limit: int = 25,
        page: str | None = None,
    ) -> ToolPage[ToolItem]:
        """Return a page of the catalogue: each tool with its source, switch, trust and calls.

        `tools` is the page and `next` the `page` after it, in the same order whatever has changed meanwhile.
        `limit` is at most 256. Raises UsageError for a page of another list.
        """
        wish = Wish(tags=tags, kinds=kinds, sources=sources, include_disabled=disabled)
        return self.bundles.tools(wish, sort=sort, limit=limit, page=page)

    def search(
        self,
        query: str,
        *,
        tags: Sequence[str] = (),
        kinds: Sequence[str] = (),
        limit: int = 25,
        page: str | None = None,
        facets: bool = False,
        caller: str = "local",
        identity: Caller | None = None,
    ) -> dict[str, Any]:
        """Return the tools that match some words, the best first: `hits`, `total`, `next`.

        Only tools that this caller may see. `limit` is at most 256; `page` is the `next` of the page before;
        `facets` adds how many hits have each tag and kind. Raises UsageError for a query without a word, and
        for a page of another search.
        """
        wish = self.wish(caller, identity, tags=tags, kinds=kinds)
        found = self.bundles.search(query, wish, limit=limit, page=page)
        from msgspec import to_builtins

        answer = {"hits": to_builtins(found.tools), "total": found.total}
        if facets:
            counts = self.bundles.facets(query, wish)
            answer["facets"] = {"tags": counts.tags, "kinds": counts.kinds}
        return {**answer, "next": found.next}

    def suggest(
        self, question: str, *, limit: int = 5, caller: str = "local", identity: Caller | None = None
    ) -> Sequence[str]:
        """Return the names of the tools that fit a question best, of those that this caller may see.

        Unlike `search` it counts words of the same meaning too, and it needs no word to match exactly.
        """
        return self.bundles.suggest(question, self.wish(caller, identity), limit=limit)

    def described(self, caller: str = "local", identity: Caller | None = None) -> Sequence[tuple[str, str]]:
        """Return name and description of each of the `tools`, by name."""
        return self.bundles.described(self.wish(caller, identity))

    @staticmethod
    def wish(caller: str, identity: Caller | None, **more: Any) -> Wish:
        """Return the conditions of a list for a caller: no model reads what nobody has trusted."""
        models = caller not in OWN_CALLERS or identity is not None
        return Wish(caller=caller, identity=identity, models=models, **more)
