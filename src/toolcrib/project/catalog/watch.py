"""Watches what a project's tools come from: its settings, its folder of tools, and its sources.

Everything watched has a key: `config`, `tools` (any tool), `tools/NAME` and `source/N`.

Changes come from inotify(7) itself. The set of folders of the library `watchfiles` (1.3, not recursive) is
fixed, so a new tool needs a new watcher over all of them: 200 to 300 ms over 10,000 folders, where a change
must be seen within 200 ms. One more folder here takes 6 µs.
"""

from __future__ import annotations

import asyncio
import os
import stat
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path

from toolcrib.manifest import DEFAULT_DIALECT, DIALECTS, FILE_NAME, mark_of, uncollected
from toolcrib.project.config.sources import ToolSource, place_of
from toolcrib.project.root import Place
from toolcrib.state.inotify import FOLDER, MADE, OVERFLOW, SELF, Inotify, News

_QUIET_S = 0.01
"""Seconds without a change after which a burst of changes is over."""
_LONGEST_S = 0.1
"""Seconds after which a burst that does not end is read all the same."""
_POLL_S = 0.1
_POLL_SHARE = 10
"""A pause of polling, as a multiple of the time that reading all took."""
_SLICE = 200
"""Folders after which other work on the event loop gets its turn."""
_GIVEN_UP = (
    "changes cannot be watched ({}); all tools are checked again and again instead. To watch them, raise "
    "fs.inotify.max_user_watches and max_user_instances (sysctl)."
)


