"""What the kernel tells of folders: which name in which of them was touched (inotify(7))."""

from __future__ import annotations

import ctypes
import os
import struct
from functools import cache
from typing import NamedTuple

__all__ = ["FOLDER", "MADE", "OVERFLOW", "SELF", "Inotify", "News"]

_ATTRIB, _CLOSE_WRITE, _MOVED_FROM, _MOVED_TO = 0x4, 0x8, 0x40, 0x80
_DELETE, _DELETE_SELF, _MOVE_SELF, _ONLYDIR = 0x200, 0x400, 0x800, 0x0100_0000
MADE = 0x100
"""A name appeared (IN_CREATE); what is written under it is told once more, when its writer closes it."""
OVERFLOW = 0x4000
"""More happened than the kernel kept: anything may have changed."""
FOLDER = 0x4000_0000
"""The name is a folder's."""
SELF = _DELETE_SELF | _MOVE_SELF
"""The watched folder itself went away."""
_ASKED = _ATTRIB | _CLOSE_WRITE | _MOVED_FROM | _MOVED_TO | MADE | _DELETE | SELF | _ONLYDIR
_HEAD = struct.Struct("iIII")
_BUFFER = 1 << 16


class News(NamedTuple):
    """One thing that happened in one watched folder."""

    watch: int
    mask: int
    name: str


class Inotify:
    """One instance; `fileno` is readable when there is news. Raises OSError where a limit is reached."""

    def __init__(self) -> None:
        self._fd = _checked(_libc().inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC), "inotify_init1")

    def fileno(self) -> int:
        """The descriptor, for an event loop."""
        return self._fd

    def add(self, folder: str) -> int:
        """Watch a folder (where a link leads); its number, the same one for the same folder."""
        return _checked(_libc().inotify_add_watch(self._fd, os.fsencode(folder), _ASKED), folder)

    def remove(self, watch: int) -> None:
        """Watch it no longer; nothing if the kernel has let go of it already."""
        _libc().inotify_rm_watch(self._fd, watch)

    def read(self) -> list[News]:
        """All that has happened since; never waits."""
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
