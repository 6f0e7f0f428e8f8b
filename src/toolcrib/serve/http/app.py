"""The ASGI application: routes requests, checks their client, query and body, and answers.

It is one plain ASGI callable, so it can be mounted below any prefix of another application.
"""

from __future__ import annotations

import hashlib
import inspect
import logging
import re
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from starlette.concurrency import run_in_threadpool
from starlette.datastructures import MutableHeaders
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route as PathRoute
from starlette.routing import Router
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from toolcrib.errors import NotFoundError, PreconditionFailed, ToolcribError, UsageError
from toolcrib.serve.auth import NOBODY, Access, Client
from toolcrib.serve.http.problems import no_such_method, problem
from toolcrib.serve.http.reading import JSON, check_coding, media_type_of, read_query, receive_body
from toolcrib.serve.http.route import Answer, Handled, HttpRequest, Route
from toolcrib.spec.identifier import new_id

BODY_S = 30.0
HEALTH = "/health"
"""The path that takes any Host: who probes a server has its address only."""

ONCE = "once"
"""The parameter of any GET with the code of a download, in place of a token."""
_log = logging.getLogger("toolcrib.serve.http")
# The id of a client is written to the log, so it has nothing that could look like a line of its own.
_REQUEST_ID = re.compile(r"[A-Za-z0-9._-]{1,64}")
# Answers hold outputs of tools: no browser may take one for a page, and no shared cache may keep it.
SECURITY_HEADERS = {
    "cache-control": "no-cache, private",
    "cross-origin-resource-policy": "same-origin",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
}
_SAFE = ("GET", "HEAD")
_ONCE = ("host", "origin", "authorization")
"""Headers that decide who may do what."""


def create_app(routes: Sequence[Route], services: Any, access: Access, *, body_s: float = BODY_S) -> ASGIApp:
    """Return the application of these routes. Each handler gets `services` in its request.

    `body_s` is how many seconds a body may take, beside those of its length.
    """
    by_path: dict[str, dict[str, Route]] = {}
    for route in routes:
        by_path.setdefault(route.path, {})[route.method] = route
    # A name may have slashes, as in `bundle/slug@version`.
    endpoints = [
        PathRoute(path.replace("{name}", "{name:path}"), _Address(methods, services, access, body_s))
        for path, methods in by_path.items()
    ]
    return _Frame(Router(endpoints, redirect_slashes=False, default=_no_such_path), access)


class _Frame:
    """The common frame of all requests: the id, the checks of Host and Origin, headers, unexpected errors."""

    def __init__(self, app: ASGIApp, access: Access) -> None:
        self._app, self._access = app, access

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        request = Request(scope)
        asked = request.headers.get("x-request-id", "")
        request_id = asked if _REQUEST_ID.fullmatch(asked) else new_id()
        begun = False

        async def add_headers(message: Message) -> None:
            nonlocal begun
            if message["type"] == "http.response.start":
                begun = True
                headers = MutableHeaders(scope=message)
                for name, value in SECURITY_HEADERS.items():
                    headers.setdefault(name, value)
                headers["x-request-id"] = request_id
            await send(message)

        try:
            for name in _ONCE:
                if len(request.headers.getlist(name)) > 1:  # A proxy might act on the other one.
                    raise UsageError(f"the header {name} comes more than once")
            # Before any route: a page of another site does not even learn what is public here.
            if scope["path"] != scope.get("root_path", "") + HEALTH:
                self._access.hosts.check(request.headers.get("host"), request.headers.get("origin"))
            await self._app(scope, receive, add_headers)
        except ClientDisconnect:
            pass
        except ToolcribError as error:
            await problem(error)(scope, receive, add_headers)
        except Exception:
            _log.exception("request %s failed", request_id)
            # A second head cannot be sent. The server then closes the connection, so that the client does not
            # take a part of the answer for all of it.
            if begun:
                raise
            fault = ToolcribError(
                "the request failed",
                hint="The server's log has the reason.",
                details={"requestId": request_id},
            )
            await problem(fault)(scope, receive, add_headers)


