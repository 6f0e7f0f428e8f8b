"""Puts changes on disk into effect while a project is open."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress

from toolcrib.errors import ManifestError
from toolcrib.manifest import (
    FILE_NAME,
    Diagnostic,
    Loaded,
    check_tool,
    folders,
    mark_of,
    read,
    read_folder,
)
from toolcrib.manifest.native.kept import states_of
from toolcrib.project.catalog.external import ExternalTools
from toolcrib.project.catalog.registry import CatalogChange, Reading, ToolRegistry
from toolcrib.project.catalog.watch import Watch
from toolcrib.project.integrity.programs import programs_of
from toolcrib.spec import Tool

_log = logging.getLogger(__name__)

_TRUST_S = 0.2
"""Seconds until the list follows what another process has trusted. A call needs no such wait."""
_SLICE_S = 0.01
"""Seconds of reading manifests, after which other work on the event loop has its turn."""


class HotReload:
    """Keeps the tools of a project as its files are.

    `know` is called with the tools that are new or changed before they can be used, and `reset` when other
    programs than before may be run. `trusted` returns a number that changes when any process changes what is
    trusted, and `renew` is called then. `report` is called with each change, on the event loop.
    """

    def __init__(
        self,
        registry: ToolRegistry,
        external: ExternalTools,
        know: Callable[[Sequence[Tool]], None],
        reset: Callable[[], None],
        trusted: Callable[[], object],
        renew: Callable[[], None],
        report: Callable[[CatalogChange], None] | None = None,
    ) -> None:
        self._registry, self._external = registry, external
        self._know, self._reset, self._report = know, reset, report or _log_change
        self._trusted, self._renew = trusted, renew
        self._watch = Watch(
            registry.place, external.sources, lambda text: self._report(CatalogChange(warnings=[text]))
        )
        self._known: list[Diagnostic | str] = []
        """The findings of the last look at everything: polling finds them again each time."""
        self._tasks: list[asyncio.Task[None]] = []

    async def start(self) -> None:
        """Watch, and take up what has changed since the project was opened."""
        await self._watch.start()
        await self._take({"tools", *self._external.sources})
        loop = asyncio.get_running_loop()
        self._tasks.append(loop.create_task(self._run(), name="toolcrib: changes on disk"))
        self._tasks.append(loop.create_task(self._run_trust(), name="toolcrib: changes of trust"))

    async def stop(self) -> None:
        """Stop watching."""
        for task in self._tasks:
            task.cancel()
            await asyncio.wait([task])
        self._watch.close()

    async def _run(self) -> None:
        while True:
            touched = await self._watch.touched()
            try:
                await self._take(touched)
            except Exception:
                # Whatever one change did, the next one is taken up.
                _log.exception("a change on disk could not be taken up")

    async def _run_trust(self) -> None:
        seen: object = None
        while True:
            try:
                if (now := self._trusted()) != seen:
                    seen, before = now, seen
                    if before is not None:
                        self._renew()
            except Exception:  # As in `_run`.
                _log.exception("what is trusted elsewhere could not be taken up")
            await asyncio.sleep(_TRUST_S)

    async def _take(self, touched: set[str]) -> None:
        """Read again what may have changed, and put it into effect."""
        every = "tools" in touched
        own = sorted(key.removeprefix("tools/") for key in touched if key.startswith("tools/"))
        names, found = await self._listed() if every else (own, [])
        places = dict.fromkeys(
            self._external.places if every else sorted(touched & self._external.sources.keys())
        )
        readings = []
        clock = asyncio.get_running_loop().time
        until = clock() + _SLICE_S
        for name in names:
            if (reading := self._read(name)) is not None:
                readings.append(reading)
            if self._external.may_be_in(name, reading):
                places[self._external.folder(name)] = None
            if clock() > until:
                await asyncio.sleep(0)
                until = clock() + _SLICE_S
        loaded = await asyncio.to_thread(self._external.read, list(places)) if places else {}
        change = self._apply(readings, loaded) if readings or loaded else CatalogChange()
        if every:
            known, self._known = self._known, [*found, *change.warnings]
            change.broken += [one for one in found if one not in known]
            change.warnings = [one for one in change.warnings if one not in known]
        if "config" in touched:
            change.warnings.append("config.yml has changed; the new settings apply from the next start")
        if change:
            self._report(change)

    def _apply(self, readings: Sequence[Reading], loaded: Mapping[str, Loaded]) -> CatalogChange:
        """Put into effect what was read."""
        new = [reading.tool for reading in readings if reading.tool is not None]
        before = [self._registry.current(reading.name) for reading in readings]
        change = CatalogChange()
        # Secrets first: a new tool may print one in its first call.
        self._know(new)
        # What is gone first, so that a tool which moved to another file finds its name free.
        self._external.remove_missing(loaded, change)
        for reading in readings:
            self._registry.apply(reading, change)
        new_external = self._external.apply(loaded, change)
        self._know(new_external)
        root = self._registry.place.root
        now = [self._registry.current(reading.name) for reading in readings]
        programs = programs_of([*filter(None, now), *new_external], root)
        if programs != programs_of(filter(None, before), root):
            self._reset()
        return change

    async def _listed(self) -> tuple[Iterable[str], list[Diagnostic]]:
        """Return every name to read, or the error if the folder of tools cannot be listed."""
        found: list[Diagnostic] = []
        registry, tools = self._registry, os.fspath(self._registry.place.tools)
        listed = folders(tools, found)
        if found:  # A folder that cannot be listed takes no tool away.
            return [], found
        states = await asyncio.to_thread(lambda: [*states_of(tools, listed, FILE_NAME)])
        untouched = registry.untouched(zip(listed, states, strict=True))
        return sorted({*listed, *registry.names} - {""} - untouched), []

    def _read(self, name: str) -> Reading | None:
        """Read a manifest; None if it is the one in effect."""
        registry = self._registry
        folder = f"{registry.place.tools}/{name}"
        good, mark = not registry.errors(name), registry.mark(name)
        # The mark costs one look at the file; its content is read only where that differs.
        if good and mark and mark == mark_of(f"{folder}/{FILE_NAME}"):
            return None
        old = registry.current(name)
        if good and old is not None and old.source is not None:
            with suppress(ManifestError, OSError):
                if read(old.source.path, registry.files) == old.source.raw:
                    return None
        found: list[Diagnostic] = []
        read_one = read_folder(folder, name, found, registry.files)
        if read_one is None:
            return Reading(name, None, tuple(found))
        tool, document = read_one
        if old is None and good:
            # As on opening: the form now, the rest when the tool is first listed or called. One that failed
            # then is checked here: polling would put it back each time.
            return Reading(name, tool, tuple(found))
        return Reading(name, tool, (*found, *check_tool(tool, document)), checked=True)


def _log_change(change: CatalogChange) -> None:
    for text in (*change.warnings, *(broken.render() for broken in change.broken)):
        _log.warning("%s", text)
