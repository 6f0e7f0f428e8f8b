"""What paths lead to, each place looked at once, so that what follows from it can be kept.

Working out what a tool may touch takes a hundred looks at the file system, and mostly comes to what the call
before came to. So each look is noted with its answer: as long as every one would be answered the same, what
was worked out stands, and to find that out takes a tenth of the time.
"""

from __future__ import annotations

import os
import stat
import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Generic, NamedTuple, TypeVar

from toolcrib.errors import PermissionDenied

__all__ = ["Kept", "Paths", "beginning", "real_path"]

T = TypeVar("T")
MOST_LINKS = 40
"""Followed on one path, as by the kernel (path_resolution(7))."""
MOST_TRIES = 100
REMEMBERED = 256


class Look(NamedTuple):
    """What was at a path."""

    kind: int
    """As of `stat.S_IFMT`; 0 for nothing, or nothing that can be looked at."""
    text: str
    """What a symbolic link says."""
    identity: tuple[int, int] | None
    """Device and inode."""


NOTHING = Look(0, "", None)


def look(path: str) -> Look:
    """Look at a path itself, not at what it leads to, also while somebody changes it."""
    for _ in range(MOST_TRIES):
        try:
            info = os.lstat(path)
        except OSError:
            return NOTHING
        identity = info.st_dev, info.st_ino
        if not stat.S_ISLNK(info.st_mode):
            return Look(stat.S_IFMT(info.st_mode), "", identity)
        try:
            return Look(stat.S_IFLNK, os.readlink(path), identity)
        except OSError:  # What was a link when it was looked at is none when it is read.
            continue
    raise PermissionDenied(f"a path is being changed: {path}", details={"path": path})


def beginning(path: str, most: int) -> bytes:
    """The first bytes of a file; nothing of what is none, such as a pipe, which might never answer."""
    try:
        with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC), "rb") as file:
            return file.read(most) if stat.S_ISREG(os.fstat(file.fileno()).st_mode) else b""
    except OSError:
        return b""


class Paths:
    """Looks at absolute paths, and notes each."""

    def __init__(self) -> None:
        self._looks: dict[str, Look] = {}
        self._real: dict[str, str] = {}
        self._texts: dict[tuple[str, int], bytes] = {}

    def look(self, path: str) -> Look:
        """What was at a path when it was first asked for; not what it leads to."""
        found = self._looks.get(path)
        if found is None:
            found = self._looks[path] = look(path)
        return found

    def exists(self, path: str) -> bool:
        """Whether there is anything, be it a link that leads nowhere (os.path.lexists)."""
        return self.look(path).kind != 0

    def is_link(self, path: str) -> bool:
        """Whether it is a symbolic link."""
        return self.look(path).kind == stat.S_IFLNK

    def leads_to(self, path: str) -> int:
        """The kind of what a path leads to, as of `stat.S_IFMT`; 0 for nothing."""
        found = self.look(self.real(path)).kind
        return 0 if found == stat.S_IFLNK else found

    def is_folder(self, path: str) -> bool:
        """Whether it leads to a folder."""
        return self.leads_to(path) == stat.S_IFDIR

    def real(self, path: str) -> str:
        """The path without symbolic links, `.` and `..` (os.path.realpath); what is not there stays."""
        found = self._real.get(path)
        if found is None:
            found = self._real[path] = self._follow(path)
        return found

    def links(self, path: str) -> dict[str, str]:
        """Every symbolic link on the way to a path, with what it says."""
        found: dict[str, str] = {}
        self._follow(path, found)
        return found

    def held(self, path: str) -> tuple[str, ...]:
        """What to protect so that a path leads to what it does: as it is written, and where it really is."""
        # Behind a link `..` leads elsewhere than it reads, so each link is named by itself.
        written = self.links(path) if ".." in path.split("/") else (os.path.normpath(path),)
        return (*written, self.real(path))

    def _follow(self, path: str, links: dict[str, str] | None = None) -> str:
        here, left = "", MOST_LINKS
        waiting = path.split("/")[::-1]
        while waiting:
            part = waiting.pop()
            if part in ("", "."):
                continue
            if part == "..":
                here = here.rpartition("/")[0]
                continue
            kind, text, _ = self.look(f"{here}/{part}")
            if kind != stat.S_IFLNK:
                here = f"{here}/{part}"
                continue
            if left == 0:  # Most likely it leads to itself: to nothing, for the kernel.
                return os.path.normpath(path)
            left -= 1
            if links is not None:
                links[f"{here}/{part}"] = text
            waiting += text.split("/")[::-1]
            here = "" if text.startswith("/") else here
        return here or "/"

    def text(self, path: str, most: int) -> bytes:
        """What a small file begins with; nothing where it cannot be read."""
        key = path, most
        if key not in self._texts:
            self._texts[key] = beginning(path, most)
        return self._texts[key]

    def unchanged(self) -> bool:
        """Look at all of it again: whether it is what it was. Another file in the place of one will do."""
        for path, old in self._looks.items():
            new = look(path)
            if new != old:
                if new[:2] != old[:2]:
                    return False
                self._looks[path] = new
        return all(beginning(*key) == text for key, text in self._texts.items())


def real_path(path: str) -> str:
    """The path without symbolic links, also while somebody changes them."""
    return Paths().real(path)


class Kept(Generic[T]):
    """Things that were worked out from looks at paths, each kept while every look would be the same."""

    def __init__(self, most: int = REMEMBERED) -> None:
        self._most = most
        self._known: OrderedDict[Hashable, tuple[T, Paths]] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, key: Hashable, work: Callable[[Paths], T]) -> T:
        """What `work` comes to, which follows from the key and from what it asks of the paths it is given."""
        with self._lock:
            known = self._known.get(key)
        if known is not None and known[1].unchanged():
            return known[0]
        paths = Paths()
        value = work(paths)
        with self._lock:
            self._known[key] = value, paths
            self._known.move_to_end(key)
            while len(self._known) > self._most:
                self._known.popitem(last=False)
        return value
