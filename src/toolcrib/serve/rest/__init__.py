"""The REST API: every route of it, as one list."""

from toolcrib.serve.rest.routes import ROUTES, openapi
from toolcrib.serve.rest.serve import HttpSettings, serve_http
from toolcrib.serve.rest.serve import rest_app as rest_app
from toolcrib.serve.rest.ui.links import running_link
