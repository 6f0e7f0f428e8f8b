"""The routes of usage: counts of calls by hours and days."""

from __future__ import annotations

from datetime import UTC, datetime

import msgspec
from msgspec import UNSET, Struct, UnsetType, field

from toolcrib.bundles import ListedTool
from toolcrib.bundles.records import Moment, Uuid
from toolcrib.errors import ToolcribError
from toolcrib.project.catalog.bundles import Bundles
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


class TotalsQuery(UsageQuery, kw_only=True):
    """The query of the usage of all tools."""

    unused: bool = False
    """Also the tools without a call in this time."""


class Day(Struct, frozen=True, kw_only=True, rename="camel"):
    """The calls of one tool that ended on one day."""

    begins: Moment
    calls: int
    failures: int
    p50_ms: float | None = field(name="p50Ms")
    """Half of the calls took no longer, in milliseconds; within a tenth."""
    p95_ms: float | None = field(name="p95Ms")
    """95 of 100 took no longer."""
    result_tokens: int
    """Tokens of their results, about: a token for each 4 bytes."""


class ToolDays(Struct, frozen=True, kw_only=True, rename="camel"):
    """The calls of one tool by days (UTC)."""

    bundle_id: Uuid = field(name="bundleID")
    slug: str
    version: str
    name: str
    """The full name by which it is called."""
    schema_tokens: int
    """Tokens of its name, description and schema, about, in each request to a model; 0 if unreadable."""
    days: list[Day]
    """The days with calls, the first one first."""


class Usage(Struct, frozen=True, kw_only=True):
    """The calls of all tools, by tool and day."""

    tools: list[ToolDays]


@ROUTES.add("GET", "/tools/usage", "read", {200: Usage}, query=TotalsQuery)
def get_all_usage(request: RestRequest) -> Answer:
    """Return how often each tool was called, how often it failed, how long it took, and its tokens, by days.

    A tool whose record is gone is left out, and one without a call, unless they are asked for.
    """
    bundles = request.services.project.bundles
    days: dict[str, list[Day]] = {}
    for one in bundles.usage.days(_since(request.query)):
        day = Day(
            begins=written(one.begins),
            calls=one.calls,
            failures=one.failures,
            p50_ms=one.p50_ms,
            p95_ms=one.p95_ms,
            result_tokens=_tokens(one.answered),
        )
        days.setdefault(one.tool, []).append(day)
    with bundles.stored.lock:
        listed = [tool for tool in bundles.stored.listing.tools() if request.query.unused or tool.id in days]
    named = [(tool, request.services.name(tool.bundle, tool.slug, tool.version)) for tool in listed]
    return Answer(
        Usage(
            tools=[
                ToolDays(
                    bundle_id=tool.bundle,
                    slug=tool.slug,
                    version=tool.version,
                    name=name,
                    schema_tokens=_schema_tokens(bundles, tool),
                    days=days.get(tool.id, []),
                )
                for tool, name in named
                if covers(request, name)
            ]
        )
    )


def _schema_tokens(bundles: Bundles, listed: ListedTool) -> int:
    try:
        tool = bundles.entries.tool(listed)
    except ToolcribError:
        return 0
    return _tokens(len(msgspec.json.encode([tool.name, tool.description, tool.input_schema])))


def _tokens(size: int) -> int:
    """Return about how many tokens a text of so many bytes has."""
    return -(-size // 4)


def _since(query: UsageQuery) -> float:
    if query.since is UNSET:
        return datetime.now(UTC).timestamp() - _WEEK_S
    return in_zone(query.since).timestamp()
