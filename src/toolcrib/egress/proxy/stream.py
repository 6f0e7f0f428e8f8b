"""One end of a proxied connection: a socket, and the bytes of it that were read ahead.

Bytes are read when the proxy waits for them and sent before more are read, so a connection never keeps more
than one chunk in each direction, whatever the speed of its two ends. asyncio's own streams read ahead.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

CHUNK = 64 * 1024
_SENDS_IN_A_ROW = 8
_LINGER_S = 1.0
_LINGER_BYTES = 1024 * 1024


class TooLong(Exception):
    """A line is longer than its limit."""


class SocketStream:
    """A non-blocking socket of the running event loop, for one reader and one writer at a time."""

    __slots__ = ("_ahead", "_loop", "_sends", "_socket", "on_transfer")

    def __init__(self, sock: socket.socket) -> None:
        self._socket = sock
        self._loop = asyncio.get_running_loop()
        self._ahead = bytearray()
        self._sends = 0
        self.on_transfer: Callable[[], None] | None = None
        """Called after every chunk that was received or sent."""

    @property
    def buffered(self) -> bool:
        """True if bytes were read ahead."""
        return bool(self._ahead)

    async def receive(self, limit: int = CHUNK) -> bytes:
        """Return at most `limit` bytes as soon as there are any; no bytes at the end."""
        if self._ahead:
            return self._take(min(limit, len(self._ahead)))
        data = await self._loop.sock_recv(self._socket, min(limit, CHUNK))
        self._transferred()
        return data

    async def peek(self, known: int = 0) -> bytes:
        """Return the next bytes without taking them: more than `known`, unless the other end has finished."""
        while len(self._ahead) <= known and await self._read_ahead():
            pass
        return bytes(self._ahead)

    async def line(self, limit: int) -> bytes:
        """Return all bytes up to the next line feed. Raises TooLong beyond `limit`, EOFError at the end."""
        searched = 0
        while not (size := self._ahead.find(b"\n", searched) + 1):
            searched = len(self._ahead)
            if searched >= limit:
                raise TooLong
            if not await self._read_ahead():
                raise EOFError
        if size > limit:
            raise TooLong
        return self._take(size)

    async def exactly(self, size: int) -> bytes:
        """Return `size` bytes; EOFError if there are fewer."""
        data = b""
        while len(data) < size:
            piece = await self.receive(size - len(data))
            if not piece:
                raise EOFError
            data += piece
        return data

    async def send(self, data: bytes) -> None:
        """Send all of `data`; OSError if the other end is gone."""
        await self._loop.sock_sendall(self._socket, data)
        self._transferred()
        # A socket that is always ready would never let the other connections of this loop continue.
        self._sends = (self._sends + 1) % _SENDS_IN_A_ROW
        if self._sends == 0:
            await asyncio.sleep(0)

    def finish(self) -> None:
        """Signal that nothing more will be sent."""
        # Half-closed: what the other end still sends can be read.
        self._shut(socket.SHUT_WR)

    def abort(self) -> None:
        """End both directions and wake all who wait for this end. The owner closes the socket."""
        self._shut(socket.SHUT_RDWR)

    def detach(self) -> socket.socket:
        """Return the socket to a new owner. Nothing may have been read ahead."""
        return self._socket

    def close(self) -> None:
        """Close the socket. Nobody may be waiting for it."""
        self._socket.close()

    async def linger(self) -> None:
        """Signal the end, and discard for a moment what still arrives.

        The kernel resets a connection that is closed with unread bytes, and the other end loses the answer.
        """
        self.finish()
        left = _LINGER_BYTES
        try:
            async with asyncio.timeout(_LINGER_S):
                while left > 0 and (data := await self.receive()):
                    left -= len(data)
        except OSError:  # TimeoutError too
            pass

    async def _read_ahead(self) -> bool:
        piece = await self._loop.sock_recv(self._socket, CHUNK)
        self._ahead += piece
        self._transferred()
        return bool(piece)

    def _take(self, size: int) -> bytes:
        data = bytes(self._ahead[:size])
        del self._ahead[:size]
        return data

    def _transferred(self) -> None:
        if self.on_transfer is not None:
            self.on_transfer()

    def _shut(self, how: int) -> None:
        try:
            self._socket.shutdown(how)
        except OSError:
            pass


@asynccontextmanager
async def idle_limit(seconds: float, *streams: SocketStream) -> AsyncIterator[None]:
    """End the block with TimeoutError when none of the streams has moved a byte for `seconds`."""
    now = asyncio.get_running_loop().time
    async with asyncio.timeout(seconds) as limit:

        def extend() -> None:
            if not limit.expired():
                limit.reschedule(now() + seconds)

        for stream in streams:
            stream.on_transfer = extend
        try:
            yield
        finally:
            for stream in streams:
                stream.on_transfer = None
