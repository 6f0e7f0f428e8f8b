"""Lines in and lines out over file descriptors, on the event loop, for descriptors of any kind.

asyncio's own pipes are not used, because they set O_NONBLOCK on standard input and output. That flag belongs
to the open file, which other processes may share: the shell that started this one would get errors. So
reading waits until the descriptor is ready and leaves the flag alone; writing opens a pipe a second time by
way of /proc, and makes only that one non-blocking.
"""

from __future__ import annotations

import asyncio
import errno
import fcntl
import os
import stat
from collections.abc import Callable
from contextlib import suppress

_CHUNK = 1 << 16
_HIGH = 4 << 20
"""Unsent bytes at which reading stops until the client has taken some."""
_LOW = 1 << 20


class LineReader:
    """Reads `fd` and passes on each line without its end; blank lines are ignored.

    `on_oversize` is called once for each line of more than `limit` bytes, which is discarded. At the end of
    the input an unfinished last line is passed on, then `on_end` is called.
    """

    def __init__(
        self,
        fd: int,
        on_line: Callable[[bytes], None],
        on_oversize: Callable[[], None],
        on_end: Callable[[], None],
        *,
        limit: int,
    ) -> None:
        self._fd = fd
        self._on_line = on_line
        self._on_oversize = on_oversize
        self._on_end = on_end
        self._limit = limit
        self._parts: list[bytes] = []
        """The begun line; empty if it is too long already."""
        self._size = 0
        self._loop = asyncio.get_running_loop()
        self._reading = False
        self._ended = False
        self._turn: asyncio.Handle | None = None
        """The next read of a regular file."""

    def start(self) -> None:
        """Read from now on, also after `pause`."""
        if self._reading or self._ended:
            return
        self._reading = True
        try:
            self._loop.add_reader(self._fd, self._read)
        except (PermissionError, ValueError):  # epoll takes no regular files: those can always be read
            self._turn = self._loop.call_soon(self._read_file)

    def pause(self) -> None:
        """Read nothing until `start`."""
        if self._reading:
            self._reading = False
            self._loop.remove_reader(self._fd)
            if self._turn is not None:
                self._turn.cancel()

    def stop(self) -> None:
        """Read nothing more."""
        self.pause()
        self._ended = True

    def _read_file(self) -> None:
        # Scheduled before it reads, so that whatever `_read` calls can pause it.
        self._turn = self._loop.call_soon(self._read_file)
        self._read()

    def _read(self) -> None:
        try:
            chunk = os.read(self._fd, _CHUNK)
        except BlockingIOError:
            return
        except OSError:  # a terminal that hung up, a connection reset
            chunk = b""
        if not chunk:
            self.stop()
            self._end_line()
            self._on_end()
            return
        *ends, rest = chunk.split(b"\n")
        for end in ends:
            self._add(end)
            self._end_line()
        if rest:
            self._add(rest)

    def _add(self, part: bytes) -> None:
        before = self._size
        self._size += len(part)
        if self._size <= self._limit:
            self._parts.append(part)
        # Only at the part that passes the limit, so the line is reported once.
        elif before <= self._limit:
            self._parts.clear()
            self._on_oversize()

    def _end_line(self) -> None:
        line = b"".join(self._parts)
        self._parts.clear()
        self._size = 0
        if line and not line.isspace():
            self._on_line(line)


class LineWriter:
    """Writes lines to `fd`, each in one piece and in order, without ever blocking the event loop.

    `on_pressure(True)` is called when the client reads too slowly, `on_pressure(False)` when it has caught
    up, `on_broken` once when it reads no more.
    """

    def __init__(self, fd: int, on_pressure: Callable[[bool], None], on_broken: Callable[[], None]) -> None:
        self._loop = asyncio.get_running_loop()
        self._fd, self._own, self._blocking = _non_blocking(fd)
        self._on_pressure = on_pressure
        self._on_broken = on_broken
        self._unsent = bytearray()
        self._pressed = False
        self._broken = False
        self._finished = False
        self._flushed: asyncio.Event | None = None

    @property
    def congested(self) -> bool:
        """True while anything waits to be sent."""
        return bool(self._unsent)

    def finish(self) -> None:
        """Send what was written until now, and nothing more."""
        self._finished = True

    def write(self, line: bytes) -> None:
        """Send one line, or as much as the descriptor takes now and the rest later."""
        if self._broken or self._finished:
            return
        data = line + b"\n"
        if not self._unsent:
            # Usually the descriptor takes all of it now, and no turn of the event loop is needed.
            sent = self._try(data)
            if sent == len(data) or self._broken:
                return
            self._loop.add_writer(self._fd, self._ready)
            data = data[sent:]
        self._unsent += data
        if len(self._unsent) > _HIGH and not self._pressed:
            self._pressed = True
            self._on_pressure(True)

    async def flush(self, seconds: float) -> None:
        """Wait until everything is sent, at most `seconds`."""
        if self._unsent and not self._broken:
            self._flushed = asyncio.Event()
            with suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await self._flushed.wait()

    def close(self) -> None:
        """Leave the descriptor as it was. Unsent lines are lost."""
        if self._unsent and not self._broken:
            self._loop.remove_writer(self._fd)
        self._broken = True
        if self._own:
            os.close(self._fd)
        elif self._blocking:
            os.set_blocking(self._fd, True)

    def _ready(self) -> None:
        sent = self._try(self._unsent)
        if self._broken:
            return
        del self._unsent[:sent]
        if not self._unsent:
            self._loop.remove_writer(self._fd)
            if self._flushed is not None:
                self._flushed.set()
        # Well below the mark at which reading stops, or a slow client would switch it with every line.
        if self._pressed and len(self._unsent) < _LOW:
            self._pressed = False
            self._on_pressure(False)

    def _try(self, data: bytes | bytearray) -> int:
        try:
            return os.write(self._fd, data)
        except BlockingIOError:
            return 0
        except OSError:  # EPIPE, ECONNRESET, ENOSPC: no further line can arrive
            self._broken = True
            if self._unsent:
                self._loop.remove_writer(self._fd)
                self._unsent.clear()
            if self._flushed is not None:
                self._flushed.set()
            self._on_broken()
            return 0


def _non_blocking(fd: int) -> tuple[int, bool, bool]:
    """Return a descriptor that writes to the file of `fd` without blocking.

    With it: True if it must be closed, and True if `fd` must be made blocking again.
    """
    kind = os.fstat(fd).st_mode
    # A regular file is always ready, whatever its flags are.
    if stat.S_ISREG(kind) or fcntl.fcntl(fd, fcntl.F_GETFL) & os.O_NONBLOCK:
        return fd, False, False
    if stat.S_ISFIFO(kind) or stat.S_ISCHR(kind):
        try:
            flags = os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY
            return os.open(f"/proc/self/fd/{fd}", flags), True, False
        except OSError as error:
            if error.errno == errno.ENXIO:  # nobody reads it: the first write will fail
                return fd, False, False
    # A socket cannot be opened by way of /proc, so its own flag changes until `close`.
    os.set_blocking(fd, False)
    return fd, False, True
