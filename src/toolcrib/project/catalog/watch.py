"""Which tools of a project's folder were touched on disk: told by the kernel, else found by looking."""

from __future__ import annotations

import asyncio
import os
import stat
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from toolcrib.manifest import FILE_NAME, FILES, OTHER_NAME
from toolcrib.project.catalog.inotify import FOLDER, MADE, OVERFLOW, SELF, Inotify, News
from toolcrib.project.root import Place

__all__ = ["LONGEST_S", "QUIET_S", "Touched", "Watch"]

QUIET_S = 0.01
"""A burst of changes is over when nothing came for so long,"""
LONGEST_S = 0.1
"""or, if it does not end, after so long."""
_POLL_S = 0.1
_POLL_SHARE = 10
"""Looking at every manifest takes at most one part in so many of a processor."""
_SLICE = 200
"""So many folders are looked at before other work on the event loop gets its turn."""

_FILES = (FILE_NAME, OTHER_NAME, *FILES)
_Signature = tuple[int, int, int, int] | None


@dataclass(slots=True)
class Touched:
    """What may have changed."""

    names: set[str] = field(default_factory=set)
    """Folders of tools."""
    all: bool = False
    """Any of them."""
    config: bool = False

    def __bool__(self) -> bool:
        return bool(self.names) or self.all or self.config


