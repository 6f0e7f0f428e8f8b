"""The guarded HTTP client: every request of a tool goes through it, and it checks every hop.

It checks a destination against the policy, resolves its name once for a connection, checks the addresses, and
connects to a checked one; TLS verifies the host's name. Connections to hosts that a policy names outright and
to all others are in separate pools: a tool must never use a connection that its own policy does not allow.
"""

from __future__ import annotations

import asyncio
import io
import os
import socket
import ssl
import threading
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import replace
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from toolcrib.egress.address import Resolver, SystemResolver, allowed_addresses
from toolcrib.egress.decoding import ACCEPTED, decoded
from toolcrib.egress.destination import Destination
from toolcrib.egress.message import MAX_REQUEST_BYTES, EgressRequest, EgressResponse
from toolcrib.egress.policy import HostPolicy
from toolcrib.errors import HostNotAllowed, HttpFailed, InvalidInput, TimedOut

if TYPE_CHECKING:
    import aiohttp
    from aiohttp.abc import AbstractResolver

MAX_REDIRECTS = 5
_REDIRECTS = frozenset({301, 302, 303, 307, 308})
_ALWAYS_SECRET = frozenset({"authorization", "cookie", "proxy-authorization"})
_BODY_HEADERS = frozenset({"content-type", "content-length", "content-encoding", "content-language"})
_STREAMS = frozenset(
    {"text/event-stream", "application/x-ndjson", "application/jsonl", "application/json-seq"}
)
_LARGE_BODY = 1024 * 1024
_KEEPALIVE_S = 15.0
_CONNECTIONS, _TO_ONE_HOST = 300, 100
"""At once for requests: a host that does not answer must leave others a part."""
_CONNECT_S = 30.0

_Sessions = dict[tuple[bool, bool], "aiohttp.ClientSession"]
Send = Callable[[EgressRequest, HostPolicy], Awaitable[EgressResponse]]
RECORDER: ContextVar[Callable[[EgressRequest, HostPolicy, Send], Awaitable[EgressResponse]] | None] = (
    ContextVar("toolcrib.recorder", default=None)
)
"""A double for tests: it answers in place of the network. It gets each request, its policy, and what
really sends it."""


