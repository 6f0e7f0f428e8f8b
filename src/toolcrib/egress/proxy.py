"""The one way out of an empty network namespace: HTTP, CONNECT and SOCKS5 on one listening socket."""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
from collections.abc import Callable
from types import TracebackType

from toolcrib.egress.gate import Gate, ProxyLimits
from toolcrib.egress.policy import HostPolicy
from toolcrib.egress.proxy_http import serve_http, too_late
from toolcrib.egress.proxy_socks import VERSION, serve_socks
from toolcrib.egress.refusal import Refusal
from toolcrib.egress.resolver import Resolver, SystemResolver
from toolcrib.egress.wire import Wire

__all__ = ["Proxy"]

_log = logging.getLogger(__name__)
_NO_ROOM = frozenset((errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM))
_RETRY_S = 0.2
_DEFAULT_LIMITS = ProxyLimits()


class Proxy:
    """Serves one program on `listener`, a listening TCP socket, which it owns from now on and closes.

    `policy` says which hosts may be reached (`program_policy`), `resolver` turns names into addresses
    (default: the machine's own), `on_refusal` is called in the event loop with each distinct thing that
    was not let through, at most a hundred times.

    What may be asked, one request per connection: an absolute `http://` URL by any method, `CONNECT
    host:port`, SOCKS5 CONNECT. The destination is checked, its name resolved once, the addresses checked,
    and a checked address connected to. Refusals are answered with 403 and the reason, or SOCKS reply 2.
    Nothing is left after `aclose`: no task, no descriptor, no timer.
    """

    def __init__(
        self,
        listener: socket.socket,
        policy: HostPolicy,
        *,
        on_refusal: Callable[[Refusal], None],
        resolver: Resolver | None = None,
        limits: ProxyLimits = _DEFAULT_LIMITS,
    ) -> None:
        self._listener = listener
        self._gate = Gate(policy, resolver or SystemResolver(), on_refusal, limits)
        self._connections: dict[asyncio.Task[None], socket.socket] = {}
        self._loop: asyncio.AbstractEventLoop | None = None
        self._accepting = False
        self._retry: asyncio.TimerHandle | None = None

    async def __aenter__(self) -> Proxy:
        self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    @property
    def connections(self) -> int:
        """How many are open now."""
        return len(self._connections)

    def start(self) -> None:
        """Accept connections from now on, in the running event loop."""
        self._loop = asyncio.get_running_loop()
        self._listener.setblocking(False)
        self._listen()

    async def aclose(self) -> None:
        """Close the listener and every connection at once, and wait until all of it has ended."""
        self._pause()
        self._loop = None
        self._listener.close()
        tasks = list(self._connections)
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    def _listen(self) -> None:
        self._retry = None
        if self._loop is not None and not self._accepting:
            self._loop.add_reader(self._listener, self._accept)
            self._accepting = True

    def _pause(self) -> None:
        if self._retry is not None:
            self._retry.cancel()
            self._retry = None
        if self._loop is not None and self._accepting:
            self._loop.remove_reader(self._listener)
        self._accepting = False

    def _accept(self) -> None:
        """Take one connection; the listener stays readable while there are more."""
        assert self._loop is not None
        if len(self._connections) >= self._gate.limits.connections:
            self._pause()
            return
        try:
            sock, _ = self._listener.accept()
        except OSError as error:
            if error.errno in _NO_ROOM:
                self._pause()
                self._retry = self._loop.call_later(_RETRY_S, self._listen)
            return
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        task = self._loop.create_task(self._serve(sock))
        self._connections[task] = sock
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        # Here and not in the task: one that is cancelled before its first step runs none of its lines.
        self._connections.pop(task).close()
        if not task.cancelled() and (error := task.exception()) is not None:
            _log.error("a proxied connection failed", exc_info=error)
        if self._retry is None:
            self._listen()

    async def _serve(self, sock: socket.socket) -> None:
        client = Wire(sock)
        first = b""
        try:
            async with asyncio.timeout(self._gate.limits.header_s) as head_limit:
                first = await client.receive()
                client.put_back(first)
                if not first:
                    return
                if first[0] == VERSION:
                    await serve_socks(client, self._gate, head_limit)
                else:
                    await serve_http(client, self._gate, head_limit)
        except TimeoutError:
            if first and first[0] != VERSION:
                await too_late(client, self._gate)
        except (EOFError, OSError):
            pass
