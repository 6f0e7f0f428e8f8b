"""Which sources of a project were touched on disk: told by the kernel, else found by looking."""

from __future__ import annotations

import asyncio
import os
import stat
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from toolcrib.manifest import FOLDERS
from toolcrib.project.catalog.inotify import FOLDER, MADE, OVERFLOW, Inotify, News
from toolcrib.project.catalog.watch import LONGEST_S, QUIET_S
from toolcrib.project.config.sources import ToolSource, place_of

__all__ = ["SourceWatch"]

_POLL_S = 1.0


class SourceWatch:
    """Watches the folders of sources and the folders that they lie in, and nothing below."""

    def __init__(self, sources: Mapping[str, ToolSource], root: Path, warn: Callable[[str], None]) -> None:
        self._paths = {place: place_of(source, root) for place, source in sources.items()}
        self._sources = sources
        self._warn = warn
        self._inotify: Inotify | None = None
        self._watches: dict[int, list[tuple[str, str | None]]] = {}
        """By watch: whom it tells of, and of which name alone."""
        self._touched: set[str] = set()
        self._woken = asyncio.Event()
        self._seen: dict[str, object] = {}

    def start(self) -> None:
        """Begin. What happens from now on is told; what happened before is not."""
        try:
            self._inotify = Inotify()
            self._arm()
            asyncio.get_running_loop().add_reader(self._inotify.fileno(), self._hear)
        except OSError as error:
            self._give_up(error)

    async def touched(self) -> set[str]:
        """Wait for the next burst of changes; the places that it touched."""
        while True:
            await (self._woken.wait() if self._inotify is not None else self._look())
            deadline = time.monotonic() + LONGEST_S
            while self._inotify is not None and time.monotonic() < deadline:
                self._woken.clear()
                try:
                    async with asyncio.timeout(QUIET_S):  # `wait_for` can lose a cancellation
                        await self._woken.wait()
                except TimeoutError:
                    break
            self._woken.clear()
            found, self._touched = self._touched, set()
            if found:
                if self._inotify is not None:
                    try:
                        self._arm()
                    except OSError as error:
                        self._give_up(error)
                return found

    def close(self) -> None:
        """End."""
        if self._inotify is not None:
            asyncio.get_running_loop().remove_reader(self._inotify.fileno())
            self._inotify.close()
            self._inotify = None

    def _arm(self) -> None:
        """Watch what there is now, and let go of what was watched before."""
        assert self._inotify is not None
        watches: dict[int, list[tuple[str, str | None]]] = {}
        for place, path in self._paths.items():
            for folder, name in self._folders(place, path):
                try:
                    watches.setdefault(self._inotify.add(folder), []).append((place, name))
                except (FileNotFoundError, NotADirectoryError, PermissionError):
                    continue
        for watch in self._watches.keys() - watches.keys():
            self._inotify.remove(watch)
        self._watches = watches

    def _folders(self, place: str, path: Path) -> list[tuple[str, str | None]]:
        """Which folders are watched for a source, and for which name in them; None is any."""
        above = path.parent
        missing = path.name
        while not above.is_dir() and above != above.parent:
            above, missing = above.parent, above.name
        found: list[tuple[str, str | None]] = [(os.fspath(above), missing)]
        source = self._sources[place]
        real = Path(os.path.realpath(path))
        if source.is_file:
            return [*found, (os.fspath(real.parent), real.name)] if real != path else found
        found.append((os.fspath(path), None))
        if FOLDERS[source.dialect or "vega"].below is not None:
            found += [(folder, None) for folder in _inside(path)]
        return found

    def _hear(self) -> None:
        """News has come. Runs on the event loop, so it must not raise."""
        assert self._inotify is not None
        try:
            for news in self._inotify.read():
                if news.mask & OVERFLOW:
                    self._touched.update(self._paths)
                for place, name in self._watches.get(news.watch, ()):
                    hidden = name is None and news.name[:1] == "."
                    if name in (None, news.name) and not hidden and self._counts(news, place, name):
                        self._touched.add(place)
        except OSError as error:
            self._give_up(error)
        if self._touched:
            self._woken.set()

    def _counts(self, news: News, place: str, name: str | None) -> bool:
        """A file that was just made is told again once it is written; a link or a second name is not."""
        if news.mask & FOLDER or not news.mask & MADE:
            return True
        path = self._paths[place]
        try:
            found = os.lstat(path if name is not None else path / news.name)
        except OSError:
            return False
        return not stat.S_ISREG(found.st_mode) or found.st_nlink > 1

    def _give_up(self, error: OSError) -> None:
        self.close()
        self._warn(
            f"changes of sources cannot be watched ({error.strerror}); they are looked at again and again "
            "instead. Raise fs.inotify.max_user_watches and max_user_instances (sysctl) to end this."
        )
        # Before it is told that all are touched: what changes while they are read differs from this.
        self._seen = self._signatures()
        self._touched = set(self._paths)
        self._woken.set()

    async def _look(self) -> None:
        """Look once, unless something is known to be touched already."""
        if self._touched:
            return
        await asyncio.sleep(_POLL_S)
        seen = self._signatures()
        self._touched |= {place for place in seen if seen[place] != self._seen[place]}
        self._seen = seen

    def _signatures(self) -> dict[str, object]:
        return {place: self._signature(place, path) for place, path in self._paths.items()}

    def _signature(self, place: str, path: Path) -> object:
        if self._sources[place].is_file:
            return _state(os.fspath(path))
        try:
            with os.scandir(path) as entries:
                names = sorted(entry.path for entry in entries)
        except OSError:
            return None
        below = FOLDERS[self._sources[place].dialect or "vega"].below
        files = names if below is None else [*names, *(f"{name}/{below}" for name in names)]
        return [(name, _state(name)) for name in files]


def _inside(folder: Path) -> list[str]:
    try:
        with os.scandir(folder) as entries:
            return [entry.path for entry in entries if entry.is_dir() and entry.name[0] != "."]
    except OSError:
        return []


def _state(path: str) -> tuple[int, int, int] | None:
    try:
        found = os.stat(path)  # noqa: PTH116 - as the watch of manifests does
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino
