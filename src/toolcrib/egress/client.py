"""The guarded HTTP client: every request of a tool goes through here, and every hop is checked.

A destination is checked against the policy, its name is resolved once for a connection, the addresses are
checked, and the connection goes to a checked address; TLS verifies the host's name. Connections to hosts that
a policy names outright and to all others are pooled apart, so that a tool can never ride on a connection that
its own policy would not have opened.
"""

from __future__ import annotations

import asyncio
import io
import os
import socket
import ssl
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from toolcrib.egress.address import NAMED_KINDS, address_kind
from toolcrib.egress.destination import Destination
from toolcrib.egress.message import EgressRequest, EgressResponse
from toolcrib.egress.policy import HostPolicy
from toolcrib.egress.resolver import Resolver, SystemResolver
from toolcrib.errors import HostNotAllowed, HttpFailed, InvalidInput, TimedOut

if TYPE_CHECKING:
    import aiohttp
    from aiohttp.abc import AbstractResolver

__all__ = ["MAX_REDIRECTS", "Egress"]

MAX_REDIRECTS = 5
_REDIRECTS = frozenset({301, 302, 303, 307, 308})
_ALWAYS_SECRET = frozenset({"authorization", "cookie", "proxy-authorization"})
_BODY_HEADERS = frozenset({"content-type", "content-length", "content-encoding", "content-language"})
_LARGE_BODY = 1024 * 1024
_KEEPALIVE_S = 15.0
_CONNECTIONS = 100
_CONNECT_S = 30.0


@dataclass(slots=True)
class _Sessions:
    """The two pools of one event loop."""

    public: aiohttp.ClientSession
    named: aiohttp.ClientSession

    async def close(self) -> None:
        await self.public.close()
        await self.named.close()

    def abandon(self) -> None:
        """For a loop that is closed: nothing can be awaited any more; the sockets go with their objects."""
        self.public.detach()
        self.named.detach()


