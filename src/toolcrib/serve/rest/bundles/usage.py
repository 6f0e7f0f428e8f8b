"""The routes of usage: counts of calls, and counts of tools by tag, type and bundle."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime

from msgspec import UNSET, Struct, UnsetType, field

from toolcrib.bundles.records import Moment
from toolcrib.serve.http import Answer, Routes
from toolcrib.serve.rest.bundles.tools import named_tool
from toolcrib.serve.rest.records import BundleId, in_zone
from toolcrib.serve.rest.refusals import NO_TOOL
from toolcrib.serve.rest.services import RestRequest, covers, covers_all
from toolcrib.spec.moment import written

ROUTES = Routes()
_WEEK_S = 7 * 86_400


class UsageQuery(Struct, kw_only=True, forbid_unknown_fields=True):
    """The query of the usage of a tool."""

    since: datetime | UnsetType = UNSET
    """The first hour, RFC 3339. Default: a week ago."""


class Hour(Struct, kw_only=True):
    """The calls that ended in one hour."""

    begins: Moment
    calls: int
    failures: int


class ToolUsage(Struct, kw_only=True, rename="camel"):
    """The calls of one version of a tool."""

    call_count: int
    failure_count: int
    last_called_at: Moment | None
    hours: list[Hour]
    """The hours with calls, the first one first."""


class FacetsQuery(Struct, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """The query of the counts of tools."""

    bundle_ids: tuple[BundleId, ...] = field(default=(), name="bundleIDs")
    include_disabled: bool = False


class Facets(Struct, kw_only=True):
    """Counts of tools."""

    total: int
    tags: dict[str, int]
    types: dict[str, int]
    bundles: dict[str, int]
    """Id of a bundle to the number of its tools."""


@ROUTES.add(
    "GET",
    "/tools/bundles/{bundleID}/tools/{toolSlug}/version/{v}/usage",
    "read",
    {200: ToolUsage},
    *NO_TOOL,
    query=UsageQuery,
)
def get_usage(request: RestRequest) -> Answer:
    """Return how often a version of a tool was called, by hours."""
    query: UsageQuery = request.query
    tool = request.services.store.tool(*named_tool(request))
    usage = request.services.project.bundles.usage
    since = (
        datetime.now(UTC).timestamp() - _WEEK_S if query.since is UNSET else in_zone(query.since).timestamp()
    )
    total = usage.of(tool.id)
    hours = [
        Hour(begins=written(one.begins), calls=one.calls, failures=one.failures)
        for one in usage.series(tool.id, since)
    ]
    return Answer(
        ToolUsage(
            call_count=total.calls,
            failure_count=total.failures,
            last_called_at=written(total.last_called_at),
            hours=hours,
        )
    )


@ROUTES.add("GET", "/tools/facets", "read", {200: Facets}, query=FacetsQuery)
def count_tools(request: RestRequest) -> Answer:
    """Count the tools by tag, type and bundle."""
    query: FacetsQuery = request.query
    stored = request.services.project.bundles.stored
    everything = covers_all(request)
    tags: Counter[str] = Counter()
    types: Counter[str] = Counter()
    bundles: Counter[str] = Counter()
    # For the whole loop: a change by another thread would end it with an error.
    with stored.lock:
        listing = stored.listing
        for tool in listing.tools():
            if query.bundle_ids and tool.bundle not in query.bundle_ids:
                continue
            seen = everything or covers(request, stored.full_name(tool))
            if seen and (query.include_disabled or listing.is_on(tool)):
                tags.update(tool.tags)
                types[tool.type] += 1
                bundles[tool.bundle] += 1
    by_count = [dict(one.most_common()) for one in (tags, types, bundles)]
    return Answer(Facets(total=types.total(), tags=by_count[0], types=by_count[1], bundles=by_count[2]))
