"""Login and logout of a person's browser, and the start page until there is a web page."""

from __future__ import annotations

import logging
from html import escape
from typing import Any, Literal

from msgspec import Struct
from starlette.responses import HTMLResponse, RedirectResponse, Response

from toolcrib import __version__
from toolcrib.errors import InvalidToken, ToolcribError, UnavailableError
from toolcrib.serve.auth import Client
from toolcrib.serve.http import HEALTH, Answer, Routes
from toolcrib.serve.http.route import Handled
from toolcrib.serve.rest.services import RestRequest
from toolcrib.spec import SCOPES
from toolcrib.state import user_name

ROUTES = Routes()
_log = logging.getLogger("toolcrib.serve.rest")
_PAGE = """<!doctype html><html lang="en"><meta charset="utf-8"><title>Toolcrib</title>
<meta name="viewport" content="width=device-width"><meta name="color-scheme" content="light dark">
<style>body {{ font: 1em/1.5 system-ui; max-width: 50rem; margin: 2rem auto; padding: 0 1rem }}</style>
<h1>Toolcrib {version}</h1><p>{state}
<p>There is no web page yet. From a terminal, in the project:
<ul><li><code>toolcrib approvals watch</code>: decide on calls that wait for you
<li><code>toolcrib list</code>, <code>toolcrib status</code>: tools, and what runs
<li><code>toolcrib token create NAME</code>: a token for a program</ul>
<p>What this server answers, as JSON: <a href="{prefix}/tools">tools</a>,
<a href="{prefix}/approvals">approvals</a>, <a href="{prefix}/tools/calls">calls</a>,
<a href="{prefix}/runs">runs</a>; all of it is in <a href="{prefix}/openapi.json">openapi.json</a>.
"""
# The page names the person who is logged in, so nothing keeps it. No other site may show it in a frame.
_HEADERS = {
    "cache-control": "no-store",
    "vary": "accept, cookie",
    "content-security-policy": "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'",
}


class LoginQuery(Struct, frozen=True, forbid_unknown_fields=True):
    """The query of a login link."""

    code: str


class LoginLink(Struct, frozen=True, rename="camel"):
    """A login link."""

    path: str
    """To open at this server's address, once, within 15 minutes."""


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
    """Return the name and version of this server; a browser gets a page."""
    if _is_browser(request):
        try:
            client = request.services.access.client(request.http.headers, request.http.cookies, safe=True)
        except InvalidToken:
            return _start_page(_prefix(request), None)
        return _start_page(_prefix(request), _person(client))
    return Answer(About("toolcrib", __version__, f"{_prefix(request)}/openapi.json"))


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


@ROUTES.add("GET", "/login", None, {303: None}, InvalidToken, query=LoginQuery)
def log_in(request: RestRequest) -> Response:
    """Use a login link: begin a session and go to the start page."""
    if request.http.method == "HEAD":  # A program that looks at links must not use this one up.
        return Response()
    access = request.services.access
    prefix = _prefix(request)
    # To another address, so that a reload does not use the code again.
    response = RedirectResponse(f"{prefix}/", 303, {"cache-control": "no-store"})
    try:
        session = access.sessions.log_in(request.query.code)
    except InvalidToken:
        if _is_browser(request):
            return response  # The page says if this browser is logged in, and what to do.
        raise
    # A proxy for TLS says so. Whoever else sends this header changes only the answer to itself.
    proxied = request.http.headers.get("x-forwarded-proto", "").partition(",")[0].strip()
    secure = "https" in (request.http.url.scheme, proxied)
    # `strict`: a browser sends it with no request that another site begins; `httponly`: no script reads it.
    response.set_cookie(
        access.cookie, session, path=prefix or "/", httponly=True, samesite="strict", secure=secure
    )
    return response


@ROUTES.add("POST", "/login", "admin", {201: LoginLink})
def create_login_link(request: RestRequest) -> Answer:
    """Create a login link, for one use within 15 minutes. For a token it gives that token's rights."""
    code = request.services.access.sessions.new_code(request.client.identity)
    return Answer(LoginLink(f"{_prefix(request)}/login?code={code}"), 201, {"cache-control": "no-store"})


@ROUTES.add("DELETE", "/session", "read", {204: None})
def log_out(request: RestRequest) -> Response:
    """End the session of this browser."""
    access = request.services.access
    access.sessions.log_out(request.http.cookies.get(access.cookie, ""))
    response = Response(status_code=204)
    response.delete_cookie(access.cookie, path=_prefix(request) or "/", httponly=True, samesite="strict")
    return response


@ROUTES.add("GET", "/session", "read", {200: Identity})
def show_identity(request: RestRequest) -> Answer:
    """Return the client of this request and its rights."""
    client = request.client
    scopes = tuple(scope for scope in SCOPES if client.identity is None or client.identity.may(scope))
    return Answer(Identity(client.caller, _person(client), scopes))


def _start_page(prefix: str, person: str | None) -> HTMLResponse:
    """Return the page; `person` is the one that is logged in."""
    state = (
        "You are not logged in. A login link works once, for 15 minutes: open the one that the server"
        " printed, or start the server again for another."
    )
    if person is not None:
        state = f"You are logged in as {escape(person)}."
    page = _PAGE.format(version=__version__, state=state, prefix=escape(prefix))
    return HTMLResponse(page, headers=_HEADERS)


def _is_browser(request: RestRequest) -> bool:
    return "text/html" in request.http.headers.get("accept", "")


def _person(client: Client) -> str:
    return user_name() if client.identity is None else client.identity.owner


def _prefix(request: RestRequest) -> str:
    """Return the path where the application is mounted; "" at the root."""
    root: Any = request.http.scope.get("root_path", "")
    return str(root)
