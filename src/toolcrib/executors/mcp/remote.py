"""MCP over HTTP, as a transport of the official client. Each request goes through the guarded HTTP client."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack, suppress
from typing import TYPE_CHECKING, Any

from toolcrib.egress import Destination, Egress, HostPolicy, guarded_transport
from toolcrib.errors import ConfigError, HostNotAllowed, ToolcribError, ToolUnavailable
from toolcrib.manifest.dialects.mcp_servers import ServerSpec, expand
from toolcrib.spec import Network

if TYPE_CHECKING:
    import httpx2

    from toolcrib.executors.mcp.login import Login, OAuthTokens


_EVENT_S = 300.0
"""Seconds that an open stream of events may be silent."""
_LISTEN_S = 5.0
"""Seconds that a server has to open the stream of what it sends outside of calls."""
_EVENT_BYTES = 16 * 1024 * 1024
"""The longest message in a stream of events. The older transport, `sse`, has a fixed limit of 1 MiB."""


class HttpLink:
    """The connection to a remote server, open inside `async with`.

    Its own host may be reached, and those under `permissions.network`. Its headers go to its own origin
    alone. `login` signs requests, if somebody has logged in.
    """

    def __init__(
        self,
        spec: ServerSpec,
        egress: Callable[[], Egress],
        secrets: Callable[[], Mapping[str, str]],
        *,
        allowed_hosts: tuple[str, ...] | None = None,
        login: OAuthTokens | Login | None = None,
    ) -> None:
        self._spec = spec
        self._egress = egress
        self._secrets = secrets
        self._allowed_hosts = allowed_hosts
        self._login = login
        self._stack = AsyncExitStack()
        self._refused = 0
        self.status = 0
        self._home: Destination | None = None
        self._listens = asyncio.Event()
        self.closed = asyncio.Event()
        """Set if it can be used no longer. No connection stays open between calls, so only callers set it."""
        self.lost = False
        self.fault = ""
        """The reason why we ended it."""
        self.stderr = ""

    async def __aenter__(self) -> Any:
        import httpx2
        from mcp.client.sse import sse_client
        from mcp.client.streamable_http import streamable_http_client

        url, transport = self._transport()

        auth = None if self._login is None else self._login.auth(url)

        def client(*_: Any, **__: Any) -> httpx2.AsyncClient:
            limits = httpx2.Timeout(30.0, read=_EVENT_S)
            # `trust_env` would let variables choose a proxy, and .netrc add a password.
            return httpx2.AsyncClient(
                transport=transport,
                auth=auth,
                timeout=limits,
                trust_env=False,
                event_hooks={"response": [_note_lost_session, self._note_stream]},
            )

        async with AsyncExitStack() as stack:
            if self._spec.transport == "sse":
                streams = await stack.enter_async_context(sse_client(url, httpx_client_factory=client))
            else:
                http = await stack.enter_async_context(client())
                connected = streamable_http_client(url, http_client=http, max_sse_event_size=_EVENT_BYTES)
                streams = await stack.enter_async_context(connected)
            # Only here does it stay open: if something above fails, what was opened before it is closed.
            self._stack = stack.pop_all()
        return streams

    async def __aexit__(self, *exc_info: Any) -> Any:
        return await self._stack.__aexit__(*exc_info)

    async def _note_stream(self, response: httpx2.Response) -> None:
        request = response.request
        if request.method == "GET" and "text/event-stream" in request.headers.get("accept", ""):
            self._listens.set()

    async def listening(self) -> None:
        """Wait until a session has the stream of what belongs to no call, or the server has refused it.

        Servers with the Python SDK before version 2 ask their client there, and a question that is asked
        before the stream is open is lost.
        """
        # Some servers answer only with the first event.
        with suppress(TimeoutError):
            async with asyncio.timeout(_LISTEN_S):
                await self._listens.wait()

    def _transport(self) -> tuple[str, httpx2.AsyncBaseTransport]:
        spec = self._spec
        values = {**spec.permissions.environment(os.environ), **self._secrets()}
        url = expand(spec.url, values)
        headers = {name.lower(): expand(text, values) for name, text in spec.headers.items()}
        try:
            self._home = home = Destination.parse(url)
            self._policy_of(home)
        except ValueError as error:
            raise ConfigError(f"the URL of the MCP server {spec.name} cannot be called: {error}") from None
        egress = self._egress()
        return url, guarded_transport(egress, self._policy_of, home=home, secrets=headers, seen=self._saw)

    def _policy_of(self, destination: Destination) -> HostPolicy:
        """Return the hosts that may be reached, among them `destination` if it may log a person in."""
        home = self._home
        assert home is not None
        allowed = (_entry(home), *self._spec.permissions.network.allow)

        def policy(hosts: tuple[str, ...]) -> HostPolicy:
            return HostPolicy.of(
                Network("hosts", hosts), home.host, home.port, allowed_hosts=self._allowed_hosts
            )

        found = policy(allowed)
        try:
            found.check(destination)
        except HostNotAllowed:
            entry = _entry(destination)
            may = self._login is not None and self._login.login_host(entry)
            return policy((*allowed, entry)) if may else found
        return found

    def _saw(self, url: str, status: int) -> None:
        """Remember that the server itself refuses requests, until it answers one."""
        # A host of the login also answers 401; that says nothing about the server.
        own = self._home is not None and Destination.parse(url).origin == self._home.origin
        if own and status >= 400:
            self.status = status
        if own and (status in (401, 403) or status < 300):
            self._refused = status if status >= 400 else 0

    def enforcement(self) -> dict[str, Any]:
        """Return no report: the server runs elsewhere."""
        return {}

    def created(self) -> tuple[str, ...]:
        """Return nothing: the server runs elsewhere."""
        return ()

    def explain(self, error: ToolcribError, *_: Any) -> ToolcribError:
        """Return the error: the server runs elsewhere, so no permission explains it."""
        return error

    def could_not_read(self) -> None:
        """End the connection if a message that cannot be read may have been an answer."""
        # The newer transport knows to which request its answers belong.
        if self._spec.transport == "sse":
            self.fault = "it wrote a message that is not one of MCP"
            self.closed.set()

    def failure(self) -> str | ToolcribError:
        """Return the reason why the connection failed, or ""."""
        if self._login is not None and self._login.error is not None:
            return self._login.error
        if not self._refused:
            return self.fault
        return ToolUnavailable(
            f"it refuses our requests (HTTP {self._refused})",
            hint=f"Log in: toolcrib servers login {self._spec.name}. Or add `headers` with a token.",
        )


async def _note_lost_session(response: httpx2.Response) -> None:
    """Let the official client see HTTP 404 where a server refuses its session, whatever the body is.

    The examples of the TypeScript SDK answer 400 to a session that they do not know.
    """
    if response.status_code not in (400, 404) or "mcp-session-id" not in response.request.headers:
        return
    if response.status_code == 404 or b"valid session id" in (await response.aread()).lower():
        response.status_code, response.headers["content-type"] = 404, "text/plain"


def _entry(destination: Destination) -> str:
    """Return the entry of an allow-list for one host and port."""
    host = f"[{destination.host}]" if ":" in destination.host else destination.host
    return f"{host}:{destination.port}"