class Egress:
    """The only way out for HTTP. One per project; usable from several event loops, closed once.

    `resolver` turns names into addresses (default: the machine's own), `ssl_context` verifies servers
    (default: the system's certificate authorities), `user_agent` is sent where a request names none.
    Proxy variables, netrc and cookies are never used.
    """

    def __init__(
        self,
        *,
        resolver: Resolver | None = None,
        ssl_context: ssl.SSLContext | None = None,
        user_agent: str = "toolcrib",
    ) -> None:
        self._resolver = resolver or SystemResolver()
        self._ssl = ssl_context
        self._user_agent = user_agent
        self._sessions: WeakKeyDictionary[asyncio.AbstractEventLoop, _Sessions] = WeakKeyDictionary()
        self._lock = threading.Lock()

    async def __aenter__(self) -> Egress:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def request(self, request: EgressRequest, policy: HostPolicy) -> EgressResponse:
        """Send `request` and read the answer, following at most five redirects, each checked by `policy`.

        Raises HostNotAllowed, TimedOut (after `timeout_s`) and HttpFailed: `retryable` for network errors,
        `details` with `reason` (`dns`, `connect`, `tls`, `disconnected`, `incomplete`, `malformed`,
        `undecodable`, `redirects`), `host` and `port`. An error status is an answer, not an exception.
        """
        try:
            async with asyncio.timeout(request.timeout_s):
                return await self._follow(request, policy)
        except TimeoutError:
            limit = round((request.timeout_s or 0) * 1000)
            raise TimedOut(f"no complete answer within {limit} ms", details={"limit_ms": limit}) from None

    async def begin(
        self,
        method: str,
        destination: Destination,
        headers: Sequence[tuple[str, str]],
        body: bytes | None,
        policy: HostPolicy,
    ) -> aiohttp.ClientResponse:
        """Send one request, and give its answer as soon as it begins: whoever has it reads and closes it.

        Redirects are answers. Raises HostNotAllowed, and HttpFailed as `request` does.
        """
        import aiohttp
        from yarl import URL

        named = policy.check(destination)
        sessions = self._of_loop()
        session = sessions.named if named else sessions.public
        with self.translated(destination):
            return await session.request(
                method,
                URL(destination.url, encoded=True),
                headers=headers,
                data=body,
                allow_redirects=False,
                skip_auto_headers=("Content-Type",),
                timeout=aiohttp.ClientTimeout(total=None, sock_connect=_CONNECT_S),
            )

    @contextmanager
    def translated(self, destination: Destination) -> Iterator[None]:
        """Turn what goes wrong on the wire into HttpFailed."""
        import aiohttp

        try:
            yield
        except (aiohttp.ClientError, OSError) as error:
            raise _translated(error, destination) from error

    async def aclose(self) -> None:
        """Close all connections. A later request opens new ones."""
        with self._lock:
            sessions = dict(self._sessions)
            self._sessions.clear()
        here = asyncio.get_running_loop()
        for loop, pair in sessions.items():
            if loop is here:
                await pair.close()
            elif loop.is_closed():
                pair.abandon()
            else:
                asyncio.run_coroutine_threadsafe(pair.close(), loop)

    async def _follow(self, request: EgressRequest, policy: HostPolicy) -> EgressResponse:
        try:
            destination = Destination.parse(request.url)
        except ValueError as error:
            raise InvalidInput(f"the URL cannot be called: {error}") from None
        for hop in range(MAX_REDIRECTS + 1):
            named = policy.check(destination)
            response, location = await self._send(request, destination, named=named)
            if location is None:
                return replace(response, redirects=hop) if hop else response
            try:
                following = destination.join(location)
            except ValueError as error:
                message = f"{destination.authority} redirects to a URL that cannot be called: {error}"
                raise _failure(message, "redirects", destination) from None
            request = _redirected(request, response.status, destination, following)
            destination = following
        message = f"{destination.authority} redirects more than {MAX_REDIRECTS} times"
        raise _failure(message, "redirects", destination)

    async def _send(
        self, request: EgressRequest, destination: Destination, *, named: bool
    ) -> tuple[EgressResponse, str | None]:
        """One hop: the answer, and where it redirects to, if that is to be followed."""
        import aiohttp
        from yarl import URL

        sessions = self._of_loop()
        session = sessions.named if named else sessions.public
        body: Any = request.body
        if body is not None and len(body) > _LARGE_BODY:
            body = io.BytesIO(body)
        url = URL(destination.url, encoded=True)
        try:
            async with session.request(
                request.method,
                url,
                headers=request.headers,
                data=body,
                allow_redirects=False,
                skip_auto_headers=("Content-Type",),
            ) as answer:
                location = answer.headers.get("Location") if answer.status in _REDIRECTS else None
                if not request.follow_redirects:
                    location = None
                content, truncated = b"", False
                if location is None:
                    content, truncated = await _read(answer, request.max_response_bytes)
                headers = tuple(answer.headers.items())
                return EgressResponse(answer.status, headers, content, destination.url, truncated), location
        except (aiohttp.ClientError, OSError) as error:
            raise _translated(error, destination) from error

    def _of_loop(self) -> _Sessions:
        loop = asyncio.get_running_loop()
        sessions = self._sessions.get(loop)
        if sessions is None:
            with self._lock:
                for other in [other for other in self._sessions if other.is_closed()]:
                    self._sessions.pop(other).abandon()
                sessions = _Sessions(self._session(named=False), self._session(named=True))
                self._sessions[loop] = sessions
        return sessions

    def _session(self, *, named: bool) -> aiohttp.ClientSession:
        import aiohttp

        connector = aiohttp.TCPConnector(
            resolver=_guarded(self._resolver, named=named),
            use_dns_cache=False,
            limit=_CONNECTIONS,
            keepalive_timeout=_KEEPALIVE_S,
            ssl=self._ssl if self._ssl is not None else True,
        )
        return aiohttp.ClientSession(
            connector=connector,
            cookie_jar=aiohttp.DummyCookieJar(),
            trust_env=False,
            timeout=aiohttp.ClientTimeout(total=None),
            headers={"User-Agent": self._user_agent},
        )