class Watch:
    """Watches folders that can contain a manifest, and nothing below them.

    If the kernel's limits do not allow that, `warn` is called with the reason, and all keys are reported
    again and again.
    """

    def __init__(self, place: Place, sources: Mapping[str, ToolSource], warn: Callable[[str], None]) -> None:
        self._place = place
        self._tools = os.fspath(place.tools)
        self._sources = {key: (source, place_of(source, place.root)) for key, source in sources.items()}
        self._warn = warn
        self._inotify: Inotify | None = None
        self._keys: dict[int, dict[str, str | None]] = {}
        """Watch to the keys it is for, each with the one file name that concerns it; None: any name."""
        self._watches: dict[str, set[int]] = {}
        self._touched: set[str] = set()
        self._woken = asyncio.Event()
        self._polled_at: float | None = None
        self._config = mark_of(self._path("config"))

    async def start(self) -> None:
        """Begin. Changes from now on are reported, earlier ones are not."""
        try:
            self._inotify = Inotify()
            asyncio.get_running_loop().add_reader(self._inotify.fileno(), self._receive)
            for key in ("config", *self._sources):
                self._arm(key)
            await self._arm_tools()
        except OSError as error:
            self._give_up(error)

    async def touched(self) -> set[str]:
        """Wait for the next burst of changes and return the keys of what may have changed."""
        while True:
            found = await (self._burst() if self._inotify is not None else self._poll())
            if found:
                return found

    def close(self) -> None:
        """Stop watching."""
        if self._inotify is not None:
            asyncio.get_running_loop().remove_reader(self._inotify.fileno())
            self._inotify.close()
            self._inotify = None

    # -- events of the kernel --------------------------------------------------------------------

    async def _burst(self) -> set[str]:
        await self._woken.wait()
        deadline = time.monotonic() + _LONGEST_S
        while time.monotonic() < deadline:
            self._woken.clear()
            try:
                async with asyncio.timeout(_QUIET_S):  # `wait_for` can lose a cancellation
                    await self._woken.wait()
            except TimeoutError:
                break
        self._woken.clear()
        found, self._touched = self._touched, set()
        # A folder may have been made, or replaced by another one of its name.
        if "tools" in found and self._inotify is not None:
            try:
                await self._arm_tools()
            except OSError as error:
                self._give_up(error)
        return found

    def _receive(self) -> None:
        """Take in new events. Runs on the event loop, so it must not raise."""
        assert self._inotify is not None
        try:
            for news in self._inotify.read():
                for key in list(self._concerned(news)):
                    self._touched.add(key)
                    if key != "tools":
                        self._arm(key)
        except OSError as error:
            self._give_up(error)
        if self._touched:
            self._woken.set()

    def _concerned(self, news: News) -> Iterator[str]:
        """Yield the keys that an event concerns."""
        if news.mask & OVERFLOW:
            # Nobody knows what was lost.
            yield from ("tools", *self._sources)
            return
        for key, only in list(self._keys.get(news.watch, {}).items()):
            if news.mask & SELF:
                yield key if key != "config" else "tools"
            elif only == news.name or (only is None and news.name[:1] != "."):
                if key == "tools" and only is None:
                    yield f"tools/{news.name}"
                elif self._is_complete(news, key, only):
                    yield key

    def _is_complete(self, news: News, key: str, only: str | None) -> bool:
        """Return False for a file that was just made: another event comes when its writer closes it.

        A link or a second name of a file is complete at once.
        """
        if news.mask & FOLDER or not news.mask & MADE:
            return True
        path = self._path(key)
        try:
            found = os.lstat(path if only is not None else f"{path}/{news.name}")
        except OSError:
            return False
        return not stat.S_ISREG(found.st_mode) or found.st_nlink > 1

    def _path(self, key: str) -> str:
        if key in self._sources:
            return os.fspath(self._sources[key][1])
        return os.fspath(self._place.config) if key == "config" else f"{self._place.home}/{key}"

    async def _arm_tools(self) -> None:
        """Watch the folder of tools and each tool in it, also those that were watched before."""
        self._arm("tools")
        names = {key.partition("/")[2] for key in self._watches if key.startswith("tools/")}
        names.update(_listed(self._tools))
        keys = [f"tools/{name}" for name in names]
        for start in range(0, len(keys), _SLICE):
            with uncollected():
                for key in keys[start : start + _SLICE]:
                    self._arm(key)
            await asyncio.sleep(0)

    def _arm(self, key: str) -> None:
        """Watch the folders of a key as they are now."""
        if self._inotify is None:  # given up meanwhile
            return
        wanted: set[int] = set()
        for folder, only in self._folders(key):
            try:
                watch = self._inotify.add(folder)
            except (FileNotFoundError, NotADirectoryError, PermissionError):
                continue
            wanted.add(watch)
            self._keys.setdefault(watch, {})[key] = only
        # The new watches are there before the old ones go, so no change falls between them.
        for watch in self._watches.pop(key, set()) - wanted:
            keys = self._keys.get(watch, {})
            keys.pop(key, None)
            if not keys:
                self._keys.pop(watch, None)
                self._inotify.remove(watch)
        if wanted:
            self._watches[key] = wanted

    def _folders(self, key: str) -> Iterator[tuple[str, str | None]]:
        """Yield the folders to watch for a key, and the one name in each that concerns it; None: any."""
        path = self._path(key)
        if key.startswith("tools/"):
            yield path, None
            manifest = f"{path}/{FILE_NAME}"
            if os.path.islink(manifest):
                yield os.path.dirname(os.path.realpath(manifest)), None
            return
        above = Path(path).parent
        missing = Path(path).name
        # What is missing is watched for in the nearest folder that is there.
        while not above.is_dir() and above != above.parent:
            above, missing = above.parent, above.name
        yield os.fspath(above), missing
        if key == "tools":
            yield path, None
        elif key in self._sources:
            yield from _inside(self._sources[key][0], path)

    def _give_up(self, error: OSError) -> None:
        self.close()
        self._warn(_GIVEN_UP.format(error.strerror))
        self._woken.set()

    # -- polling ---------------------------------------------------------------------------------

    async def _poll(self) -> set[str]:
        """Return every key, each time after a pause: what has changed is found where all is read again.

        Nobody reads the settings again, so their key is there only if the file has changed.
        """
        now = time.monotonic()
        if self._polled_at is not None:
            await asyncio.sleep(max(_POLL_S, (now - self._polled_at) * _POLL_SHARE))
        self._polled_at = time.monotonic()
        before, self._config = self._config, mark_of(self._path("config"))
        return {"tools", *self._sources, *(["config"] if self._config != before else [])}


def _listed(folder: str) -> list[str]:
    try:
        return sorted(name for name in os.listdir(folder) if name[0] != ".")
    except OSError:
        return []


def _inside(source: ToolSource, path: str) -> Iterable[tuple[str, str | None]]:
    """Yield the folders of a source, besides the one that it is in."""
    if source.is_file:
        real = os.path.realpath(path)
        if real != path:
            yield os.path.split(real)
        return
    yield path, None
    if DIALECTS[source.dialect or DEFAULT_DIALECT].own_file is not None:
        yield from ((f"{path}/{name}", None) for name in _listed(path))
