"""A pipe of a confined process, read in the event loop."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable

CHUNK = 65_536
_DISCARD = 1 << 20


class PipeReader:
    """One pipe read to its end inside the event loop; at most `limit` bytes are kept.

    Past the limit `on_long` gets all, those first, until it returns False. Then, or without it, the pipe is
    emptied by splice(2) into /dev/null, without copying a byte.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        fd: int,
        limit: int,
        on_data: Callable[[], None] | None = None,
    ) -> None:
        self.on_output: Callable[[bytes], None] | None = None
        self.on_long: Callable[[bytes], bool] | None = None
        self.kept = bytearray()
        self.total = 0
        """Bytes read, kept or not."""
        self.ended: asyncio.Future[None] = loop.create_future()
        self._loop = loop
        self._fd = fd
        self._limit = limit
        self._null = -1
        self._on_data = on_data
        os.set_blocking(fd, False)
        loop.add_reader(fd, self._read)

    def _read(self) -> None:
        left = self._limit - len(self.kept)
        try:
            if left > 0:
                data = os.read(self._fd, min(left, CHUNK))
                self.kept += data
                if self.on_output is not None and data:
                    self.on_output(data)
                count = len(data)
            elif self.on_long is not None:
                count = self._pass_on(self.on_long)
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

    def _pass_on(self, on_long: Callable[[bytes], bool]) -> int:
        data = os.read(self._fd, CHUNK)
        if data and not on_long(bytes(self.kept) + data if self.total == self._limit else data):
            self.on_long = None
        return len(data)

    def _discard(self) -> int:
        if self._null < 0:
            self._null = os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC)
        # Pages are moved, not copied: a command that floods its output costs the server next to nothing.
        return os.splice(self._fd, self._null, _DISCARD)

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
