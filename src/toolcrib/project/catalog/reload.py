"""Takes up what changes on disk while a project is open: tools that are added, changed, removed or broken."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Awaitable, Callable, Iterable, Mapping

from toolcrib.errors import ManifestError
from toolcrib.manifest import FILE_NAME, Diagnostic, Loaded, check_tool, folders, mark_of, read, read_folder
from toolcrib.project.catalog.external import Guests
from toolcrib.project.catalog.registry import Change, Reading, Shelf
from toolcrib.project.catalog.watch import Touched, Watch
from toolcrib.project.catalog.watch_sources import SourceWatch
from toolcrib.spec import Tool

__all__ = ["Live"]

_log = logging.getLogger(__name__)

_SLICE_S = 0.01
"""Reading many manifests lets other work on the event loop have its turn after so long."""


class Live:
    """Keeps a shelf as its folder and the sources are. `take` puts readings, and what places hold, in force;
    `tell` is told, on the event loop.
    """

    def __init__(
        self,
        shelf: Shelf,
        guests: Guests,
        take: Callable[[list[Reading], Mapping[str, Loaded]], Change],
        tell: Callable[[Change], None] | None = None,
    ) -> None:
        self._shelf = shelf
        self._guests = guests
        self._put = take
        self._tell = tell
        self._watch = Watch(shelf.place, self._warn)
        self._sources = SourceWatch(guests.sources, shelf.place.root, self._warn) if guests.sources else None
        self._tasks: list[asyncio.Task[None]] = []
        self._turn = asyncio.Lock()

    def _warn(self, text: str) -> None:
        self._told(Change(warnings=[text]))

    async def start(self) -> None:
        """Watch, and take up what has changed since the project was opened."""
        await self._watch.start()
        if self._sources is not None:
            self._sources.start()
        await self._take(Touched(all=True))
        loop = asyncio.get_running_loop()
        self._tasks = [loop.create_task(self._run(self._manifests), name="toolcrib: manifests on disk")]
        if self._sources is not None:
            self._tasks.append(loop.create_task(self._run(self._places), name="toolcrib: sources on disk"))

    async def stop(self) -> None:
        """Watch no longer."""
        tasks, self._tasks = self._tasks, []
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
        self._watch.close()
        if self._sources is not None:
            self._sources.close()

    async def _run(self, next_one: Callable[[], Awaitable[tuple[Touched, Iterable[str]]]]) -> None:
        while True:
            touched, places = await next_one()
            try:
                async with self._turn:
                    await self._take(touched, places)
            except Exception:
                # Whatever one change did, the next is seen.
                _log.exception("a change on disk could not be taken up")

    async def _manifests(self) -> tuple[Touched, Iterable[str]]:
        return await self._watch.touched(), ()

    async def _places(self) -> tuple[Touched, Iterable[str]]:
        assert self._sources is not None
        return Touched(), sorted(await self._sources.touched())

    async def _take(self, touched: Touched, touched_places: Iterable[str] = ()) -> None:
        readings: list[Reading] = []
        places = dict.fromkeys(self._guests.places if touched.all else touched_places)
        names, found = self._names(touched)
        clock = asyncio.get_running_loop().time
        until = clock() + _SLICE_S
        for name in names:
            reading = _look(self._shelf, name)
            if reading is not None:
                readings.append(reading)
            if self._guests.may_be_in(name, reading):
                places[self._guests.folder(name)] = None
            if clock() > until:
                await asyncio.sleep(0)
                until = clock() + _SLICE_S
        held = await asyncio.to_thread(self._guests.read, list(places)) if places else {}
        change = self._put(readings, held) if readings or held else Change()
        change.broken += found
        if touched.config:
            change.warnings.append("config.yml has changed; it counts from the next start")
        if change:
            self._told(change)

    def _names(self, touched: Touched) -> tuple[Iterable[str], list[Diagnostic]]:
        if not touched.all:
            return sorted(touched.names), []
        found: list[Diagnostic] = []
        listed = folders(os.fspath(self._shelf.place.tools), found)
        # A folder that cannot be listed takes no tool away.
        return ([], found) if found else (sorted({*listed, *self._shelf.names} - {""}), [])

    def _told(self, change: Change) -> None:
        if self._tell is not None:
            self._tell(change)
            return
        for text in (*change.warnings, *(broken.render() for broken in change.broken)):
            _log.warning("%s", text)


def _look(shelf: Shelf, name: str) -> Reading | None:
    """What a manifest says now; None where that is in force already."""
    good, mark = not shelf.errors(name), shelf.marks.get(name)
    if good and mark and mark == mark_of(f"{shelf.place.tools}/{name}/{FILE_NAME}"):
        return None
    old = shelf.in_force(name)
    if good and old is not None and _same(old):
        return None
    found: list[Diagnostic] = []
    read_one = read_folder(f"{shelf.place.tools}/{name}", name, found)
    if read_one is None:
        return Reading(name, None, tuple(found))
    tool, document = read_one
    if old is None:
        # As on opening: the form now, the rest when the tool is first listed or called.
        return Reading(name, tool, tuple(found))
    return Reading(name, tool, (*found, *check_tool(tool, document)), checked=True)


def _same(tool: Tool) -> bool:
    assert tool.source is not None
    try:
        return read(tool.source.path) == tool.source.raw
    except (ManifestError, OSError):
        return False
