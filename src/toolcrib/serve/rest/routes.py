"""The list of all routes. OpenAPI and docs/rest.md are made from it too."""

from __future__ import annotations

from functools import cache
from typing import Any

from toolcrib import __version__
from toolcrib.serve.http import Answer, Route, describe
from toolcrib.serve.rest import artifacts
from toolcrib.serve.rest.admin import (
    approvals,
    audit,
    manifests,
    messages,
    overview,
    policy,
    secrets,
    servers,
    tokens,
)
from toolcrib.serve.rest.bundles import archive, bundles, callers, catalog, drafts, tools, trash, usage
from toolcrib.serve.rest.calls import many
from toolcrib.serve.rest.calls import routes as calls
from toolcrib.serve.rest.records import PATH
from toolcrib.serve.rest.runs import runs, workflows
from toolcrib.serve.rest.services import RestRequest
from toolcrib.serve.rest.ui import asked, events, page, session


def get_openapi(request: RestRequest) -> Answer:
    """Return the description of every route as OpenAPI 3.1."""
    return Answer(openapi(str(request.http.scope.get("root_path", ""))), etag=True)


ROUTES: tuple[Route, ...] = (
    *many.ROUTES,  # First: `cancel` would be taken for the id of a call.
    *calls.ROUTES,
    *tools.ROUTES,
    *callers.ROUTES,
    *drafts.ROUTES,
    *trash.ROUTES,
    *catalog.ROUTES,
    *bundles.ROUTES,
    *usage.ROUTES,
    *archive.ROUTES,
    *artifacts.ROUTES,
    *session.ROUTES,
    *events.ROUTES,
    *page.ROUTES,
    *runs.ROUTES,
    *workflows.ROUTES,
    *approvals.ROUTES,
    *asked.ROUTES,
    *audit.ROUTES,
    *servers.ROUTES,
    *secrets.ROUTES,
    *policy.ROUTES,
    *messages.ROUTES,
    *overview.ROUTES,
    *tokens.ROUTES,
    *manifests.ROUTES,
    Route("GET", "/openapi.json", get_openapi, None, {200: dict[str, Any], 304: None}),
)


@cache
def openapi(prefix: str = "") -> dict[str, Any]:
    """Return the OpenAPI description of all routes below a prefix."""
    return describe(ROUTES, PATH, __version__, prefix)
