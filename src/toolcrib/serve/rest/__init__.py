"""The REST API: every route of it, as one list."""

from toolcrib.serve.rest.routes import ROUTES, openapi
from toolcrib.serve.rest.serve import HttpSettings, rest_app, serve_http
from toolcrib.serve.rest.services import Services

__all__ = ["ROUTES", "HttpSettings", "Services", "openapi", "rest_app", "serve_http"]
