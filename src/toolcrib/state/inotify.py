"""Events of files and folders from the kernel, inotify(7)."""

from __future__ import annotations

import ctypes
import os
import struct
from functools import cache
from typing import NamedTuple

ATTRIBUTES = 0x4
"""The times, rights or owner of a file were set (IN_ATTRIB)."""
_CLOSE_WRITE, _MOVED_FROM, _MOVED_TO = 0x8, 0x40, 0x80
_DELETE, _DELETE_SELF, _MOVE_SELF, _ONLYDIR = 0x200, 0x400, 0x800, 0x0100_0000
MADE = 0x100
"""A name appeared (IN_CREATE); another event follows when its writer closes the file."""
OVERFLOW = 0x4000
"""The kernel lost events: anything may have changed."""
FOLDER = 0x4000_0000
"""The name is a folder's."""
SELF = _DELETE_SELF | _MOVE_SELF
"""The watched folder itself is gone."""
GONE = _DELETE | _MOVED_FROM
"""The name is gone from the folder."""
# Not IN_MODIFY: it comes with each write, when the file is not complete yet.
_ASKED = ATTRIBUTES | _CLOSE_WRITE | _MOVED_FROM | _MOVED_TO | MADE | _DELETE | SELF | _ONLYDIR
_HEAD = struct.Struct("iIII")
_BUFFER = 1 << 16


class News(NamedTuple):
    """One event of what is watched; `name` is that of a file in a watched folder."""

    watch: int
    mask: int
    name: str


class Inotify:
    """One inotify instance; `fileno` is readable when there are events. OSError if a limit is reached."""

    def __init__(self) -> None:
        self._fd = _checked(_libc().inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC), "inotify_init1")

    def fileno(self) -> int:
        """Return the descriptor, for an event loop."""
        return self._fd

    def add(self, path: str, asked: int = _ASKED) -> int:
        """Watch a folder, or with its own `asked` a file (through a link); return its number.

        The same folder has the same one again.
        """
        return _checked(_libc().inotify_add_watch(self._fd, os.fsencode(path), asked), path)

    def remove(self, watch: int) -> None:
        """Stop watching; nothing happens if it is gone."""
        _libc().inotify_rm_watch(self._fd, watch)

    def read(self) -> list[News]:
        """Return all new events without waiting."""
        found: list[News] = []
        while True:
            try:
                data = os.read(self._fd, _BUFFER)
            except BlockingIOError:
                return found
            at = 0
            while at < len(data):
                watch, mask, _, length = _HEAD.unpack_from(data, at)
                at += _HEAD.size
                found.append(News(watch, mask, os.fsdecode(data[at : at + length].rstrip(b"\0"))))
                at += length

    def close(self) -> None:
        """End every watch."""
        os.close(self._fd)


@cache
def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


def _checked(result: int, what: str) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), what)
    return result
