"""Read what a confined command writes: keep the first bytes, count and discard the rest."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable

CHUNK = 65_536
DISCARD = 1 << 20
TAIL = 65_536


class OwnPipes:
    """Our ends of the pipes of a process that stays, and the end of what it wrote to standard error."""

    def __init__(self, stdin: int = -1, stdout: int = -1) -> None:
        self.stdin = stdin
        """Written by the caller; -1 once it is closed."""
        self.stdout = stdout
        """Read by the caller."""
        self._tail = bytearray()

    def keep(self, data: bytes) -> None:
        """Keep the last 64 KiB of standard error; a flood takes no memory."""
        self._tail += data
        del self._tail[:-TAIL]

    @property
    def stderr(self) -> str:
        """The last 64 KiB of what it wrote to standard error."""
        return self._tail.decode(errors="replace")

    @property
    def stderr_cut(self) -> bool:
        """True if it may have written more than that."""
        return len(self._tail) >= TAIL

    def take_stdin(self) -> int:
        """Return the descriptor, which the caller then has to close."""
        fd, self.stdin = self.stdin, -1
        return fd

    def take_stdout(self) -> int:
        """Return the descriptor, which the caller then has to close."""
        fd, self.stdout = self.stdout, -1
        return fd

    def close_pipes(self) -> None:
        """Close those that nobody has taken."""
        for fd in (self.take_stdin(), self.take_stdout()):
            if fd >= 0:
                os.close(fd)


class PipeReader:
    """One pipe read to its end inside the event loop; at most `limit` bytes are kept.

    Past the limit the pipe is emptied by splice(2) into /dev/null, without copying a byte.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        fd: int,
        limit: int,
        on_data: Callable[[], None] | None = None,
        on_output: Callable[[bytes], None] | None = None,
    ) -> None:
        self.kept = bytearray()
        self.total = 0
        """Bytes read, kept or not."""
        self.ended: asyncio.Future[None] = loop.create_future()
        self._loop = loop
        self._fd = fd
        self._limit = limit
        self._null = -1
        self._on_data = on_data
        self._on_output = on_output
        os.set_blocking(fd, False)
        loop.add_reader(fd, self._read)

    def _read(self) -> None:
        left = self._limit - len(self.kept)
        try:
            if left > 0:
                data = os.read(self._fd, min(left, CHUNK))
                self.kept += data
                if self._on_output is not None and data:
                    self._on_output(data)
                count = len(data)
            else:
                count = self._discard()
        except BlockingIOError:
            return
        except OSError:
            count = 0
        self.total += count
        if count == 0:
            self.close()
        if self._on_data is not None:
            self._on_data()

    def _discard(self) -> int:
        if self._null < 0:
            self._null = os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC)
        return os.splice(self._fd, self._null, DISCARD)

    def close(self) -> None:
        """Stop reading; what was read until now stays."""
        if self._fd < 0:
            return
        self._loop.remove_reader(self._fd)
        for fd in (self._fd, self._null):
            if fd >= 0:
                os.close(fd)
        self._fd = self._null = -1
        if not self.ended.done():
            self.ended.set_result(None)
