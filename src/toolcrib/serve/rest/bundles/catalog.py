"""The lists over all bundles: pages of tools, and search."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType, field

from toolcrib.bundles.listing import ListedTool
from toolcrib.bundles.records import Availability
from toolcrib.serve.http import Answer, Routes
from toolcrib.serve.rest.pages import DEFAULT_PAGE, MOST, PageQuery, PageToken, token_of
from toolcrib.serve.rest.records import BundleId, Tag
from toolcrib.serve.rest.services import RestRequest, Services, sees

ROUTES = Routes()


class ToolsQuery(Struct, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """The query of a list of tools."""

    bundle_ids: tuple[BundleId, ...] = field(default=(), name="bundleIDs")
    """Only tools of these bundles."""
    tags: tuple[Tag, ...] = ()
    """Only tools with any of these tags."""
    include_disabled: bool = False
    recommended_page_size: Annotated[int, Meta(ge=1, le=2**63 - 1)] = DEFAULT_PAGE
    """A hint: a page has at most 256 tools."""
    page_token: PageToken | UnsetType = UNSET


class SearchQuery(PageQuery, kw_only=True):
    """The query of a search."""

    q: str
    """The words to find: in names, tags, descriptions and names of arguments."""
    bundle_ids: tuple[BundleId, ...] = field(default=(), name="bundleIDs")
    """Only tools of these bundles."""
    tags: tuple[Tag, ...] = ()
    """Only tools with any of these tags."""
    include_disabled: bool = False


class ToolItem(Struct, kw_only=True, rename="camel"):
    """One tool in a list. Its schemas and `impl` are in its record."""

    name: str
    """The name to call it by: `bundle/slug@version`."""
    tool_id: str = field(name="toolID")
    bundle_id: str = field(name="bundleID")
    slug: str
    version: str
    display_name: str
    description: str
    type: str
    tags: tuple[str, ...]
    is_enabled: bool
    """Of the tool itself. If its bundle is disabled, so is the tool."""
    availability: Availability
    """`unavailable` if its function is not registered in this server, or its record cannot be read: then it
    counts as disabled."""
    unavailable_because: str | None
    is_built_in: bool
    created_at: str
    modified_at: str


class ToolList(Struct, kw_only=True, rename="camel"):
    """A page of tools, the newest first."""

    tools: list[ToolItem]
    next_page_token: str | None


class FoundTool(ToolItem, kw_only=True):
    """One tool that a search found."""

    match: str
    """The kind of match: `prefix`, `word`, `fuzzy`, or `some` of the words."""
    field: str
    """The field that matched: `name`, `tags`, `description`, `arguments` or `several`."""


class FoundTools(Struct, kw_only=True, rename="camel"):
    """A page of hits, the best first."""

    tools: list[FoundTool]
    next_page_token: str | None
    total: int
    """All hits that the token covers, on every page."""
    tag_counts: dict[str, int]
    """Hits with each tag."""
    type_counts: dict[str, int]
    """Hits of each type."""


@ROUTES.add("GET", "/tools", "read", {200: ToolList}, query=ToolsQuery)
def list_tools(request: RestRequest) -> Answer:
    """List the tools of all bundles, the newest first. Disabled ones are left out unless asked for."""
    query: ToolsQuery = request.query
    page = request.services.project.bundles.tools(
        bundles=query.bundle_ids,
        tags=query.tags,
        include_disabled=query.include_disabled,
        limit=min(query.recommended_page_size, MOST),
        page=token_of(query.page_token),
        sees=sees(request),
    )
    return Answer(ToolList(tools=_items(request.services, page.tools), next_page_token=page.next))


@ROUTES.add("GET", "/tools/search", "read", {200: FoundTools}, query=SearchQuery)
def search_tools(request: RestRequest) -> Answer:
    """Find tools by their beginnings, by words, and with typing errors.

    The best come first: beginnings of words, whole words, then words with typing errors; in each class the
    names before tags, descriptions and names of arguments.
    """
    query: SearchQuery = request.query
    found = request.services.project.bundles.search(
        query.q,
        bundles=query.bundle_ids,
        tags=query.tags,
        include_disabled=query.include_disabled,
        limit=query.page_size,
        page=token_of(query.page_token),
        sees=sees(request),
    )
    items = _items(request.services, [one.tool for one in found.hits])
    hits = [
        FoundTool(**msgspec.structs.asdict(item), match=one.match, field=one.field)
        for item, one in zip(items, found.hits, strict=True)
    ]
    return Answer(
        FoundTools(
            tools=hits,
            next_page_token=found.next,
            total=found.total,
            tag_counts=found.tags,
            type_counts=found.types,
        )
    )


def _items(services: Services, tools: Iterable[ListedTool]) -> list[ToolItem]:
    """Return tools as they are listed."""
    stored = services.project.bundles.stored
    listing = stored.listing
    bundles = listing.bundles
    return [
        ToolItem(
            name=stored.full_name(tool),
            tool_id=tool.id,
            bundle_id=tool.bundle,
            slug=tool.slug,
            version=tool.version,
            display_name=tool.name,
            description=tool.description,
            type=tool.type,
            tags=tool.tags,
            is_enabled=tool.enabled,
            availability="available" if listing.is_whole(tool) else "unavailable",
            unavailable_because=stored.why_not_whole(tool),
            is_built_in=tool.bundle in bundles and bundles[tool.bundle].is_built_in,
            created_at=tool.created,
            modified_at=tool.modified,
        )
        for tool in tools
    ]
