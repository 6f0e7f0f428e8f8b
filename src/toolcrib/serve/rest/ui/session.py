"""Login and logout of a person's browser, and what this server is."""

from __future__ import annotations

import logging
from typing import Any, Literal

from msgspec import Struct
from starlette.responses import Response

from toolcrib import __version__
from toolcrib.errors import InvalidToken, ToolcribError, UnavailableError
from toolcrib.serve.auth import Client, bearer
from toolcrib.serve.http import HEALTH, Answer, Routes
from toolcrib.serve.http.route import Handled
from toolcrib.serve.rest.records import Body
from toolcrib.serve.rest.services import RestRequest
from toolcrib.serve.rest.ui.page import page_or_nothing
from toolcrib.spec import SCOPES
from toolcrib.state import user_name

ROUTES = Routes()
_log = logging.getLogger("toolcrib.serve.rest")
_UNKEPT = {"cache-control": "no-store"}


class LoginCode(Body, kw_only=True):
    """The code of a login link."""

    code: str


class LoginLink(Struct, frozen=True, rename="camel"):
    """A login link."""

    path: str
    """To open at this server's address, once, within 15 minutes."""


class SessionToken(Struct, frozen=True, rename="camel"):
    """A session that has begun."""

    token: str
    """For `Authorization: Bearer`, until 12 hours after the last request, or until the server ends."""


class Download(Body, kw_only=True):
    """The address that a browser is to save."""

    path: str
    """The path of a GET route, without its query: `/tools/artifacts/ID`, `/audit/export`."""


class DownloadCode(Struct, frozen=True):
    """The code of a one-time address."""

    once: str
    """For one GET of the path with this code as `once` in its query, in place of a token, within a minute."""


class Identity(Struct, frozen=True, rename="camel"):
    """The client of a request."""

    caller: str
    """`token:<name>`, or `page` for the person who used the login link."""
    person: str
    """The person it acts for."""
    scopes: tuple[str, ...]


class About(Struct, frozen=True, rename="camel"):
    """The program that answers."""

    name: str
    version: str
    openapi: str


class Health(Struct, frozen=True):
    """The answer of a server that works."""

    status: Literal["ok"]


@ROUTES.add("GET", "/", None, {200: About})
def about(request: RestRequest) -> Handled:
    """Return the name and version of this server; a browser gets the web page."""
    if "text/html" in request.http.headers.get("accept", ""):
        return page_or_nothing()
    headers = {"vary": "accept"}
    return Answer(About("toolcrib", __version__, f"{_prefix(request)}/openapi.json"), headers=headers)


@ROUTES.add("GET", HEALTH, None, {200: Health}, UnavailableError)
def check_health(request: RestRequest) -> Answer:
    """Say if calls can run: the audit log can be written, and the database answers.

    Of all routes only this one takes any `Host`, as the probe of an orchestrator names an address.
    """
    try:
        request.services.project.check()
    except ToolcribError as error:
        _log.warning("the project cannot be used: %s", error.message)
        raise UnavailableError("no call can run now", hint="The server's log has the reason.") from None
    return Answer(Health("ok"))


@ROUTES.add("POST", "/login", "admin", {201: LoginLink})
def create_login_link(request: RestRequest) -> Answer:
    """Create a login link, for one use within 15 minutes. For a token it gives that token's rights."""
    code = request.services.access.sessions.new_code(request.client.identity)
    return Answer(LoginLink(f"{_prefix(request)}{login_path(code)}"), 201, _UNKEPT)


def login_path(code: str) -> str:
    """Return the address of a login link. A browser keeps the fragment to itself: no log has the code."""
    return f"/#code={code}"


@ROUTES.add("POST", "/session", None, {201: SessionToken}, InvalidToken, body=LoginCode)
def log_in(request: RestRequest) -> Answer:
    """Begin a session with the code of a login link, which then is used up."""
    code: str = request.body().code
    return Answer(SessionToken(request.services.access.sessions.log_in(code)), 201, _UNKEPT)


@ROUTES.add("DELETE", "/session", "read", {204: None})
def log_out(request: RestRequest) -> Response:
    """End the session of this request's token."""
    request.services.access.sessions.log_out(bearer(request.http.headers.get("authorization", "")))
    return Response(status_code=204)


@ROUTES.add("POST", "/downloads", "read", {201: DownloadCode}, body=Download)
def create_download(request: RestRequest) -> Answer:
    """Create a one-time address, by which a browser saves the answer of a GET as it comes."""
    code = request.services.access.new_download(request.client, request.body().path)
    return Answer(DownloadCode(code), 201, _UNKEPT)


@ROUTES.add("GET", "/session", "read", {200: Identity})
def show_identity(request: RestRequest) -> Answer:
    """Return the client of this request and its rights."""
    client = request.client
    scopes = tuple(scope for scope in SCOPES if client.identity is None or client.identity.may(scope))
    return Answer(Identity(client.caller, _person(client), scopes))


def _person(client: Client) -> str:
    return user_name() if client.identity is None else client.identity.owner


def _prefix(request: RestRequest) -> str:
    """Return the path where the application is mounted; "" at the root."""
    root: Any = request.http.scope.get("root_path", "")
    return str(root)
