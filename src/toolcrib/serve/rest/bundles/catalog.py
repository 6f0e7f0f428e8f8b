"""The lists over all bundles: pages of tools, search, and counts."""

from __future__ import annotations

from typing import Annotated

from msgspec import UNSET, Meta, Struct, UnsetType, field

from toolcrib.bundles.answers import Availability, FoundTool, Source, ToolItem
from toolcrib.bundles.listing import Sort
from toolcrib.manifest.touches import Touch
from toolcrib.project.catalog.bundles import Wish
from toolcrib.schema.provider_shapes import Shape
from toolcrib.serve.http import Answer, Routes
from toolcrib.serve.rest.pages import DEFAULT_PAGE, MOST, PageToken, given
from toolcrib.serve.rest.records import BundleId, Tag
from toolcrib.serve.rest.services import RestRequest

ROUTES = Routes()


class ToolsFilter(Struct, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """The filters of lists, searches and counts. Of several values one must match."""

    bundle_ids: tuple[BundleId, ...] = field(default=(), name="bundleIDs")
    """Only tools of these bundles."""
    tags: tuple[Tag, ...] = ()
    """Only tools with any of these tags."""
    kinds: tuple[str, ...] = ()
    """Only tools of these kinds: `http`, `command`, `python`, …"""
    sources: tuple[Source, ...] = ()
    """Only tools of these sources."""
    availability: tuple[Availability, ...] = ()
    touches: tuple[Touch, ...] = ()
    """Only tools that may touch any of these; not with more than 1,000 records."""
    include_disabled: bool = False


class ListFilter(ToolsFilter, kw_only=True):
    """The filters of lists and searches, and the form of their tools."""

    shape: Shape | UnsetType = field(default=UNSET, name="for")
    """The provider in whose form each tool is shown as well. Such a list has only what a model may read."""


class ToolsQuery(ListFilter, kw_only=True):
    """The query of a list of tools."""

    sort: Sort = "createdAt"
    """By name the first come first, otherwise the newest or greatest."""
    recommended_page_size: Annotated[int, Meta(ge=1, le=2**63 - 1)] = DEFAULT_PAGE
    """A hint: a page has at most 256 tools, and at most 256 KiB."""
    page_token: PageToken | UnsetType = UNSET


class SearchQuery(ListFilter, kw_only=True):
    """The query of a search."""

    q: str
    """The words to find: in names, tags, descriptions and names of arguments."""
    page_size: Annotated[int, Meta(ge=1, le=MOST)] = DEFAULT_PAGE
    page_token: PageToken | UnsetType = UNSET


class FacetsQuery(ToolsFilter, kw_only=True):
    """The query of counts."""

    q: str | UnsetType = UNSET
    """Only tools that a search for these words finds."""


class ToolList(Struct, kw_only=True, rename="camel"):
    """A page of tools."""

    tools: list[ToolItem]
    next_page_token: str | None


class FoundTools(Struct, kw_only=True, rename="camel"):
    """A page of hits, the best first."""

    tools: list[FoundTool]
    next_page_token: str | None
    total: int
    """All hits, on every page."""


class FacetCounts(Struct, kw_only=True):
    """Counts of the tools that the client may see."""

    total: int
    tags: dict[str, int]
    kinds: dict[str, int]
    types: dict[str, int]
    sources: dict[str, int]
    bundles: dict[str, int]
    """Id of a bundle to the number of its tools."""
    availability: dict[str, int]
    touches: dict[str, int]
    """Things that they may touch; empty with more than 1,000 records."""
    disabled: int
    """The number of disabled ones, also where `total` is without them."""


def _wish(request: RestRequest) -> Wish:
    query: ToolsFilter = request.query
    shape = getattr(query, "shape", UNSET) or None
    return Wish(
        query.bundle_ids, query.tags, query.kinds, query.sources, query.availability, query.touches,
        query.include_disabled, request.client.caller, request.client.identity,
        models=shape is not None, shape=shape,
    )  # fmt: skip


@ROUTES.add("GET", "/tools", "read", {200: ToolList}, query=ToolsQuery)
def list_tools(request: RestRequest) -> Answer:
    """List the tools of all bundles, of whatever source. Disabled ones are left out unless asked for.

    The order is that of the first page: what changes between two pages moves no other tool.
    """
    query: ToolsQuery = request.query
    page = request.services.project.bundles.tools(
        _wish(request),
        sort=query.sort,
        limit=min(query.recommended_page_size, MOST),
        page=given(query.page_token),
    )
    return Answer(ToolList(tools=page.tools, next_page_token=page.next))


@ROUTES.add("GET", "/tools/search", "read", {200: FoundTools}, query=SearchQuery)
def search_tools(request: RestRequest) -> Answer:
    """Find tools by their beginnings, by words, and with typing errors.

    The best come first: beginnings of words, whole words, then words with typing errors; in each class the
    names before tags, descriptions and names of arguments. If no tool has all the words, those that fit their
    meaning best come first.
    """
    query: SearchQuery = request.query
    found = request.services.project.bundles.search(
        query.q, _wish(request), limit=query.page_size, page=given(query.page_token)
    )
    return Answer(FoundTools(tools=found.tools, next_page_token=found.next, total=found.total or 0))


@ROUTES.add("GET", "/tools/facets", "read", {200: FacetCounts}, query=FacetsQuery)
def count_tools(request: RestRequest) -> Answer:
    """Count the tools of a list or search by their facts: tag, kind, source, bundle, what they touch."""
    query: FacetsQuery = request.query
    words = None if query.q is UNSET else query.q
    found = request.services.project.bundles.facets(words, _wish(request))
    return Answer(FacetCounts(**found._asdict()))
