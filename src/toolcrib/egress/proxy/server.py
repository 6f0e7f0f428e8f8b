"""The only way out of an empty network namespace: HTTP, CONNECT and SOCKS5 on one listening socket."""

from __future__ import annotations

import asyncio
import logging
import resource
import socket
import threading
from collections.abc import Callable

from toolcrib.egress.address import Resolver, SystemResolver
from toolcrib.egress.policy import HostPolicy
from toolcrib.egress.proxy.dialer import Dialer, ProxyLimits
from toolcrib.egress.proxy.http_server import serve_http
from toolcrib.egress.proxy.refusal import HostRefusal
from toolcrib.egress.proxy.socks import VERSION, serve_socks
from toolcrib.egress.proxy.stream import SocketStream

_log = logging.getLogger(__name__)
_RETRY_S = 0.2
_DEFAULT_LIMITS = ProxyLimits()
_SPARED = 256
"""Descriptors of this process that no proxied connection takes."""


class _DescriptorBudget:
    """The number of connections of all proxies in this process.

    Programs must not use up its descriptors together: a connection takes two, and half of all are spared.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._open = 0

    def take(self) -> bool:
        """Count one more connection; return False if there are too many."""
        # Asked each time: the limit can be raised while the server runs.
        soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        with self._lock:
            if soft != resource.RLIM_INFINITY and self._open >= max(16, (soft - _SPARED) // 4):
                return False
            self._open += 1
        return True

    def give_back(self) -> None:
        """Count one connection less."""
        with self._lock:
            self._open -= 1


_budget = _DescriptorBudget()


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
                while not _budget.take():  # noqa: ASYNC110 - other event loops give back too
                    await asyncio.sleep(_RETRY_S)
            except asyncio.CancelledError:
                sock.close()
                raise
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            task = loop.create_task(self._serve(sock))
            self._connections[task] = sock
            task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        # Here and not in the task: one that is cancelled before its first step runs none of its lines.
        self._connections.pop(task).close()
        self._free.release()
        _budget.give_back()
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