class Egress:
    """The only way out for HTTP. One per project; usable from several event loops, closed once.

    `resolver` turns names into addresses (default: the machine's own), `ssl_context` verifies servers
    (default: the system's certificate authorities). Proxy variables, netrc and cookies are never used.
    """

    def __init__(
        self,
        *,
        resolver: Resolver | None = None,
        ssl_context: ssl.SSLContext | None = None,
    ) -> None:
        self._resolver = resolver or SystemResolver()
        self._ssl = ssl_context
        self._sessions: WeakKeyDictionary[asyncio.AbstractEventLoop, _Sessions] = WeakKeyDictionary()
        """Event loop to its pools: of named and of other hosts, for requests and for streams."""
        self._lock = threading.Lock()

    async def __aenter__(self) -> Egress:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def request(self, request: EgressRequest, policy: HostPolicy) -> EgressResponse:
        """Send `request` and read the answer, following at most five redirects, each checked by `policy`.

        Raises HostNotAllowed, InvalidInput, TimedOut (after `timeout_s`) and HttpFailed: `retryable` for
        network errors, `details` with `reason` (`dns`, `connect`, `tls`, `disconnected`, `incomplete`,
        `malformed`, `undecodable`, `redirects`), `host` and `port`. An error status is an answer, not an
        exception.
        """
        if request.body is not None and len(request.body) > MAX_REQUEST_BYTES:
            raise InvalidInput(
                f"the request is larger than {MAX_REQUEST_BYTES:,} bytes, the most that is sent"
            )
        # A context variable, so that two tests in one process do not see each other's.
        recorder = RECORDER.get()
        if recorder is not None:
            return await recorder(request, policy, self._request)
        return await self._request(request, policy)

    async def _request(self, request: EgressRequest, policy: HostPolicy) -> EgressResponse:
        try:
            async with asyncio.timeout(request.timeout_s):
                return await self._follow(request, policy)
        except TimeoutError:
            limit = round((request.timeout_s or 0) * 1000)
            raise TimedOut(f"no complete answer within {limit} ms", details={"limitMs": limit}) from None

    async def begin(
        self,
        method: str,
        destination: Destination,
        headers: Sequence[tuple[str, str]],
        body: bytes | None,
        policy: HostPolicy,
    ) -> aiohttp.ClientResponse:
        """Send one request and return its answer as soon as it begins. The caller reads and closes it.

        Redirects are answers. Raises HostNotAllowed, and HttpFailed like `request`.
        """
        with self.translated(destination):
            return await self._send(method, destination, headers, body, policy, stream=True)

    async def addresses(self, destination: Destination, policy: HostPolicy) -> list[str]:
        """Return the addresses that a connection of another protocol may be made to.

        Raises HostNotAllowed, and HttpFailed for a name that does not resolve.
        """
        named = policy.check(destination)
        try:
            found = await self._resolver.resolve(destination.host, destination.port)
        except OSError:
            message = f"{destination.host} does not resolve"
            raise _failure(message, "dns", destination, retryable=True) from None
        return allowed_addresses(destination.host, destination.port, found, named=named)

    @contextmanager
    def translated(self, destination: Destination) -> Iterator[None]:
        """Raise network errors as HttpFailed."""
        import aiohttp

        try:
            yield
        except (aiohttp.ClientError, aiohttp.http_exceptions.ContentEncodingError, OSError) as error:
            raise _translated(error, destination) from error

    async def aclose(self) -> None:
        """Close all connections. A later request opens new ones."""
        with self._lock:
            sessions = dict(self._sessions)
            self._sessions.clear()
        here = asyncio.get_running_loop()
        for loop, pools in sessions.items():
            if loop is here:
                await _close(pools)
            elif loop.is_closed():
                _abandon(pools)
            else:
                asyncio.run_coroutine_threadsafe(_close(pools), loop)

    async def _follow(self, request: EgressRequest, policy: HostPolicy) -> EgressResponse:
        destination = destination_of(request.url)
        answered = 0
        try:
            for hop in range(MAX_REDIRECTS + 1):
                response, location = await self._hop(request, destination, policy)
                answered += 1
                if location is None:
                    return replace(response, redirects=hop) if hop else response
                try:
                    following = destination.join(location)
                except ValueError as error:
                    message = f"{destination.authority} redirects to a URL that cannot be called: {error}"
                    raise _failure(message, "redirects", destination) from None
                request = _redirected(request, response.status, destination, following)
                destination = following
        except HostNotAllowed as error:
            if answered:  # So the call was made, and may have taken effect.
                error.details["started"] = True
            raise
        message = f"{destination.authority} redirects more than {MAX_REDIRECTS} times"
        raise _failure(message, "redirects", destination)

    async def _hop(
        self, request: EgressRequest, destination: Destination, policy: HostPolicy
    ) -> tuple[EgressResponse, str | None]:
        """Return one answer, and the target of a redirect that is to be followed; then no body is read."""
        with self.translated(destination):
            async with await self._send(
                request.method, destination, request.headers, request.body, policy
            ) as answer:
                follow = request.follow_redirects and answer.status in _REDIRECTS
                location = answer.headers.get("Location") if follow else None
                content, truncated = b"", False
                if location is None:
                    on_chunk = request.on_chunk if _is_live(answer) else None
                    content, truncated = await _read(answer, request.max_response_bytes, on_chunk)
                headers = tuple(answer.headers.items())
                return EgressResponse(answer.status, headers, content, destination.url, truncated), location

    async def _send(
        self,
        method: str,
        destination: Destination,
        headers: Sequence[tuple[str, str]],
        body: bytes | None,
        policy: HostPolicy,
        *,
        stream: bool = False,
    ) -> aiohttp.ClientResponse:
        import aiohttp
        from yarl import URL

        named = policy.check(destination)
        session = self._session(named=named, stream=stream)
        # aiohttp warns of large bodies in memory, and copies them.
        data: Any = io.BytesIO(body) if body is not None and len(body) > _LARGE_BODY else body
        return await session.request(
            method,
            URL(destination.url, encoded=True),
            headers=headers,
            data=data,
            allow_redirects=False,
            skip_auto_headers=("Content-Type",),
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=_CONNECT_S if stream else None),
        )

    def _session(self, *, named: bool, stream: bool) -> aiohttp.ClientSession:
        """Return the pool of this event loop; those of loops that are closed are dropped."""
        loop = asyncio.get_running_loop()
        pools = self._sessions.get(loop)
        if pools is None:
            with self._lock:
                for other in [other for other in self._sessions if other.is_closed()]:
                    _abandon(self._sessions.pop(other))
                pools = self._sessions[loop] = {}
        if (named, stream) not in pools:
            pools[named, stream] = self._new_session(named=named, stream=stream)
        return pools[named, stream]

    def _new_session(self, *, named: bool, stream: bool) -> aiohttp.ClientSession:
        import aiohttp

        connector = aiohttp.TCPConnector(
            resolver=_checked_resolver(self._resolver, named=named),
            # A cached name would skip the check of its addresses.
            use_dns_cache=False,
            # A stream stays as long as its session, and there may be many sessions at one server.
            limit=0 if stream else _CONNECTIONS,
            limit_per_host=0 if stream else _TO_ONE_HOST,
            keepalive_timeout=_KEEPALIVE_S,
            ssl=self._ssl if self._ssl is not None else True,
        )
        return aiohttp.ClientSession(
            connector=connector,
            cookie_jar=aiohttp.DummyCookieJar(),
            # Proxy variables and netrc of this machine are not the tool's.
            trust_env=False,
            # See `decoding`.
            auto_decompress=False,
            headers={"User-Agent": "toolcrib", "Accept-Encoding": ACCEPTED},
        )


def destination_of(url: str) -> Destination:
    """Return the destination of a URL. Raises InvalidInput for one that cannot be called."""
    try:
        return Destination.parse(url)
    except ValueError as error:
        raise InvalidInput(f"the URL cannot be called: {error}") from None


