"""Paths resolved with each place looked at only once, so that results derived from them can be cached.

To work out what a tool may touch takes a hundred looks at the file system, and mostly gives the result of the
call before. So each look is recorded with its answer. As long as all answers would be the same the result
stays valid, and to check that takes a tenth of the time.
"""

from __future__ import annotations

import os
import stat
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable
from typing import Generic, NamedTuple, Protocol, TypeVar

from toolcrib.errors import PermissionDenied

T = TypeVar("T")
MOST_LINKS = 40
"""Followed on one path, as by the kernel (path_resolution(7))."""
MOST_TRIES = 100
REMEMBERED = 256
_LINE_BYTES = 256
"""BINPRM_BUF_SIZE of execve(2)."""
SETTLED_NS = 100_000_000
"""A file or folder that changed less than this before it was read may change again without a new time."""


class PathState(NamedTuple):
    """The file, folder or link at a path."""

    kind: int
    """The type as `stat.S_IFMT` returns it; 0 if there is nothing, or it cannot be looked at."""
    text: str
    """The target of a symbolic link."""
    identity: tuple[int, int] | None
    """Device and inode."""


NOTHING = PathState(0, "", None)


def look(path: str) -> PathState:
    """Look at a path itself, not at its target, also while somebody changes it."""
    for _ in range(MOST_TRIES):
        try:
            info = os.lstat(path)
        except OSError:
            return NOTHING
        identity = info.st_dev, info.st_ino
        if not stat.S_ISLNK(info.st_mode):
            return PathState(stat.S_IFMT(info.st_mode), "", identity)
        try:
            return PathState(stat.S_IFLNK, os.readlink(path), identity)
        except OSError:  # It was a link a moment ago.
            continue
    raise PermissionDenied(f"a path is being changed: {path}", details={"path": path})


def beginning(path: str, most: int) -> bytes:
    """Return the first bytes of a regular file; nothing of anything else, such as a pipe, which might
    block."""
    try:
        with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC), "rb") as file:
            return file.read(most) if stat.S_ISREG(os.fstat(file.fileno()).st_mode) else b""
    except OSError:
        return b""


def first_line(path: str) -> bytes:
    """Return the first line of a regular file, as far as the kernel looks for an interpreter (execve(2))."""
    return beginning(path, _LINE_BYTES).partition(b"\n")[0]


def folder_state(path: str) -> tuple[int, ...] | None:
    """Return what changes when a name is added to a folder or removed; () for no folder.

    None for a folder that has just changed: it could change again within one tick of the kernel's clock.
    """
    try:
        found = os.stat(path)
    except OSError:
        return ()
    # ctime, because a program can set mtime to what it likes.
    if abs(time.time_ns() - found.st_ctime_ns) < SETTLED_NS:
        return None
    return found.st_dev, found.st_ino, found.st_mtime_ns, found.st_ctime_ns


class Search(Protocol):
    """A search for files below a folder."""

    def below(self, folder: str) -> tuple[str, ...]:
        """Return the paths that are there now."""


