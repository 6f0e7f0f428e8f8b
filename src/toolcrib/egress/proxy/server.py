"""The only way out of an empty network namespace: HTTP, CONNECT and SOCKS5 on one listening socket."""

from __future__ import annotations

import asyncio
import logging
import re
import resource
import socket
from collections.abc import Callable
from ipaddress import IPv4Address, IPv6Address

from toolcrib.egress.address import Resolver, SystemResolver
from toolcrib.egress.destination import Destination, normal_host
from toolcrib.egress.policy import HostPolicy
from toolcrib.egress.proxy.dialer import Denied, Dialer, HostRefusal, ProxyLimits, Unreachable
from toolcrib.egress.proxy.head import BadMessage, RequestHead, forward, plain_answer, read_head
from toolcrib.egress.proxy.stream import SocketStream
from toolcrib.egress.proxy.tunnel import tunnel

_AUTHORITY = re.compile(r"[^/?#@]+:[0-9]+")
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")
_ESTABLISHED = b"HTTP/1.1 200 Connection established\r\n\r\n"


async def serve_http(client: SocketStream, dialer: Dialer) -> None:
    """Answer the one request of a connection. Its target alone decides where it goes, never Host."""
    try:
        head = await _http_request(client, dialer.limits.header_s)
        serve = _connect if head.method == "CONNECT" else _forward
        await serve(client, head, dialer)
        if head.method == "CONNECT":
            return
    except BadMessage as error:
        await client.send(plain_answer(error.status, error.text))
    except Denied as denied:
        await client.send(plain_answer(403, denied.refusal.text))
    except Unreachable as error:
        await client.send(plain_answer(504 if error.timed_out else 502, error.text))
    await client.linger()


async def _http_request(client: SocketStream, seconds: float) -> RequestHead:
    try:
        async with asyncio.timeout(seconds):
            return RequestHead.parse(await read_head(client))
    except TimeoutError:
        raise BadMessage(f"no complete request within {seconds:g} s", 408) from None


async def _forward(client: SocketStream, head: RequestHead, dialer: Dialer) -> None:
    if not _SCHEME.match(head.target):
        raise BadMessage("this is a proxy: the request target must be a whole URL")
    # https in the clear would mean that the proxy makes the TLS connection, and the program could not check
    # it.
    if not head.target[:7].lower() == "http://":
        raise BadMessage("only http:// URLs are forwarded; use CONNECT for https, SOCKS5 for other protocols")
    destination = _destination(head.target, head.target[7:], dialer)
    server = await dialer.connect(destination)
    try:
        await forward(client, server, head, destination, dialer.limits.idle_s)
    finally:
        server.close()


async def _connect(client: SocketStream, head: RequestHead, dialer: Dialer) -> None:
    if not _AUTHORITY.fullmatch(head.target) or head.body != 0:
        raise BadMessage("CONNECT needs `host:port` and no body")
    destination = _destination(f"https://{head.target}", head.target, dialer)
    server = await dialer.connect(destination)
    try:
        await client.send(_ESTABLISHED)
        await tunnel(client, server, destination, dialer)
    finally:
        server.close()


def _destination(url: str, rest: str, dialer: Dialer) -> Destination:
    """Return the destination of `url`, which is a scheme and `rest`; a bad host is recorded as a refusal."""
    try:
        return Destination.parse(url)
    except ValueError as error:
        reason = str(error)[:400]
    # A password may be before an `@`.
    host = re.split(r"[/?#]", rest, maxsplit=1)[0].rpartition("@")[2][:253]
    try:
        Destination.parse(f"http://{host}")
    except ValueError:
        dialer.denied(HostRefusal(host, 0, reason))
    raise BadMessage(reason)


VERSION = b"\x05"
_CONNECT = 1
_IPV4, _NAME, _IPV6 = 1, 3, 4
_SUCCEEDED, _NOT_ALLOWED, _NO_COMMAND, _NO_ADDRESS_TYPE = 0, 2, 7, 8
_NO_AUTHENTICATION = VERSION + b"\x00"
_NO_METHOD = VERSION + b"\xff"


class _SocksError(Exception):
    """The request cannot be served; `reply` is the code for the client."""

    def __init__(self, reply: int) -> None:
        self.reply = reply


async def serve_socks(client: SocketStream, dialer: Dialer) -> None:
    """Serve the one request of a connection."""
    try:
        async with asyncio.timeout(dialer.limits.header_s):
            if not await _greet(client):
                return
            destination = await _socks_request(client, dialer)
        server = await dialer.connect(destination)
    except _SocksError as error:
        await _refuse(client, error.reply)
    except Unreachable as error:
        await _refuse(client, error.socks_reply)
    except Denied:
        await _refuse(client, _NOT_ALLOWED)
    else:
        try:
            await client.send(_reply(_SUCCEEDED))
            await tunnel(client, server, destination, dialer)
        finally:
            server.close()


async def _greet(client: SocketStream) -> bool:
    _, count = await client.exactly(2)
    accepted = 0 in await client.exactly(count)
    await client.send(_NO_AUTHENTICATION if accepted else _NO_METHOD)
    return accepted


