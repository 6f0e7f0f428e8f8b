"""The one way out of an empty network namespace: HTTP, CONNECT and SOCKS5 on one listening socket."""

from __future__ import annotations

import asyncio
import errno
import logging
import resource
import socket
import threading
from collections.abc import Callable
from types import TracebackType

from toolcrib.egress.policy import HostPolicy
from toolcrib.egress.proxy.gate import Gate, ProxyLimits
from toolcrib.egress.proxy.http import serve_http, too_late
from toolcrib.egress.proxy.refusal import Refusal
from toolcrib.egress.proxy.socks import VERSION, serve_socks
from toolcrib.egress.proxy.wire import Wire
from toolcrib.egress.resolver import Resolver, SystemResolver

__all__ = ["Proxy"]

_log = logging.getLogger(__name__)
_NO_ROOM = frozenset((errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM))
_RETRY_S = 0.2
_DEFAULT_LIMITS = ProxyLimits()
_SPARED = 256
"""Descriptors of this process that no proxied connection takes."""


class _Budget:
    """How many connections all proxies of this process may have open, so that programs cannot use up its
    descriptors together: two for each, and half of all stay for other things."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._open = 0

    def take(self) -> bool:
        """Whether there is room for one more, which is counted then."""
        soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        with self._lock:
            if soft != resource.RLIM_INFINITY and self._open >= max(16, (soft - _SPARED) // 4):
                return False
            self._open += 1
        return True

    def give_back(self) -> None:
        """One has been closed."""
        with self._lock:
            self._open -= 1


_budget = _Budget()


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
        self.used = False
        """Whether anybody has ever connected."""

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
        if not _budget.take():
            self._come_again()
            return
        try:
            sock, _ = self._listener.accept()
        except OSError as error:
            _budget.give_back()
            if error.errno in _NO_ROOM:
                self._come_again()
            return
        self.used = True
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        task = self._loop.create_task(self._serve(sock))
        self._connections[task] = sock
        task.add_done_callback(self._ended)

    def _come_again(self) -> None:
        """Let connections wait in the backlog for a while."""
        assert self._loop is not None
        self._pause()
        self._retry = self._loop.call_later(_RETRY_S, self._listen)

    def _ended(self, task: asyncio.Task[None]) -> None:
        # Here and not in the task: one that is cancelled before its first step runs none of its lines.
        self._connections.pop(task).close()
        _budget.give_back()
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