class _Address:
    """The routes of one path, by method."""

    def __init__(self, methods: Mapping[str, Route], services: Any, access: Access, body_s: float) -> None:
        self._methods = dict(methods)
        if "GET" in methods:
            # RFC 9110, 9.3.2: the same as GET. The server leaves the body out.
            self._methods["HEAD"] = methods["GET"]
        self._services, self._access, self._body_s = services, access, body_s

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        http = Request(scope, receive)
        route = self._methods.get(http.method)
        if route is None:
            response = no_such_method(self._methods)
        else:
            client = None
            try:
                client = self._client(route, http)
                answer = await self._handled(route, http, client)
            except ToolcribError as error:
                self._access.hide(error, NOBODY if client is None else client.identity)
                raise
            response = answer if isinstance(answer, Response) else _response(answer, http)
        await response(scope, receive, send)

    def _client(self, route: Route, http: Request) -> Client | None:
        if route.scope is None:
            return None
        code = http.query_params.get(ONCE) if http.method == "GET" else None
        path = http.scope["path"].removeprefix(http.scope.get("root_path", ""))
        access = self._access
        client = access.client(http.headers) if code is None else access.downloading(code, path)
        client.require(route.scope)
        return client

    async def _handled(self, route: Route, http: Request, client: Client | None) -> Handled:
        query = read_query((one for one in http.query_params.multi_items() if one[0] != ONCE), route.query)
        # The body is read last: who has no right here cannot make the server hold a large one in memory.
        data, media_type = b"", ""
        if route.body is not None or route.raw:
            allowed = [*([] if route.body is None else [JSON]), *route.raw]
            check_coding(http.headers.get("content-encoding", ""))
            media_type = media_type_of(http.headers.get("content-type", ""), allowed)
            length = http.headers.get("content-length", "")
            data = await receive_body(http.receive, length, route.max_body, self._body_s)
        request = HttpRequest(http, route, self._services, client, query, data, media_type)
        if inspect.iscoroutinefunction(route.handler):
            answer: Handled = await route.handler(request)
            return answer
        return await run_in_threadpool(route.handler, request)  # type: ignore[arg-type]


def _response(answer: Answer, http: Request) -> Response:
    if answer.value is None:
        return Response(status_code=answer.status, headers=answer.headers)
    body = msgspec.json.encode(answer.value)
    if answer.etag is not None:
        of = body if answer.etag is True else msgspec.json.encode(answer.etag)
        tag = answer.headers["etag"] = etag_of(of)
        if http.method in _SAFE and matches(http.headers.get("if-none-match"), tag):
            return Response(status_code=304, headers=answer.headers)
    return Response(body, answer.status, answer.headers, JSON)


async def _no_such_path(scope: Scope, receive: Receive, send: Send) -> None:
    """Answer a request for a path without a route."""
    error = NotFoundError(
        f"there is nothing at {scope['path'][:200]!r}", hint="GET /openapi.json lists all routes."
    )
    await problem(error)(scope, receive, send)


def etag_of(body: bytes) -> str:
    """Return the ETag of a body."""
    return f'"{hashlib.sha256(body).hexdigest()[:32]}"'


def matches(header: str | None, tag: str) -> bool:
    """Return True if a list of ETags, or `*`, names this one."""
    listed = "" if header is None else header
    # A proxy that compresses an answer makes its ETag weak; the record is the same.
    return any(one.strip().removeprefix("W/") in (tag, "*") for one in listed.split(","))


def check_preconditions(headers: Mapping[str, str], current: Any) -> None:
    """Raise PreconditionFailed if `If-Match` or `If-None-Match` forbids a change.

    `current` is the value whose ETag a GET would answer now, None if there is nothing.
    """
    tag = "" if current is None else etag_of(msgspec.json.encode(current))
    wanted = headers.get("if-match")
    if wanted is not None and (not tag or not matches(wanted, tag)):
        raise PreconditionFailed(hint="GET it again, and send the new ETag.", details={"etag": tag or None})
    if tag and matches(headers.get("if-none-match"), tag):
        raise PreconditionFailed("it exists already", details={"etag": tag})