async def _read(answer: aiohttp.ClientResponse, limit: int) -> tuple[bytes, bool]:
    """At most `limit` decoded bytes of the body, and whether there was more."""
    length = answer.content_length
    if length is not None and length <= limit and "Content-Encoding" not in answer.headers:
        return await answer.read(), False
    chunks: list[bytes] = []
    size = 0
    async for chunk in answer.content.iter_any():
        chunks.append(chunk)
        size += len(chunk)
        if size > limit:
            answer.close()
            return b"".join(chunks)[:limit], True
    return b"".join(chunks), False


def _redirected(request: EgressRequest, status: int, here: Destination, there: Destination) -> EgressRequest:
    """The request that follows a redirect (RFC 9110, 15.4): no secret goes to another origin."""
    headers = list(request.headers)
    method, body = request.method, request.body
    if (status == 303 and method != "HEAD") or (status in (301, 302) and method == "POST"):
        method, body = "GET", None
        headers = [(name, value) for name, value in headers if name.lower() not in _BODY_HEADERS]
    if here.origin != there.origin:
        if body is not None and request.secret_body:
            message = f"{here.authority} redirects a request whose body holds a secret to {there.authority}"
            raise HostNotAllowed(message, details={"host": there.host, "port": there.port})
        secret = _ALWAYS_SECRET | request.secret_headers
        headers = [(name, value) for name, value in headers if name.lower() not in secret]
    return replace(request, method=method, body=body, headers=headers)


def _guarded(resolver: Resolver, *, named: bool) -> AbstractResolver:
    """An aiohttp resolver that lets through only addresses of the kinds this pool may connect to."""
    from aiohttp.abc import AbstractResolver, ResolveResult

    class Guarded(AbstractResolver):
        async def resolve(
            self,
            host: str,
            port: int = 0,
            family: socket.AddressFamily = socket.AF_INET,  # noqa: ARG002 - aiohttp passes it; both are wanted
        ) -> list[ResolveResult]:
            return [
                ResolveResult(
                    hostname=host,
                    host=address,
                    port=port,
                    family=socket.AF_INET6 if ":" in address else socket.AF_INET,
                    proto=0,
                    flags=socket.AI_NUMERICHOST | socket.AI_NUMERICSERV,
                )
                for address in _checked(host, port, await resolver.resolve(host, port), named=named)
            ]

        async def close(self) -> None:
            pass

    return Guarded()


def _checked(host: str, port: int, addresses: Sequence[str], *, named: bool) -> list[str]:
    """The addresses that may be connected to; HostNotAllowed when there is none."""
    kinds = {address: address_kind(address) for address in addresses}
    allowed = NAMED_KINDS if named else {"public"}
    good = [address for address, kind in kinds.items() if kind in allowed]
    if good:
        return good
    if not kinds:
        raise OSError(f"{host} has no address")
    address, kind = next(iter(kinds.items()))
    hint = (
        f"name {address} itself in permissions.network.allow"
        if named
        else "name it in permissions.network.allow"
    )
    raise HostNotAllowed(
        f"{host} resolves to {address}, a {kind} address",
        hint=hint,
        details={"host": host, "port": port, "address": address, "kind": kind},
    )


def _translated(error: Exception, destination: Destination) -> HttpFailed:
    """What went wrong on the wire, in words; most of it may go better next time."""
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
    if isinstance(error, aiohttp.ClientPayloadError):
        if isinstance(error.__cause__, aiohttp.http_exceptions.ContentEncodingError):
            return _failure(f"the answer of {where} cannot be decoded", "undecodable", destination)
        message = f"{where} stopped in the middle of its answer"
        return _failure(message, "incomplete", destination, retryable=True)
    if isinstance(error, aiohttp.ClientOSError | OSError):
        message = f"the connection to {where} broke: {getattr(error, 'strerror', None) or error}"
        return _failure(message, "disconnected", destination, retryable=True)
    return _failure(f"{where} did not answer in HTTP", "malformed", destination)


def _failure(message: str, reason: str, destination: Destination, *, retryable: bool = False) -> HttpFailed:
    details = {"reason": reason, "host": destination.host, "port": destination.port}
    return HttpFailed(message, details=details, retryable=retryable)
