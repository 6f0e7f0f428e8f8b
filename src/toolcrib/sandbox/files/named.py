"""Find the files and folders of certain names below a folder, at the cost of one look at each folder."""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Collection
from typing import NamedTuple

from toolcrib.errors import PermissionDenied
from toolcrib.sandbox.files.paths import SETTLED_NS

MOST_FOLDERS = 50_000


class _Listing(NamedTuple):
    state: tuple[int, ...]
    named: tuple[str, ...]
    folders: tuple[str, ...]


_NOTHING = _Listing((), (), ())


class NameSearch:
    """Finds these names at any depth, but not in what it finds, nor in folders of the names `skipped`.

    A folder is listed again only if a name was added to it or removed.
    """

    def __init__(self, names: Collection[str], skipped: Collection[str]) -> None:
        self._names, self._skipped = frozenset(names), frozenset(skipped)
        self._listings: dict[str, _Listing] = {}

    def below(self, folder: str) -> tuple[str, ...]:
        """Return the paths below a folder, the nearest first. PermissionDenied for too many folders."""
        found: list[str] = []
        waiting, seen = deque([folder]), 0
        while waiting:
            here, seen = waiting.popleft(), seen + 1
            if seen > MOST_FOLDERS:
                raise PermissionDenied(
                    f"{folder} has more than {MOST_FOLDERS:,} folders, too many to protect what is in them",
                    hint="Grant the folders that are needed under permissions.fs.write in the manifest.",
                    details={"path": folder},
                )
            _, named, folders = self._listing(here)
            found += named
            waiting += folders
        return tuple(found)

    def _listing(self, folder: str) -> _Listing:
        known = self._listings.get(folder)
        try:
            info = os.stat(folder)
        except OSError:
            return _NOTHING
        # ctime, because a program can set mtime to what it likes.
        state = info.st_dev, info.st_ino, info.st_ctime_ns
        if known is not None and known.state == state:
            return known
        named, folders = [], []
        try:
            with os.scandir(folder) as entries:
                for entry in entries:
                    if entry.name in self._names:
                        named.append(entry.path)
                    elif entry.name not in self._skipped and entry.is_dir(follow_symlinks=False):
                        folders.append(entry.path)
        except OSError:  # A file, or a folder that this user cannot list.
            return _NOTHING
        listing = _Listing(state, tuple(sorted(named)), tuple(sorted(folders)))
        # What has just changed could change again within one tick of the kernel's clock.
        if time.time_ns() - info.st_ctime_ns > SETTLED_NS:
            if len(self._listings) > MOST_FOLDERS:
                self._listings.clear()
            self._listings[folder] = listing
        return listing
