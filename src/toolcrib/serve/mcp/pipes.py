"""Lines in and lines out over file descriptors, on the event loop, whatever the descriptors are.

Reading waits for readiness and never sets O_NONBLOCK: that flag belongs to the open file, which other
processes may share. What cannot be waited for (regular files) is read by a thread. Writing must not block the
loop either, so a pipe is opened a second time, non-blocking, by way of /proc.
"""

from __future__ import annotations

import asyncio
import errno
import fcntl
import os
import stat
import threading
from collections import deque
from collections.abc import Callable

__all__ = ["LineReader", "LineWriter"]

_CHUNK = 1 << 16
_HIGH = 4 << 20
"""Unsent bytes at which reading stops until the client has taken some."""
_LOW = 1 << 20


class LineReader:
    """Reads `fd` and hands over each line without its end; blank lines are passed over.

    A line longer than `limit` bytes is thrown away and `on_oversize` told once. At the end of the input
    `on_end` is called, after an unfinished last line was handed over.
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
        self._held = 0
        self._skipping = False
        self._loop = asyncio.get_running_loop()
        self._threaded = False
        self._ended = False
        self._paused = False
        self._turn = threading.Event()
        """Set while the thread may read on."""

    def start(self) -> None:
        """Begin to read."""
        try:
            self._loop.add_reader(self._fd, self._ready)
        except (PermissionError, ValueError):  # epoll takes no regular files
            self._threaded = True
            self._turn.set()
            # A descriptor of its own: the thread may outlive the caller's, whose number may be given anew.
            fd = os.dup(self._fd)
            threading.Thread(target=self._read_in_thread, args=(fd,), name="mcp-stdin", daemon=True).start()

    def pause(self) -> None:
        """Read nothing until `resume`."""
        if not self._paused and not self._ended:
            self._paused = True
            if self._threaded:
                self._turn.clear()
            else:
                self._loop.remove_reader(self._fd)

    def resume(self) -> None:
        """Read on after `pause`."""
        if self._paused and not self._ended:
            self._paused = False
            if self._threaded:
                self._turn.set()
            else:
                self._loop.add_reader(self._fd, self._ready)

    def stop(self) -> None:
        """Read nothing more, ever."""
        if not self._ended:
            self._ended = True
            if self._threaded:
                self._turn.set()
            else:
                self._loop.remove_reader(self._fd)

    def _ready(self) -> None:
        try:
            chunk = os.read(self._fd, _CHUNK)
        except (BlockingIOError, InterruptedError):
            return
        except OSError:  # a terminal that hung up, a connection reset
            chunk = b""
        self._take(chunk)

    def _read_in_thread(self, fd: int) -> None:
        chunk = b"-"
        while chunk:
            self._turn.wait()
            if self._ended:
                break
            try:
                chunk = os.read(fd, _CHUNK)
            except OSError:
                chunk = b""
            self._turn.clear()
            try:
                self._loop.call_soon_threadsafe(self._take_from_thread, chunk)
            except RuntimeError:  # the loop is closed
                break
        os.close(fd)

    def _take_from_thread(self, chunk: bytes) -> None:
        if not self._ended:
            self._take(chunk)
            if not self._paused:
                self._turn.set()

    def _take(self, chunk: bytes) -> None:
        if not chunk:
            self._finish()
            return
        lines = chunk.split(b"\n")
        last = lines.pop()
        if lines:
            self._line(lines[0])
            for line in lines[1:]:
                self._line(line)
        if last:
            self._hold(last)

    def _line(self, end: bytes) -> None:
        """A line is complete: `end` is what came after the parts held."""
        if self._skipping:
            self._skipping = False
            return
        if self._parts:
            self._parts.append(end)
            end = b"".join(self._parts)
            self._parts.clear()
            self._held = 0
        if len(end) > self._limit:
            self._on_oversize()
        elif end and not end.isspace():
            self._on_line(end)

    def _hold(self, part: bytes) -> None:
        if self._skipping:
            return
        self._held += len(part)
        if self._held > self._limit:
            self._parts.clear()
            self._held = 0
            self._skipping = True
            self._on_oversize()
        else:
            self._parts.append(part)

    def _finish(self) -> None:
        self.stop()
        if self._parts:
            self._line(b"")
        self._on_end()


class LineWriter:
    """Writes lines to `fd`, each in one piece and in order, without ever blocking the event loop.

    `on_pressure(True)` is called when the client does not keep up, `on_pressure(False)` when it has caught
    up, `on_broken` once when nobody reads any more.
    """

    def __init__(self, fd: int, on_pressure: Callable[[bool], None], on_broken: Callable[[], None]) -> None:
        self._loop = asyncio.get_running_loop()
        self._fd, self._own, self._blocking = _non_blocking(fd)
        self._on_pressure = on_pressure
        self._on_broken = on_broken
        self._unsent: deque[memoryview] = deque()
        self._size = 0
        self._pressed = False
        self._broken = False
        self._flushed: asyncio.Event | None = None

    @property
    def congested(self) -> bool:
        """Whether anything waits to be sent."""
        return self._size > 0

    def write(self, line: bytes) -> None:
        """Send one line; what the descriptor does not take now goes out later."""
        if self._broken:
            return
        data = line + b"\n"
        if not self._size:
            sent = self._try(data)
            if sent == len(data) or self._broken:
                return
            self._loop.add_writer(self._fd, self._ready)
            self._unsent.append(memoryview(data)[sent:])
            self._size = len(data) - sent
        else:
            self._unsent.append(memoryview(data))
            self._size += len(data)
        if self._size > _HIGH and not self._pressed:
            self._pressed = True
            self._on_pressure(True)

    async def flush(self, seconds: float) -> None:
        """Wait until all is sent, but not longer than `seconds`."""
        if self._size and not self._broken:
            self._flushed = asyncio.Event()
            try:
                async with asyncio.timeout(seconds):
                    await self._flushed.wait()
            except TimeoutError:
                pass

    def close(self) -> None:
        """Give the descriptor back as it was; what is unsent is lost."""
        if self._size and not self._broken:
            self._loop.remove_writer(self._fd)
        self._broken = True
        if self._own:
            os.close(self._fd)
        elif self._blocking:
            os.set_blocking(self._fd, True)

    def _ready(self) -> None:
        while self._unsent:
            data = self._unsent[0]
            sent = self._try(data)
            self._size -= sent
            if self._broken:
                return
            if sent < len(data):
                self._unsent[0] = data[sent:]
                break
            self._unsent.popleft()
        if not self._unsent:
            self._loop.remove_writer(self._fd)
            if self._flushed is not None:
                self._flushed.set()
        if self._pressed and self._size < _LOW:
            self._pressed = False
            self._on_pressure(False)

    def _try(self, data: bytes | memoryview) -> int:
        try:
            return os.write(self._fd, data)
        except (BlockingIOError, InterruptedError):
            return 0
        except OSError:  # EPIPE, ECONNRESET, ENOSPC: nothing more will arrive anywhere
            self._broken = True
            if self._unsent:
                self._loop.remove_writer(self._fd)
                self._unsent.clear()
            if self._flushed is not None:
                self._flushed.set()
            self._on_broken()
            return 0


def _non_blocking(fd: int) -> tuple[int, bool, bool]:
    """A descriptor that writes where `fd` does, without blocking; is it ours; is `fd` to be set back."""
    kind = os.fstat(fd).st_mode
    if stat.S_ISREG(kind) or fcntl.fcntl(fd, fcntl.F_GETFL) & os.O_NONBLOCK:
        return fd, False, False
    if stat.S_ISFIFO(kind) or stat.S_ISCHR(kind):
        try:
            flags = os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY
            return os.open(f"/proc/self/fd/{fd}", flags), True, False
        except OSError as error:
            if error.errno == errno.ENXIO:  # nobody reads it: writing will say so
                return fd, False, False
    os.set_blocking(fd, False)
    return fd, False, True
