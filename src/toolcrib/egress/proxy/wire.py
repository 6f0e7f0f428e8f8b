"""One end of a proxied connection: a socket, what was read of it too early, and how long it may be silent.

Bytes are read when somebody waits for them and sent before more are read, so that a connection never holds
more than one chunk in each direction, whatever the speed of its two ends.
"""

from __future__ import annotations

import asyncio
import re
import socket
from collections.abc import Callable
from types import TracebackType

__all__ = ["CHUNK", "Idle", "TooLong", "Wire"]

CHUNK = 64 * 1024
_TURNS = 8
_LINGER_S = 1.0
_LINGER_BYTES = 1024 * 1024
_BARE_LINE_END = re.compile(rb"(?<!\r)\n")


class TooLong(Exception):
    """What was to be read is longer than its limit."""


def _nothing() -> None:
    pass


class Wire:
    """A non-blocking socket of the running event loop. Not for use by two readers or two writers at once."""

    __slots__ = ("_held", "_loop", "_socket", "_turn", "touch")

    def __init__(self, sock: socket.socket) -> None:
        self._socket = sock
        self._loop = asyncio.get_running_loop()
        self._held = bytearray()
        self._turn = 0
        self.touch: Callable[[], None] = _nothing
        """Called for every chunk that goes in or out."""

    async def receive(self, limit: int = CHUNK) -> bytes:
        """At most `limit` bytes, as soon as there are any; nothing at the end."""
        if self._held:
            return self._take(min(limit, len(self._held)))
        data = await self._loop.sock_recv(self._socket, min(limit, CHUNK))
        self.touch()
        return data

    @property
    def holds(self) -> bool:
        """Whether bytes have been read that nobody has taken yet."""
        return bool(self._held)

    def put_back(self, data: bytes | bytearray) -> None:
        """Let `data` be what is read next."""
        self._held[:0] = data

    async def until(self, mark: bytes, limit: int) -> bytes:
        """Everything up to and with `mark`. EOFError at the end, TooLong beyond `limit` bytes.

        A line end without a carriage return also ends the wait: `mark` might never come after it.
        """
        held, start = self._held, 0
        while True:
            at = held.find(mark, start)
            if at >= 0 and at + len(mark) <= limit:
                return self._take(at + len(mark))
            if at < 0 and _BARE_LINE_END.search(held, start):
                return self._take(min(limit, len(held)))
            if at >= 0 or len(held) >= limit:
                raise TooLong
            start = max(0, len(held) - len(mark))
            piece = await self._loop.sock_recv(self._socket, CHUNK)
            if not piece:
                raise EOFError
            held += piece
            self.touch()

    async def exactly(self, size: int) -> bytes:
        """`size` bytes; EOFError if there are not so many."""
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
        self.touch()

    async def share(self) -> None:
        """Let the other connections of this loop go on now and then: a socket that is always ready for
        the next chunk would keep them all waiting."""
        self._turn = (self._turn + 1) % _TURNS
        if self._turn == 0:
            await asyncio.sleep(0)

    def finish(self) -> None:
        """Say that nothing more will be sent."""
        self._shut(socket.SHUT_WR)

    def abort(self) -> None:
        """End both directions: whoever waits for this end is woken. The socket is closed by its owner."""
        self._shut(socket.SHUT_RDWR)

    def close(self) -> None:
        """Close the socket. Nobody may be waiting for it."""
        self._socket.close()

    async def linger(self) -> None:
        """Say the end, and read for a moment what still comes: an unread byte would make the kernel
        reset the connection and the other end lose the answer."""
        self.finish()
        left = _LINGER_BYTES
        self._held.clear()
        try:
            async with asyncio.timeout(_LINGER_S):
                while left > 0 and (data := await self.receive()):
                    left -= len(data)
        except (TimeoutError, OSError):
            pass

    def _take(self, size: int) -> bytes:
        data = bytes(self._held[:size])
        del self._held[:size]
        return data

    def _shut(self, how: int) -> None:
        try:
            self._socket.shutdown(how)
        except OSError:
            pass


class Idle:
    """Ends the block with TimeoutError when none of the wires has moved a byte for `seconds`."""

    __slots__ = ("_loop", "_next", "_seconds", "_timeout", "_wires")

    def __init__(self, seconds: float, *wires: Wire) -> None:
        self._seconds = seconds
        self._wires = wires
        self._loop = asyncio.get_running_loop()
        self._timeout = asyncio.timeout(seconds)
        self._next = self._loop.time() + seconds / 16

    async def __aenter__(self) -> Idle:
        await self._timeout.__aenter__()
        for wire in self._wires:
            wire.touch = self._touch
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for wire in self._wires:
            wire.touch = _nothing
        await self._timeout.__aexit__(kind, error, trace)

    def _touch(self) -> None:
        # Moving the deadline costs a timer: a sixteenth of the span is close enough.
        now = self._loop.time()
        if now > self._next:
            self._next = now + self._seconds / 16
            if not self._timeout.expired():
                self._timeout.reschedule(now + self._seconds)
