"""The routes of usage: counts of calls by hours and days."""

from __future__ import annotations

from datetime import UTC, datetime

from msgspec import UNSET, Struct, UnsetType, field

from toolcrib.bundles.records import Moment, Uuid
from toolcrib.serve.http import Answer, Routes
from toolcrib.serve.rest.bundles.tools import named_tool
from toolcrib.serve.rest.pages import Time
from toolcrib.serve.rest.records import in_zone
from toolcrib.serve.rest.refusals import NO_TOOL
from toolcrib.serve.rest.services import RestRequest, covers
from toolcrib.spec.moment import written

ROUTES = Routes()
_WEEK_S = 7 * 86_400


class UsageQuery(Struct, kw_only=True, forbid_unknown_fields=True):
    """The query of the usage of a tool."""

    since: Time | UnsetType = UNSET
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
    tool = request.services.store.tool(*named_tool(request))
    usage = request.services.project.bundles.usage
    total = usage.of(tool.id)
    hours = [
        Hour(begins=written(one.begins), calls=one.calls, failures=one.failures)
        for one in usage.series(tool.id, _since(request.query))
    ]
    return Answer(
        ToolUsage(
            call_count=total.calls,
            failure_count=total.failures,
            last_called_at=written(total.last_called_at),
            hours=hours,
        )
    )


class Day(Struct, frozen=True, kw_only=True, rename="camel"):
    """The calls of one tool that ended on one day."""

    begins: Moment
    calls: int
    failures: int
    p50_ms: float | None = field(name="p50Ms")
    """Half of the calls took no longer, in milliseconds; within a tenth."""
    p95_ms: float | None = field(name="p95Ms")
    """95 of 100 took no longer."""


class ToolDays(Struct, frozen=True, kw_only=True, rename="camel"):
    """The calls of one tool by days (UTC)."""

    bundle_id: Uuid = field(name="bundleID")
    slug: str
    version: str
    name: str
    """The full name by which it is called."""
    days: list[Day]
    """The days with calls, the first one first."""


class Usage(Struct, frozen=True, kw_only=True):
    """The calls of all tools that were called, by tool and day."""

    tools: list[ToolDays]


@ROUTES.add("GET", "/tools/usage", "read", {200: Usage}, query=UsageQuery)
def get_all_usage(request: RestRequest) -> Answer:
    """Return how often each tool was called, how often it failed, and how long it took, by days.

    A tool whose record is gone is left out.
    """
    bundles = request.services.project.bundles
    days: dict[str, list[Day]] = {}
    for one in bundles.usage.days(_since(request.query)):
        moment = written(one.begins)
        day = Day(begins=moment, calls=one.calls, failures=one.failures, p50_ms=one.p50_ms, p95_ms=one.p95_ms)
        days.setdefault(one.tool, []).append(day)
    with bundles.stored.lock:
        called = [tool for tool in bundles.stored.listing.tools() if tool.id in days]
    named = [(tool, request.services.name(tool.bundle, tool.slug, tool.version)) for tool in called]
    return Answer(
        Usage(
            tools=[
                ToolDays(
                    bundle_id=tool.bundle,
                    slug=tool.slug,
                    version=tool.version,
                    name=name,
                    days=days[tool.id],
                )
                for tool, name in named
                if covers(request, name)
            ]
        )
    )


def _since(query: UsageQuery) -> float:
    if query.since is UNSET:
        return datetime.now(UTC).timestamp() - _WEEK_S
    return in_zone(query.since).timestamp()