async def _socks_request(client: SocketStream, dialer: Dialer) -> Destination:
    version, command, _, kind = await client.exactly(4)
    if version != VERSION[0]:
        raise EOFError
    if kind == _NAME:
        (size,) = await client.exactly(1)
        # Not refused here: the reason and the name belong in the report of refused hosts.
        host = (await client.exactly(size)).decode("utf-8", "backslashreplace")
    elif kind == _IPV4:
        host = str(IPv4Address(await client.exactly(4)))
    elif kind == _IPV6:
        host = str(IPv6Address(await client.exactly(16)))
    else:
        raise _SocksError(_NO_ADDRESS_TYPE)
    port = int.from_bytes(await client.exactly(2))
    if command != _CONNECT:
        reason = f"SOCKS command {command} is not supported, only CONNECT (TCP)"
        dialer.denied(HostRefusal(host, port, reason))
        raise _SocksError(_NO_COMMAND)
    try:
        if port == 0:
            raise ValueError("`0` is not a port (1 to 65535)")
        return Destination("https", normal_host(host), port)
    except ValueError as error:
        raise dialer.denied(HostRefusal(host, port, str(error))) from None


async def _refuse(client: SocketStream, code: int) -> None:
    await client.send(_reply(code))
    await client.linger()


def _reply(code: int) -> bytes:
    """Return a reply with an empty bound address: a program need not know the proxy's own."""
    return VERSION + bytes((code, 0, _IPV4)) + bytes(6)


_log = logging.getLogger(__name__)
_RETRY_S = 0.2
_DEFAULT_LIMITS = ProxyLimits()
_FEW = 8
_SPARED = 256
"""Descriptors of this process that no proxied connection takes."""


_open: set[socket.socket] = set()
"""The connections of all proxies in this process."""


def _has_room(own: int) -> bool:
    """Return True if one more connection leaves enough descriptors for the server.

    A connection takes two, and half of all are spared. Once half of the rest are taken, a proxy that has
    `own` connections gets a few only.
    """
    # Asked each time: the limit can be raised while the server runs.
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = max(16, (soft - _SPARED) // 4)
    is_scarce = len(_open) >= most or (len(_open) >= most // 2 and own >= _FEW)
    return not is_scarce or soft == resource.RLIM_INFINITY


class Proxy:
    """Serves one program on `listener`, a listening TCP socket, which it owns from now on and closes.

    `policy` gives the hosts that may be reached (`program_policy`), `resolver` turns names into addresses
    (default: the machine's own), `on_refusal` is called in the event loop with each distinct refusal, at
    most a hundred times.

    A connection serves one request: an absolute `http://` URL by any method, `CONNECT host:port`, or SOCKS5
    CONNECT. The proxy checks the destination, resolves its name once, checks the addresses, and connects to
    a checked one. It answers a refused request with 403 and the reason, or SOCKS reply 2.
    Nothing is left after `aclose`: no task, no descriptor, no timer.
    """

    def __init__(
        self,
        listener: socket.socket,
        policy: HostPolicy,
        *,
        on_refusal: Callable[[HostRefusal], None],
        resolver: Resolver | None = None,
        limits: ProxyLimits = _DEFAULT_LIMITS,
    ) -> None:
        self._listener = listener
        self._dialer = Dialer(policy, resolver or SystemResolver(), on_refusal, limits)
        self._free = asyncio.Semaphore(limits.connections)
        self._connections: dict[asyncio.Task[None], socket.socket] = {}
        self._accepting: asyncio.Task[None] | None = None
        self.used = False
        """True once a client has connected."""

    async def __aenter__(self) -> Proxy:
        self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    @property
    def connections(self) -> int:
        """The number of open connections."""
        return len(self._connections)

    def start(self) -> None:
        """Accept connections from now on, in the running event loop."""
        self._listener.setblocking(False)
        self._accepting = asyncio.get_running_loop().create_task(self._accept())

    async def aclose(self) -> None:
        """Close the listener and every connection at once, and wait until all of it has ended."""
        if self._accepting is not None:
            self._accepting.cancel()
            await asyncio.wait((self._accepting,))
            self._accepting = None
        self._listener.close()
        tasks = list(self._connections)
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    async def _accept(self) -> None:
        """Take connections while there are free places; others wait in the listener's backlog."""
        loop = asyncio.get_running_loop()
        while True:
            await self._free.acquire()
            try:
                sock, _ = await loop.sock_accept(self._listener)
            except OSError:  # no descriptor or memory left, or a client that has gone
                self._free.release()
                await asyncio.sleep(_RETRY_S)
                continue
            self.used = True
            try:
                while not _has_room(len(self._connections)):  # noqa: ASYNC110 - other event loops give back too
                    await asyncio.sleep(_RETRY_S)
            except asyncio.CancelledError:
                sock.close()
                raise
            _open.add(sock)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            task = loop.create_task(self._serve(sock))
            self._connections[task] = sock
            task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        # Here and not in the task: one that is cancelled before its first step runs none of its lines.
        sock = self._connections.pop(task)
        _open.discard(sock)
        sock.close()
        self._free.release()
        if not task.cancelled() and (error := task.exception()) is not None:
            _log.error("a proxied connection failed", exc_info=error)

    async def _serve(self, sock: socket.socket) -> None:
        client = SocketStream(sock)
        try:
            async with asyncio.timeout(self._dialer.limits.header_s):
                first = await client.peek()
            if first[:1] == VERSION:
                await serve_socks(client, self._dialer)
            elif first:
                await serve_http(client, self._dialer)
        except (EOFError, OSError):  # TimeoutError too
            pass