class Watch:
    """Watches the home folder, the folder of tools and each tool's own folder, and nothing below them.

    Where the kernel's limits do not let it, every manifest is looked at again and again instead, and `warn`
    is told why.
    """

    def __init__(self, place: Place, warn: Callable[[str], None]) -> None:
        self._home, self._tools = os.fspath(place.home), os.fspath(place.tools)
        self._config = place.config.name
        self._warn = warn
        self._inotify: Inotify | None = None
        self._home_watch = self._tools_watch = -1
        self._names: dict[int, set[str]] = {}
        """Tools by the number of a watch that tells of them."""
        self._watches: dict[str, set[int]] = {}
        self._touched = Touched()
        self._woken = asyncio.Event()
        self._seen: dict[str, _Signature] = {}

    async def start(self) -> None:
        """Begin. What happens from now on is told; what happened before is not."""
        try:
            self._inotify = Inotify()
            self._home_watch = self._inotify.add(self._home)
            asyncio.get_running_loop().add_reader(self._inotify.fileno(), self._hear)
            await self._watch_tools()
        except OSError as error:
            self._give_up(error)

    async def touched(self) -> Touched:
        """Wait for the next burst of changes; all of it."""
        while True:
            found = await (self._told() if self._inotify is not None else self._looked())
            if found:
                return found

    def close(self) -> None:
        """End."""
        if self._inotify is not None:
            asyncio.get_running_loop().remove_reader(self._inotify.fileno())
            self._inotify.close()
            self._inotify = None

    # -- told by the kernel ----------------------------------------------------------------------

    async def _told(self) -> Touched:
        await self._woken.wait()
        deadline = time.monotonic() + LONGEST_S
        while time.monotonic() < deadline:
            self._woken.clear()
            try:
                async with asyncio.timeout(QUIET_S):  # `wait_for` can lose a cancellation
                    await self._woken.wait()
            except TimeoutError:
                break
        self._woken.clear()
        found, self._touched = self._touched, Touched()
        if found.all and self._inotify is not None:
            try:
                await self._watch_tools()
            except OSError as error:
                self._give_up(error)
        return found

    def _hear(self) -> None:
        """News has come. Runs on the event loop, so it must not raise."""
        assert self._inotify is not None
        touched = self._touched
        try:
            for news in self._inotify.read():
                if news.mask & OVERFLOW:
                    touched.all = True
                elif news.watch == self._home_watch:
                    self._hear_home(news, touched)
                elif news.watch == self._tools_watch:
                    self._hear_tools(news, touched)
                elif (names := set(self._names.get(news.watch, ()))) and self._counts(news, names):
                    touched.names |= names
                    for name in names:
                        self._watch_tool(name)
        except OSError as error:
            self._give_up(error)
        if touched:
            self._woken.set()

    def _hear_home(self, news: News, touched: Touched) -> None:
        if news.mask & SELF or news.name == Path(self._tools).name:
            touched.all = True
        elif news.name == self._config and not news.mask & MADE:
            touched.config = True

    def _hear_tools(self, news: News, touched: Touched) -> None:
        if news.mask & SELF:
            touched.all = True
        elif news.name[:1] not in ("", "."):
            touched.names.add(news.name)
            self._watch_tool(news.name)

    def _counts(self, news: News, names: set[str]) -> bool:
        """A file that was just made is told again once it is written; a link or a second name is not."""
        if news.mask & FOLDER or not news.mask & MADE:
            return True
        for name in names:
            try:
                found = os.lstat(f"{self._tools}/{name}/{news.name}")
            except OSError:
                continue
            if not stat.S_ISREG(found.st_mode) or found.st_nlink > 1:
                return True
        return False

    async def _watch_tools(self) -> None:
        """Watch the folder of tools and each tool in it, whatever was watched before."""
        assert self._inotify is not None
        names = set(self._watches)
        try:
            before, self._tools_watch = self._tools_watch, self._inotify.add(self._tools)
            if before not in (-1, self._tools_watch):
                self._inotify.remove(before)
            names.update(name for name in os.listdir(self._tools) if name[0] != ".")  # noqa: PTH208
        except (FileNotFoundError, NotADirectoryError, PermissionError):
            pass
        for number, name in enumerate(names, 1):
            self._watch_tool(name)
            if number % _SLICE == 0:
                await asyncio.sleep(0)

    def _watch_tool(self, name: str) -> None:
        """Watch a tool's folder as it is now, and where its manifest really lies if that is elsewhere."""
        if self._inotify is None:  # given up meanwhile
            return
        folder = f"{self._tools}/{name}"
        wanted: set[int] = set()
        for path in (folder, *_elsewhere(folder)):
            try:
                wanted.add(self._inotify.add(path))
            except (FileNotFoundError, NotADirectoryError, PermissionError):
                continue
        for watch in self._watches.pop(name, set()) - wanted:
            names = self._names.get(watch, set())
            names.discard(name)
            if not names:
                self._names.pop(watch, None)
                self._inotify.remove(watch)
        if wanted:
            self._watches[name] = wanted
            for watch in wanted:
                self._names.setdefault(watch, set()).add(name)

    def _give_up(self, error: OSError) -> None:
        self.close()
        self._warn(
            f"changes cannot be watched ({error.strerror}); every manifest is looked at again and again "
            "instead. Raise fs.inotify.max_user_watches and max_user_instances (sysctl) to end this."
        )
        self._seen = {}
        self._touched = Touched(all=True)
        self._woken.set()

    # -- found by looking ------------------------------------------------------------------------

    async def _looked(self) -> Touched:
        started = time.process_time()
        seen: dict[str, _Signature] = {}
        try:
            names = [name for name in os.listdir(self._tools) if name[0] != "."]  # noqa: PTH208 - names only
        except OSError:
            names = []
        for number, name in enumerate(names, 1):
            folder = f"{self._tools}/{name}"
            seen[name] = next(filter(None, (_signature(f"{folder}/{file}") for file in _FILES)), None)
            if number % _SLICE == 0:
                await asyncio.sleep(0)
        config = _signature(f"{self._home}/{self._config}")
        before, first = self._seen, not self._seen
        changed = {name for name in seen.keys() | before.keys() if seen.get(name) != before.get(name)}
        # No tool has an empty name: there the settings are kept.
        self._seen = {**seen, "": config}
        touched = Touched(changed - {""}, first, not first and before.get("") != config)
        if not touched:
            spent = time.process_time() - started
            await asyncio.sleep(max(_POLL_S, spent * _POLL_SHARE))
        return touched


def _elsewhere(folder: str) -> list[str]:
    """The folder in which a manifest that is a link really lies."""
    path = f"{folder}/{FILE_NAME}"
    try:
        if not stat.S_ISLNK(os.lstat(path).st_mode):
            return []
    except OSError:
        return []
    return [os.fspath(Path(path).resolve().parent)]


def _signature(path: str) -> _Signature:
    try:
        found = os.stat(path)  # noqa: PTH116 - a third of the cost, for every tool
    except OSError:
        return None
    return found.st_mtime_ns, found.st_ctime_ns, found.st_size, found.st_ino