async def _close(pools: _Sessions) -> None:
    for session in pools.values():
        await session.close()


def _abandon(pools: _Sessions) -> None:
    """Drop the sockets without waiting: their loop is closed."""
    for session in pools.values():
        session.detach()


def _is_live(answer: aiohttp.ClientResponse) -> bool:
    """Return True for a stream of events or lines, and for plain text that is sent in chunks."""
    chunked = "chunked" in answer.headers.get("Transfer-Encoding", "").lower()
    stream = answer.content_type in _STREAMS or (chunked and answer.content_type == "text/plain")
    return stream and answer.status < 300


async def _read(
    answer: aiohttp.ClientResponse, limit: int, on_chunk: Callable[[bytes], None] | None
) -> tuple[bytes, bool]:
    """Return at most `limit` decoded bytes of the body, and True if there are more."""
    length = answer.content_length
    if length is not None and length <= limit and "Content-Encoding" not in answer.headers:
        return await answer.read(), False
    chunks: list[bytes] = []
    size = 0
    async for chunk in decoded(answer):
        chunks.append(chunk)
        size += len(chunk)
        if on_chunk is not None:
            on_chunk(chunk)
        if size > limit:
            answer.close()
            return b"".join(chunks)[:limit], True
    return b"".join(chunks), False


def _redirected(request: EgressRequest, status: int, here: Destination, there: Destination) -> EgressRequest:
    """Return the request that follows a redirect (RFC 9110, 15.4): no secret goes to another origin."""
    headers = list(request.headers)
    method, body = request.method, request.body
    if (status == 303 and method != "HEAD") or (status in (301, 302) and method == "POST"):
        method, body = "GET", None
        headers = [(name, value) for name, value in headers if name.lower() not in _BODY_HEADERS]
    if here.origin != there.origin:
        if body is not None and request.secret_body:
            message = (
                f"{here.authority} redirects a request whose body contains a secret to {there.authority}"
            )
            raise HostNotAllowed(message, details={"host": there.host, "port": there.port})
        secret = _ALWAYS_SECRET | request.secret_headers
        headers = [(name, value) for name, value in headers if name.lower() not in secret]
    return replace(request, method=method, body=body, headers=headers)


def _checked_resolver(resolver: Resolver, *, named: bool) -> AbstractResolver:
    """Return an aiohttp resolver that returns only addresses that this pool may connect to."""
    from aiohttp.abc import AbstractResolver, ResolveResult

    class CheckedResolver(AbstractResolver):
        async def resolve(
            self,
            host: str,
            port: int = 0,
            family: socket.AddressFamily = socket.AF_INET,  # noqa: ARG002 - aiohttp passes it; both are wanted
        ) -> list[ResolveResult]:
            addresses = await resolver.resolve(host, port)
            if not addresses:
                raise OSError(f"{host} has no address")
            return [
                ResolveResult(
                    hostname=host,
                    host=address,
                    port=port,
                    family=socket.AF_INET6 if ":" in address else socket.AF_INET,
                    proto=0,
                    flags=socket.AI_NUMERICHOST | socket.AI_NUMERICSERV,
                )
                for address in allowed_addresses(host, port, addresses, named=named)
            ]

        async def close(self) -> None:
            pass

    return CheckedResolver()


def _translated(error: Exception, destination: Destination) -> HttpFailed:
    """Return a network error as HttpFailed, retryable if another attempt may succeed."""
    import aiohttp

    where = destination.authority
    if isinstance(error, aiohttp.ClientConnectorDNSError):
        return _failure(f"{destination.host} does not resolve", "dns", destination, retryable=True)
    if isinstance(error, aiohttp.ClientConnectorCertificateError | aiohttp.ClientSSLError | ssl.SSLError):
        detail = str(getattr(error, "certificate_error", "") or error)
        return _failure(f"no trusted TLS connection to {where}: {detail}", "tls", destination)
    if isinstance(error, aiohttp.ClientConnectorError):
        number = error.os_error.errno
        reason = os.strerror(number) if number else str(error.os_error)
        return _failure(f"no connection to {where}: {reason}", "connect", destination, retryable=True)
    if isinstance(error, aiohttp.ServerDisconnectedError):
        message = f"{where} closed the connection without an answer"
        return _failure(message, "disconnected", destination, retryable=True)
    if isinstance(error, aiohttp.http_exceptions.ContentEncodingError):
        return _failure(f"the answer of {where} cannot be decoded", "undecodable", destination)
    if isinstance(error, aiohttp.ClientPayloadError):
        message = f"{where} closed the connection in the middle of its answer"
        return _failure(message, "incomplete", destination, retryable=True)
    if isinstance(error, aiohttp.ClientOSError | OSError):
        message = f"the connection to {where} broke: {getattr(error, 'strerror', None) or error}"
        return _failure(message, "disconnected", destination, retryable=True)
    return _failure(f"the answer of {where} is not HTTP", "malformed", destination)


def _failure(message: str, reason: str, destination: Destination, *, retryable: bool = False) -> HttpFailed:
    details = {"reason": reason, "host": destination.host, "port": destination.port}
    return HttpFailed(message, details=details, retryable=retryable)
