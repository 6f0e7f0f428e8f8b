"""The HTTP server: uvicorn on a socket of ours, with limits on heads of requests, and its end."""

from __future__ import annotations

import asyncio
import gc
import signal
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http import HTTPStatus
from types import FrameType
from typing import Any

from starlette.types import ASGIApp

from toolcrib.core.signals import defaults_in_forks
from toolcrib.errors import ConflictError, InvalidInput, TooLarge, ToolcribError, UsageError
from toolcrib.serve.http.app import SECURITY_HEADERS
from toolcrib.serve.http.problems import problem

GRACE_S = 10
"""Seconds that the calls of running requests have to end after a signal, before they are cancelled."""
_ANSWERS_S = 3
"""Seconds for the answers after that, before their connections are closed."""
_IDLE_S = 75
"""Seconds for which a connection stays open without a request.

Longer than proxies (60 s) and HTTP clients keep one, so that a request never meets the end of its connection.
"""
HEAD_S = 20.0
MAX_HEAD = 128 << 10
"""Bytes of a head that is not complete yet."""


class HeadLimits(asyncio.Protocol):
    """Limits the head of a request, in bytes and in time, which uvicorn does not.

    Anybody who can connect could otherwise fill the memory with one head, or take all connections with heads
    that never end: a token is read only from a complete one. Comes before a protocol of uvicorn, whose
    `cycle` is the request that is read or answered.
    """

    head_s = HEAD_S
    cycle: Any
    transport: Any
    server_state: Any
    _head = 0
    _timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._start_timer()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_timer()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        before = self.cycle
        in_body = before is not None and before.more_body
        super().data_received(data)
        if self.cycle is not before:
            self._head = 0
            self._stop_timer()
            return
        if not in_body:
            self._head += len(data)
        if self._head > MAX_HEAD:
            if not self._is_answering:
                self._answer(431, TooLarge(f"the head of the request is larger than {MAX_HEAD:,} bytes"))
            self.transport.close()
        elif self._timer is None and not (in_body and self._is_answering):
            # Also for the rest of a body whose request is answered: nobody else limits it.
            self._start_timer()

    def send_400_response(self, _: str) -> None:
        """Refuse what cannot be read as a request; uvicorn calls this."""
        self._answer(400, InvalidInput("this cannot be read as an HTTP request"))
        self.transport.close()

    def _answer(self, status: int, error: ToolcribError) -> None:
        """Answer in place of the application, in the form of its errors."""
        answer = problem(error, {**SECURITY_HEADERS, "connection": "close"})
        lines = [f"HTTP/1.1 {status} {HTTPStatus(status).phrase}".encode()]
        lines += [b"%b: %b" % line for line in (*self.server_state.default_headers, *answer.raw_headers)]
        self.transport.write(b"\r\n".join((*lines, b"", bytes(answer.body))))

    def on_message_complete(self) -> None:
        """Note the end of a body, which uvicorn does not where its request was answered before."""
        super().on_message_complete()  # type: ignore[misc]  # httptools calls it
        self.cycle.more_body = False

    @property
    def _is_answering(self) -> bool:
        return self.cycle is not None and not self.cycle.response_complete

    def _start_timer(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(self.head_s, self._expire)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _expire(self) -> None:
        self._timer = None
        # After the answer to the request before, uvicorn's own limit for idle connections counts.
        if not self._is_answering:
            self.transport.close()


def open_socket(host: str, port: int) -> socket.socket:
    """Return a socket that listens; port 0 takes a free one. Raises UsageError, ConflictError."""
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    except (socket.gaierror, OverflowError) as error:
        raise UsageError(f"{host!r} is not an address of this machine: {error}") from None
    found = socket.socket(family, socket.SOCK_STREAM)
    try:
        # Else a restart fails for about a minute, while old connections are in TIME_WAIT (socket(7)).
        found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        # Its connections inherit this. Else the body of an answer waits for the client's acknowledgement.
        found.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        found.bind(address)
        found.listen(1024)
    except OSError as error:
        found.close()
        raise ConflictError(
            f"{host}:{port} cannot be used: {error.strerror}", hint="Choose another with --port."
        ) from None
    return found


class _JoinedWrites:
    """A transport that sends the head of an answer together with what follows it in the same turn.

    uvicorn writes head and body apart, and each write is a system call and wakes the client.
    """

    def __init__(self, transport: Any) -> None:
        self._transport, self._head = transport, b""
        self.is_closing = transport.is_closing  # Asked for each answer; `__getattr__` takes longer.
        self._loop = asyncio.get_running_loop()

    def write(self, data: bytes) -> None:
        if self._head:
            data, self._head = self._head + data, b""
        elif data.startswith(b"HTTP/"):
            self._head = data
            self._loop.call_soon(self._flush)
            return
        self._transport.write(data)

    def _flush(self) -> None:
        if self._head and not self._transport.is_closing():
            self.write(b"")

    def close(self) -> None:
        self._flush()
        self._transport.close()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)


def _protocol(head_seconds: float) -> type[asyncio.Protocol]:
    """Return uvicorn's protocol with limits on heads."""
    from uvicorn.protocols.http.auto import AutoHTTPProtocol

    class Protocol(HeadLimits, AutoHTTPProtocol):  # type: ignore[misc, valid-type]
        head_s = head_seconds

        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            super().connection_made(_JoinedWrites(transport))

    return Protocol


async def serve_app(
    app: ASGIApp, listening: socket.socket, closing: asyncio.Event, head_seconds: float = HEAD_S
) -> None:
    """Serve one application until SIGINT or SIGTERM. Running requests then get ten seconds to end.

    `closing` is set when the server stops: requests that last long must end then. `head_seconds` is the time
    that a client has to send the head of a request.
    """
    import uvicorn

    loop, ended = asyncio.get_running_loop(), asyncio.Event()

    class Server(uvicorn.Server):
        async def main_loop(self) -> None:
            """Wait for the end. uvicorn would look for it ten times a second."""
            while not await self.on_tick(0):  # It also sets the time that answers have in their head.
                with suppress(TimeoutError):
                    async with asyncio.timeout(1.0):
                        await ended.wait()

        def handle_exit(self, sig: int, frame: FrameType | None) -> None:
            super().handle_exit(sig, frame)
            loop.call_soon_threadsafe(ended.set)

        async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
            # First, since uvicorn waits for running responses, and streams end only when they see this.
            closing.set()
            await super().shutdown(sockets)

        @contextmanager
        def capture_signals(self) -> Iterator[None]:
            """Stop on signals. uvicorn would raise them again, and the project would stay open."""
            # Python lets only the main thread set signal handlers.
            is_main = threading.current_thread() is threading.main_thread()
            numbers = (signal.SIGINT, signal.SIGTERM) if is_main else ()
            before = [(number, signal.signal(number, self.handle_exit)) for number in numbers]
            try:
                with defaults_in_forks(numbers):
                    yield
            finally:
                for number, handler in before:
                    signal.signal(number, handler)

    config = uvicorn.Config(
        app,
        http=_protocol(head_seconds),
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        # uvicorn would believe X-Forwarded-For and -Proto of any program on this machine.
        proxy_headers=False,
        ws="none",
        timeout_keep_alive=_IDLE_S,
        timeout_graceful_shutdown=GRACE_S + _ANSWERS_S,
    )
    gc.freeze()  # What is there by now stays, so no collection has to look at it.
    await Server(config).serve([listening])
