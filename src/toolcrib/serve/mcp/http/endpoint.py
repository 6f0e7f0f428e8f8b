"""The MCP endpoint of the HTTP server, straight on ASGI."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any
from urllib.parse import parse_qs

from starlette.requests import ClientDisconnect
from starlette.responses import JSONResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send

from toolcrib.errors import (
    DeniedError,
    InvalidToken,
    ToolcribError,
    UnsupportedMediaType,
    UsageError,
)
from toolcrib.schema.hosts import HOSTS
from toolcrib.serve.auth import NOBODY, Access, Client, OutsideTokens, bearer
from toolcrib.serve.http import BODY_S, SECURITY_HEADERS, check_coding, check_length, no_such_method, problem
from toolcrib.serve.mcp.calls import CallLoad
from toolcrib.serve.mcp.connection import Connection
from toolcrib.serve.mcp.http.exchange import EVENT_STREAM, Exchange, Incoming
from toolcrib.serve.mcp.http.headers import check_message, check_params, single_headers
from toolcrib.serve.mcp.http.sessions import McpSession, McpSessions
from toolcrib.serve.mcp.http.streams import EventStream
from toolcrib.serve.mcp.lists import AdvertisedTool, Listings
from toolcrib.serve.mcp.request import Channel, meta_of
from toolcrib.serve.mcp.settings import ServerSettings
from toolcrib.serve.mcp.wire import (
    SESSION_VERSIONS,
    VERSION_KEY,
    ErrorCode,
    JsonRpcError,
    error_answer,
    is_request_id,
    read_message,
)
from toolcrib.spec import Catalog

_log = logging.getLogger("toolcrib.serve.mcp")

PATH = "/mcp"
_JSON = "application/json"
_CALLS = frozenset(["tools/call", "prompts/get", "resources/read"])
_GRACE_S = 1.0
_LISTINGS = 64
_MOST_BEGIN = 64 << 10
"""Bytes of `initialize`: each session keeps a part of it."""
_STATUS: dict[int, int] = {
    ErrorCode.PARSE_ERROR: 400,
    ErrorCode.INVALID_REQUEST: 400,
    ErrorCode.INVALID_PARAMS: 400,
    ErrorCode.HEADER_MISMATCH: 400,
    ErrorCode.CAPABILITY_MISSING: 400,
    ErrorCode.UNSUPPORTED_VERSION: 400,
    ErrorCode.METHOD_NOT_FOUND: 404,
    ErrorCode.BUSY: 503,
}
"""HTTP status of an error in 2026-07-28."""


class McpEndpoint:
    """Answers requests for `/mcp`, and gives everything else to the application."""

    def __init__(
        self,
        app: ASGIApp,
        catalog: Catalog,
        access: Access,
        settings: ServerSettings,
        *,
        outside: OutsideTokens | None = None,
        body_s: float = BODY_S,
    ) -> None:
        self._app, self._catalog, self._access = app, catalog, access
        self._settings, self._outside, self._body_s = settings, outside, body_s
        self._listings = Listings(catalog, settings.page_size, _LISTINGS)
        # One connection serves all clients without a session, so it gets higher limits than one client.
        alone = replace(settings, max_running=max(256, settings.max_running), max_streams=1_024)
        self._load = CallLoad()
        self._alone = Connection(catalog, _drop, alone, listings=self._listings, load=self._load)
        """Serves all stateless requests."""
        self.sessions = McpSessions()
        self._incoming = Incoming()
        self._host = b""
        """The header Host that was checked last."""
        self._types: tuple[bytes | None, bytes | None] | None = None
        """The headers Content-Type and Accept that were checked last."""
        self._methods = {"POST": self._post, "GET": self._get, "DELETE": self._delete}

    async def close(self) -> None:
        """Cancel all calls and end all streams."""
        await asyncio.gather(self._alone.drain(_GRACE_S), self.sessions.close())
        if self._outside is not None:
            await self._outside.close()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        path = scope["path"].removeprefix(scope.get("root_path", "")) if scope["type"] == "http" else ""
        if self._outside is not None and path == self._outside.resource.metadata_path:
            await _respond(JSONResponse(self._outside.resource.metadata), scope, receive, send)
            return
        if path != PATH:
            await self._app(scope, receive, send)
            return
        client = None
        try:
            headers = single_headers(scope["headers"])
            # Before the token: a page of another site (DNS rebinding) must get no further than this.
            self._check_origin(headers)
            method = self._methods.get(scope["method"])
            if method is None:
                await _respond(no_such_method(self._methods), scope, receive, send)
                return
            wanted = _wanted(scope["query_string"])
            client = await self._client(headers)
            await method(Exchange(headers, client, receive, send, self._incoming, wanted))
        except JsonRpcError as error:
            status = 404 if isinstance(error, _NoSession) else _STATUS.get(error.code, 400)
            response = Response(error_answer(error.request_id, error), status, media_type=_JSON)
            await _respond(response, scope, receive, send)
        except ToolcribError as error:
            self._access.hide(error, NOBODY if client is None else client.identity)
            await _respond(problem(error, self._challenge(error)), scope, receive, send)
        except ClientDisconnect:
            pass
        except Exception:
            _log.exception("a request could not be handled")
            raise

    # --- the client

    def _check_origin(self, headers: Mapping[bytes, bytes]) -> None:
        host, origin = headers.get(b"host", b""), headers.get(b"origin")
        # Clients repeat one Host, so the last good one needs no second check. An Origin is always checked.
        if host != self._host or origin is not None:
            given = None if origin is None else origin.decode("latin-1")
            self._access.hosts.check(host.decode("latin-1"), given)
            self._host = host

    async def _client(self, headers: Mapping[bytes, bytes]) -> Client:
        """Return the client by its token. A session of a browser is not a client of MCP."""
        given = headers.get(b"authorization", b"").decode("latin-1")
        client = self._access.verified_before(given)  # Calls and lists verify it once more.
        if client is None:
            scheme, _, text = given.partition(" ")
            if self._outside is not None and scheme.lower() == "bearer" and self._outside.is_one(text):
                caller = await self._outside.verify(text)
                client = Client(f"token:{caller.name}", caller)
            else:
                client = self._access.program(bearer(given))
        client.require("read")
        return client

    def _challenge(self, error: ToolcribError) -> dict[str, str]:
        """Return the header that names the place to get a token, or one with more rights."""
        if self._outside is None or not isinstance(error, InvalidToken | DeniedError):
            return {}
        lacks = "scope" in error.message and not isinstance(error, InvalidToken)
        kind = "insufficient_scope" if lacks else "invalid_token" if error.message else None
        return {"www-authenticate": self._outside.resource.challenge(kind)}

    async def _require_valid(self, http: Exchange) -> None:
        """Check the token of a request once more. Raises ToolcribError if it is no longer valid."""
        self._access.require_valid(await self._client(http.headers))

    def _require_right(self, http: Exchange, message: Mapping[str, Any]) -> None:
        """Refuse a call that its token does not cover by 403, so that the client asks for a better token.

        The call was refused already, and that was recorded.
        """
        if self._outside is not None and message.get("method") in _CALLS:
            # With our own tokens there is no server that could give the client a better one.
            http.client.require("invoke")

    # --- the methods of HTTP

    async def _post(self, http: Exchange) -> None:
        self._check_types(http)
        body = await http.body(self._body_s)
        version = http.headers.get(b"mcp-protocol-version")
        if b"mcp-session-id" in http.headers and body.lstrip()[:1] == b"[":
            await self._in_session(http, None, body)
            return
        message = read_message(body)
        if self._is_alone(message, version):
            await self._post_alone(http, message, len(body))
        elif message.get("method") == "initialize":
            await self._begin(http, message, len(body))
        else:
            await self._in_session(http, message, body)

    def _check_types(self, http: Exchange) -> None:
        if b"content-encoding" in http.headers:
            check_coding(http.text(b"content-encoding"))
        types = http.headers.get(b"content-type"), http.headers.get(b"accept")
        if types == self._types:
            return
        if http.text(b"content-type").partition(";")[0].strip().lower() != _JSON:
            raise UnsupportedMediaType("a message must come as application/json")
        if not http.accepts(_JSON):
            raise UsageError("the header Accept must allow application/json and text/event-stream")
        self._types = types

    async def _get(self, http: Exchange) -> None:
        session = self._session(http)
        if not http.accepts(EVENT_STREAM):
            raise UsageError("the header Accept must allow text/event-stream")
        # `_client` may have found a token that was revoked since; here no call checks it again.
        self._access.require_valid(http.client)
        event = http.text(b"last-event-id")
        found = session.find(event) if event else (session.own, None)
        if found is None:
            raise _refused(f"the events after {event[:80]!r} are not there any more")
        stream, after = found
        await http.stream(stream.events(after), partial(self._require_valid, http))
        session.settled(stream)

    async def _delete(self, http: Exchange) -> None:
        self._access.require_valid(http.client)
        await self.sessions.remove(self._session(http))
        await http.empty(204)

    # --- stateless requests

    @staticmethod
    def _is_alone(message: Mapping[str, Any], version: bytes | None) -> bool:
        # An unknown version is treated as a newer one, so the answer names the supported ones.
        if version is not None and version.decode("latin-1").strip() not in SESSION_VERSIONS:
            return True
        params = message.get("params")
        declares = isinstance(params, dict) and VERSION_KEY in meta_of(params)
        return message.get("method") == "server/discover" or (
            declares and message.get("method") != "initialize"
        )

    async def _post_alone(self, http: Exchange, message: dict[str, Any], size: int) -> None:
        request_id = message.get("id")
        try:
            check_message(http.headers, message)
            params = message.get("params")
            if not isinstance(params, dict) or VERSION_KEY not in meta_of(params):
                text = f"params._meta must have {VERSION_KEY}, a string"
                raise JsonRpcError(ErrorCode.INVALID_PARAMS, text)
        except JsonRpcError as error:
            error.request_id = request_id if is_request_id(request_id) else None
            raise
        stream = EventStream(held=self.sessions.held)

        def check(listed: AdvertisedTool, arguments: Mapping[str, Any]) -> None:
            check_params(http.headers, listed.param_headers, arguments)

        channel = Channel(http.client, stream.send, stream.congested, check, shared=False, wanted=http.wanted)
        self._alone.handle(message, channel, stream.reply, size)
        if await http.settle(stream, partial(self._alone.abandon, channel)):
            self._require_right(http, message)
            code = stream.error
            await http.answer(stream.answer, 200 if code is None else _STATUS.get(code, 200))
            return
        try:
            await http.stream(stream.events(), partial(self._require_valid, http))
        finally:
            # Without a session nobody can read the answer later, so the call of a client that left ends.
            self._alone.abandon(channel)
            stream.forget()

    # --- sessions

    async def _begin(self, http: Exchange, message: dict[str, Any], size: int) -> None:
        check_length(size, _MOST_BEGIN)
        if b"mcp-session-id" in http.headers:
            raise _refused("the session is initialized already", message)
        self._access.require_valid(http.client)
        session = McpSession(http.client, self._connection, self.sessions.held)
        stream = EventStream()
        channel = Channel(http.client, stream.send, stream.congested, wanted=http.wanted)
        session.connection.handle(message, channel, stream.reply, 0)
        if session.connection.version is None:
            await http.answer(stream.answer, 400)
            return
        session.own.primes = session.primes
        self.sessions.add(session)
        await http.answer(stream.answer, 200, (b"mcp-session-id", session.id.encode()))

    def _connection(self, own: EventStream) -> Connection:
        return Connection(
            self._catalog,
            own.send,
            self._settings,
            congested=own.congested,
            listings=self._listings,
            load=self._load,
        )

    def _session(self, http: Exchange) -> McpSession:
        name = http.text(b"mcp-session-id")
        if not name:
            raise _refused(
                "a session begins with initialize; then each request has the header Mcp-Session-Id"
            )
        version = http.text(b"mcp-protocol-version")
        if version and version not in SESSION_VERSIONS:
            raise _refused(f"sessions do not use protocol {version[:40]!r}")
        session = self.sessions.find(name, http.client)
        if session is None:
            text = "there is no such session, or it has ended: begin a new one with initialize"
            raise _NoSession(ErrorCode.INVALID_REQUEST, text)
        return session

    async def _in_session(self, http: Exchange, message: dict[str, Any] | None, body: bytes) -> None:
        """Give a message or a batch to its session."""
        session = self._session(http)
        stream = session.stream()
        channel = Channel(http.client, stream.send, stream.congested, wanted=http.wanted)
        try:
            if message is None:
                session.connection.take(body, channel, stream.reply)
            else:
                session.connection.handle(message, channel, stream.reply, len(body))
            # MCP 2025-11-25: a lost connection does not cancel a request; the client may read on later.
            if await http.settle(stream):
                self._require_right(http, message or {})
                code = stream.error
                bad = code in (ErrorCode.PARSE_ERROR, ErrorCode.INVALID_REQUEST)
                await http.answer(stream.answer, 400 if bad else 200)
            else:
                await http.stream(stream.events(), partial(self._require_valid, http))
        finally:
            session.settled(stream)


class _NoSession(JsonRpcError):
    """A session that is not there: the client must begin a new one."""


def _refused(text: str, message: Mapping[str, Any] | None = None) -> JsonRpcError:
    given = None if message is None else message.get("id")
    return JsonRpcError(ErrorCode.INVALID_REQUEST, text, None, given if is_request_id(given) else None)


def _drop(data: bytes) -> None:
    """Take a message for nobody: stateless requests have channels of their own."""


async def _respond(response: Response, scope: Scope, receive: Receive, send: Send) -> None:
    response.headers.update(SECURITY_HEADERS)
    await response(scope, receive, send)


def _wanted(query: bytes) -> str:
    """Return the host or API that the address names by `?for=`. Raises UsageError for one that is unknown."""
    given = parse_qs(query.decode("latin-1")).get("for") if query else None
    if given and given[0] not in HOSTS:
        raise UsageError(f"?for={given[0][:40]} is not known", hint=f"Known: {', '.join(HOSTS)}.")
    return given[0] if given else ""
