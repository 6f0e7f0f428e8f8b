"""Tools of a project that have no manifest of its own format: those of `sources`, and of folders beside them.

Each place, a source or such a folder, is read as a whole. A tool of it that cannot be used any more stays as
it was; one that its file no longer holds goes.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

from toolcrib.core.bound import BoundTool
from toolcrib.manifest import Diagnostic, Loaded, check_tool, load_folder, make
from toolcrib.project.catalog.registry import Change, Reading, Shelf
from toolcrib.project.config.sources import ToolSource, load_source
from toolcrib.project.root import Place
from toolcrib.spec import Tool

__all__ = ["Guests"]


class Guests:
    """Puts such tools on a shelf. Places are named `tools/NAME` (a folder) and `source/N`."""

    def __init__(
        self, place: Place, sources: Sequence[ToolSource], shelf: Shelf, bind: Callable[[Tool], BoundTool]
    ) -> None:
        self._place = place
        self._shelf = shelf
        self._bind = bind
        self.sources = {f"source/{number}": source for number, source in enumerate(sources)}
        self._held: dict[str, dict[str, Tool]] = {}
        self._errors: dict[str, list[Diagnostic]] = {}

    def fill(self, names: Iterable[str]) -> list[Tool]:
        """Take in these folders of tools, and all sources; gives the tools."""
        return self.take(self.read((*map(self.folder, names), *self.sources)), Change())

    @staticmethod
    def folder(name: str) -> str:
        """The place that a folder of tools is."""
        return f"tools/{name}"

    def may_be_in(self, name: str, reading: Reading | None) -> bool:
        """Whether a folder may hold another file than a manifest, or held one."""
        place = self.folder(name)
        empty = reading is not None and reading.tool is None and not reading.found
        return empty or place in self._held or place in self._errors

    @property
    def places(self) -> list[str]:
        """Every place that there is, or was, something in; all sources."""
        return list(dict.fromkeys((*self._held, *self._errors, *self.sources)))

    def ranks(self) -> dict[str, tuple[int, str, int]]:
        """By name where each tool stands in the list of a project that is opened anew."""
        return {
            name: (1, place, number) if place.startswith("tools/") else (2, f"{place:>16}", number)
            for place, tools in self._held.items()
            for number, name in enumerate(tools)
        }

    def read(self, places: Iterable[str]) -> dict[str, Loaded]:
        """What these places hold now. Puts nothing in force, and may run in another thread."""
        found: dict[str, Loaded] = {}
        for place in places:
            source = self.sources.get(place)
            loaded = (
                load_folder(f"{self._place.tools}/{place.removeprefix('tools/')}")
                if source is None
                else load_source(source, self._place.root)
            )
            if loaded is not None or place in self._held or place in self._errors:
                found[place] = loaded or Loaded((), ())
        return found

    def leave(self, read: Mapping[str, Loaded], change: Change) -> None:
        """Take out what is no longer there, so that its name is free. Comes before `take`."""
        for place, loaded in read.items():
            self._leave(place, loaded, change)

    def take(self, read: Mapping[str, Loaded], change: Change) -> list[Tool]:
        """Put in force what was read; gives the tools that came or changed."""
        return [tool for place, loaded in read.items() for tool in self._take(place, loaded, change)]

    def _leave(self, place: str, loaded: Loaded, change: Change) -> None:
        held = self._held.get(place, {})
        offered = {tool.name for tool in loaded.tools}
        for name, tool in list(held.items()):
            if name in offered or _stays(tool, loaded):
                continue
            del held[name]
            if self._shelf.unlay(name):
                change.removed.append(name)

    def _take(self, place: str, loaded: Loaded, change: Change) -> list[Tool]:
        held = self._held.get(place, {})
        now = {name: tool for name, tool in held.items() if all(name != one.name for one in loaded.tools)}
        found = list(loaded.diagnostics)
        fresh: list[Tool] = []
        for tool in loaded.tools:
            old = held.get(tool.name)
            in_force = old is not None and self._shelf.is_guest(tool.name)
            if not in_force and self._shelf.is_taken(tool.name):
                found.append(_taken(tool))
                continue
            now[tool.name] = tool
            if old == tool:
                continue
            wrong = [one for one in check_tool(tool) if one.is_error] if in_force else []
            if wrong and old is not None:
                now[tool.name] = old
                found += wrong
                continue
            self._shelf.lay(self._bind(tool))
            fresh.append(tool)
            if old is None:
                change.added.append(tool.name)
            elif replace(old, source=None) != replace(tool, source=None):
                change.changed.append(tool.name)
        self._held[place] = now
        if not now:
            del self._held[place]
        self._tell(place, found, loaded, change)
        return fresh

    def _tell(self, place: str, found: list[Diagnostic], loaded: Loaded, change: Change) -> None:
        errors = [finding for finding in found if finding.is_error]
        before = self._errors.pop(place, [])
        if errors:
            self._errors[place] = errors
            change.broken += [finding for finding in errors if finding not in before]
        elif before:
            told = {*change.added, *change.changed}
            change.mended += [name for name in self._held.get(place, ()) if name not in told]
        self._shelf.note(place, found, loaded.broken)


def _stays(tool: Tool, loaded: Loaded) -> bool:
    """Whether a tool that is not among those read goes on as it was: its file is there, and has errors."""
    path = "" if tool.source is None else tool.source.path
    if tool.name in loaded.broken:
        return True
    read_in_part = any(one.source is not None and one.source.path == path for one in loaded.tools)
    wrong = any(finding.is_error and finding.path == path for finding in loaded.diagnostics)
    return wrong and not read_in_part and os.path.lexists(path)


def _taken(tool: Tool) -> Diagnostic:
    path = "" if tool.source is None else tool.source.path
    told = f"there is a tool named `{tool.name}` already"
    return make(path, (1, 1), "name", told, hint="give one of the two another name")
