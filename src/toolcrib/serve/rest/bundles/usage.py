"""The route of usage: counts of calls by hours."""

from __future__ import annotations

from datetime import UTC, datetime

from msgspec import UNSET, Struct, UnsetType

from toolcrib.bundles.records import Moment
from toolcrib.serve.http import Answer, Routes
from toolcrib.serve.rest.bundles.tools import named_tool
from toolcrib.serve.rest.records import in_zone
from toolcrib.serve.rest.refusals import NO_TOOL
from toolcrib.serve.rest.services import RestRequest
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
