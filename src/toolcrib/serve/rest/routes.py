"""The list of all routes. OpenAPI and docs/rest.md are made from it too."""

from __future__ import annotations

from toolcrib.serve.http import Route
from toolcrib.serve.rest import bundles, calls, session, tools

__all__ = ["ROUTES"]

ROUTES: tuple[Route, ...] = (*calls.ROUTES, *tools.ROUTES, *bundles.ROUTES, *session.ROUTES)
