"""The usual invoke, straight on ASGI: to route and read it as every other request costs more than the call.

It makes the same checks with the same functions. A request that is unusual in any way, and one that is
refused before the call, goes to the application.
"""

from __future__ import annotations

from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from toolcrib.core.context import Context
from toolcrib.core.deadline import DeadlineExceeded, run_with_deadline
from toolcrib.errors import SlowRequest, ToolcribError
from toolcrib.serve.auth import Client
from toolcrib.serve.http import SECURITY_HEADERS, problem
from toolcrib.serve.rest.calls.routes import INVOKE, arguments_of, call_answer
from toolcrib.serve.rest.services import Services

# Origin, Cookie, Prefer, Idempotency-Key and others change what is checked or answered, so only the
# application handles them.
_HEADERS = frozenset(
    (b"accept", b"accept-encoding", b"authorization", b"connection", b"content-length", b"content-type")
) | frozenset((b"host", b"user-agent"))
"""A request with any other header is unusual."""
_MOST = 65_536
"""Bytes of a usual body."""
_ANY = (b"*/*", b"application/json")
_OWN = [(name.encode(), value.encode()) for name, value in SECURITY_HEADERS.items()]


class QuickInvoke:
    """Answers usual calls by name, and gives everything else to the application."""

    def __init__(self, app: ASGIApp, services: Services, body_s: float) -> None:
        self._app, self._services, self._body_s = app, services, body_s
        self._host = b""
        """The header Host that was checked last."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        name = _name(scope)
        client = None if name is None else self._client(scope)
        if name is None or client is None:
            await self._app(scope, receive, send)
            return
        try:
            message = await run_with_deadline(_received(receive), lambda: self._body_s)
        except DeadlineExceeded:
            await problem(SlowRequest())(scope, receive, send)
            return
        body: bytes = message.get("body", b"")
        # What has been received is given to the application again, which reads the rest of the body.
        arguments = None if message.get("more_body") else arguments_of(body)
        if arguments is None:
            await self._app(scope, _with(message, receive), send)
            return
        tool = self._services.project.toolset.same_name(name) or name
        ctx = Context(tool, arguments, client.caller, identity=client.identity, wait="block")
        await self._invoke(ctx, client, scope, receive, send)

    def _client(self, scope: Scope) -> Client | None:
        """Return the client of a usual request, if it may call tools."""
        headers: dict[bytes, bytes] = dict(scope["headers"])
        # Of a header that is sent twice the dict has the last one, where the application may take the first.
        if len(headers) != len(scope["headers"]) or not headers.keys() <= _HEADERS:
            return None
        if headers.get(b"content-type") != b"application/json" or headers.get(b"accept", b"*/*") not in _ANY:
            return None
        length = headers.get(b"content-length", b"")
        if not length.isdigit() or int(length) > _MOST:
            return None
        access, host = self._services.access, headers.get(b"host", b"")
        client = access.verified_before(headers.get(b"authorization", b"").decode("latin-1"))
        if client is None:  # The application verifies it, or answers that it cannot.
            return None
        try:
            client.require("invoke")
            if host != self._host:
                access.hosts.check(host.decode("latin-1"), None)
                self._host = host
        except ToolcribError:  # The application finds the same, and answers.
            return None
        return client

    async def _invoke(self, ctx: Context, client: Client, scope: Scope, receive: Receive, send: Send) -> None:
        calls = self._services.calls
        request_id = ctx.identify()
        try:
            call = calls.start(ctx, client)
            await calls.settle(call, receive)
            if call.result is not None and call.refusal is None:
                length = b"%d" % len(call.body)
                head = [*_OWN, (b"content-type", b"application/json"), (b"content-length", length)]
                head.append((b"x-request-id", request_id.encode()))
                await send({"type": "http.response.start", "status": 200, "headers": head})
                await send({"type": "http.response.body", "body": call.body})
                return
            await calls.keep(call)
            response = call_answer(call, scope)
        except ClientDisconnect:
            return
        except ToolcribError as error:
            response = problem(error)
        response.headers.update({**SECURITY_HEADERS, "x-request-id": request_id})
        await response(scope, receive, send)


def _name(scope: Scope) -> str | None:
    """Return the name of the tool that a request calls; None for another request."""
    if scope["type"] != "http" or scope["method"] != "POST" or scope["query_string"]:
        return None
    begin = scope.get("root_path", "") + INVOKE
    name: str = scope["path"][len(begin) :]
    return name if scope["path"].startswith(begin) and name else None


async def _received(receive: Receive) -> Message:
    return await receive()


def _with(message: Message, receive: Receive) -> Receive:
    """Return `receive` with a message before the others."""
    first: Message | None = message

    async def replay() -> Message:
        nonlocal first
        if first is None:
            return await receive()
        read, first = first, None
        return read

    return replay