class Paths:
    """Looks at absolute paths, and records each look."""

    def __init__(self) -> None:
        self._looks: dict[str, PathState] = {}
        self._real: dict[str, str] = {}
        self._texts: dict[tuple[str, int], bytes] = {}
        self._names: dict[str, tuple[tuple[int, ...] | None, list[str]]] = {}
        self._found: dict[tuple[Search, str], tuple[str, ...]] = {}

    def look(self, path: str) -> PathState:
        """Return what was at a path itself at the first look."""
        found = self._looks.get(path)
        if found is None:
            found = self._looks[path] = look(path)
        return found

    def identities(self, paths: Iterable[str | None]) -> list[tuple[int, int] | None]:
        """Return device and inode at each path, as last looked at; None for nothing, and for no path."""
        return [None if path is None else self.look(path).identity for path in paths]

    def exists(self, path: str) -> bool:
        """Return True if there is anything, even a link that leads nowhere (os.path.lexists)."""
        return self.look(path).kind != 0

    def is_link(self, path: str) -> bool:
        """Return True for a symbolic link."""
        return self.look(path).kind == stat.S_IFLNK

    def leads_to(self, path: str) -> int:
        """Return the kind of the target of a path, as of `stat.S_IFMT`; 0 for nothing."""
        found = self.look(self.real(path)).kind
        return 0 if found == stat.S_IFLNK else found

    def is_folder(self, path: str) -> bool:
        """Return True if a path leads to a folder."""
        return self.leads_to(path) == stat.S_IFDIR

    def real(self, path: str) -> str:
        """Return the path without symbolic links, `.` and `..` (os.path.realpath); missing parts stay."""
        found = self._real.get(path)
        if found is None:
            found = self._real[path] = self._follow(path)
        return found

    def links(self, path: str) -> dict[str, str]:
        """Return every symbolic link on the way to a path, with its target."""
        found: dict[str, str] = {}
        self._follow(path, found)
        return found

    def to_protect(self, path: str) -> tuple[str, ...]:
        """Return the paths to protect so that this one keeps its target: as it is written, and its real
        path."""
        # Behind a link `..` does not lead where it seems to, so each link is named by itself.
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
            if left == 0:  # Most likely a loop, which for the kernel leads to nothing.
                return os.path.normpath(path)
            left -= 1
            if links is not None:
                links[f"{here}/{part}"] = text
            waiting += text.split("/")[::-1]
            here = "" if text.startswith("/") else here
        return here or "/"

    def text(self, path: str, most: int) -> bytes:
        """Return the beginning of a file; nothing if it cannot be read."""
        key = path, most
        if key not in self._texts:
            self._texts[key] = beginning(path, most)
        return self._texts[key]

    def names(self, folder: str) -> list[str]:
        """Return the sorted names in a folder; nothing if it cannot be listed."""
        known = self._names.get(folder)
        if known is None:
            state = folder_state(folder)
            try:
                names = sorted(os.listdir(folder))
            except OSError:
                names = []
            known = self._names[folder] = state, names
        return known[1]

    def search(self, search: Search, folder: str) -> tuple[str, ...]:
        """Return what a search finds below a folder."""
        if (search, folder) not in self._found:
            self._found[search, folder] = search.below(folder)
        return self._found[search, folder]

    def unchanged(self) -> bool:
        """Look again, and return True if every answer is the same. A file that replaced another is the
        same."""
        for path, old in self._looks.items():
            try:
                info = os.lstat(path)
            except OSError:
                if old.kind:
                    return False
                continue
            # Nearly always, and quicker than another look. An inode can be that of another link by now.
            kind, _, identity = old
            same = identity == (info.st_dev, info.st_ino) and kind == stat.S_IFMT(info.st_mode)
            if same and kind != stat.S_IFLNK:
                continue
            new = look(path)
            if new != old:
                if new[:2] != old[:2]:
                    return False
                self._looks[path] = new
        if any(state is None or folder_state(path) != state for path, (state, _) in self._names.items()):
            return False
        if any(search.below(folder) != found for (search, folder), found in self._found.items()):
            return False
        return all(beginning(*key) == text for key, text in self._texts.items())


def within(path: str, *folders: str) -> bool:
    """Return True if a real path is one of the folders or lies below one."""
    return any(path == folder or path.startswith(folder.rstrip("/") + "/") for folder in folders)


def is_within(folders: Iterable[str]) -> Callable[[str], bool]:
    """Return a function that does what `within` does, for the same folders again and again."""
    exact = frozenset(folders)
    below = tuple(folder.rstrip("/") + "/" for folder in exact)
    return lambda path: path in exact or path.startswith(below)


def real_path(path: str) -> str:
    """Return the path without symbolic links, also while somebody changes them."""
    return Paths().real(path)


class PathCache(Generic[T]):
    """Results derived from looks at paths, each valid while every look would give the same answer."""

    def __init__(self, most: int = REMEMBERED) -> None:
        self._most = most
        self._known: OrderedDict[Hashable, tuple[T, Paths]] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, key: Hashable, work: Callable[[Paths], T]) -> T:
        """Return the result of `work`, which may depend only on the key and on the paths it is given."""
        kept = self.kept(key)
        if kept is not None:
            return kept
        paths = Paths()
        value = work(paths)
        with self._lock:
            self._known[key] = value, paths
            self._known.move_to_end(key)
            while len(self._known) > self._most:
                self._known.popitem(last=False)
        return value

    def kept(self, key: Hashable) -> T | None:
        """Return the result that is known and still valid; None if there is none."""
        with self._lock:
            known = self._known.get(key)
        return known[0] if known is not None and known[1].unchanged() else None
