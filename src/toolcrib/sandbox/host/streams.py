"""Read what a confined command writes: keep the first bytes, count and throw away the rest."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable

__all__ = ["Drain"]

CHUNK = 65_536
DISCARD = 1 << 20


class Drain:
    """One pipe read to its end inside the event loop; memory stays within `limit` whatever comes.

    Past the limit the pipe is emptied by splice(2) into /dev/null, without copying a byte.
    """

    def __init__(
        self, loop: asyncio.AbstractEventLoop, fd: int, limit: int, heard: Callable[[], None] | None = None
    ) -> None:
        self.kept = bytearray()
        self.total = 0
        self.ended: asyncio.Future[None] = loop.create_future()
        self._loop = loop
        self._fd = fd
        self._limit = limit
        self._void = -1
        self._heard = heard
        os.set_blocking(fd, False)
        loop.add_reader(fd, self._read)

    def _read(self) -> None:
        room = self._limit - len(self.kept)
        try:
            if room > 0:
                data = os.read(self._fd, min(room, CHUNK))
                self.kept += data
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
        elif self._heard is not None:
            self._heard()

    def read_rest(self) -> None:
        """Take in what is there now."""
        before = -1
        while self._fd >= 0 and self.total != before:
            before = self.total
            self._read()

    def _discard(self) -> int:
        if self._void < 0:
            self._void = os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC)
        return os.splice(self._fd, self._void, DISCARD)

    def close(self) -> None:
        """Stop reading; what came until now stays."""
        if self._fd < 0:
            return
        self._loop.remove_reader(self._fd)
        for fd in (self._fd, self._void):
            if fd >= 0:
                os.close(fd)
        self._fd = self._void = -1
        if not self.ended.done():
            self.ended.set_result(None)
