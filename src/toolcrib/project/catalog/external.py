"""Tools of other formats: those of `sources`, and of folders beside the manifests.

Each place, a source or such a folder, is read as a whole. A tool of it that can no longer be used stays as
it was. A tool that its file no longer contains is removed.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from toolcrib.manifest import Diagnostic, Loaded, check_tool, load_folder
from toolcrib.project.catalog.registry import CatalogChange, Reading, ToolRegistry, name_conflict
from toolcrib.project.config.sources import ToolSource, load_source
from toolcrib.spec import Tool


class ExternalTools:
    """Puts such tools into the registry. Places are named `tools/NAME` (a folder) and `source/N`."""

    def __init__(self, sources: Sequence[ToolSource], registry: ToolRegistry) -> None:
        self._place, self._registry = registry.place, registry
        self.sources = {f"source/{number}": source for number, source in enumerate(sources)}
        self._tools: dict[str, dict[str, Tool]] = {}
        self._errors: dict[str, list[Diagnostic]] = {}

    def load(self, names: Iterable[str]) -> list[Tool]:
        """Put in the tools of these folders and of all sources, and return them."""
        return self.apply(self.read((*map(self.folder, names), *self.sources)), CatalogChange())

    @staticmethod
    def folder(name: str) -> str:
        """Return the place of a folder of tools."""
        return f"tools/{name}"

    def may_be_in(self, name: str, reading: Reading | None) -> bool:
        """Return True if a folder may contain a file of another format, or did so."""
        place = self.folder(name)
        empty = reading is not None and reading.tool is None and not reading.found
        return empty or place in self._tools or place in self._errors

    @property
    def places(self) -> list[str]:
        """Every place that has, or had, tools; all sources."""
        return list(dict.fromkeys((*self._tools, *self._errors, *self.sources)))

    def sort(self, names: list[str]) -> None:
        """Sort names as a new start would list them: manifests, folders beside them, sources, all others."""
        ranks = {
            # Padded, because `source/10` comes after `source/9`.
            name: (1, place, number) if place.startswith("tools/") else (2, f"{place:>16}", number)
            for place, tools_of_place in self._tools.items()
            for number, name in enumerate(tools_of_place)
        }
        ranks |= {name: (0, name, 0) for name in self._registry.names}
        names.sort(key=lambda name: ranks.get(name, (3, "", 0)))

    def read(self, places: Iterable[str]) -> dict[str, Loaded]:
        """Return the content of these places now, and change nothing. May run in another thread."""
        found: dict[str, Loaded] = {}
        for place in places:
            source = self.sources.get(place)
            loaded = (
                load_folder(f"{self._place.tools}/{place.removeprefix('tools/')}", self._registry.files)
                if source is None
                else load_source(source, self._place.root, self._registry.files)
            )
            if loaded is not None or place in self._tools or place in self._errors:
                found[place] = loaded or Loaded((), ())
        return found

    def remove_missing(self, read: Mapping[str, Loaded], change: CatalogChange) -> None:
        """Take out what is no longer there, so that its name is free. Comes before `apply`."""
        for place, loaded in read.items():
            tools = self._tools.get(place, {})
            offered = {tool.name for tool in loaded.tools}
            for name, tool in list(tools.items()):
                if name in offered or _stays(tool, loaded):
                    continue
                del tools[name]
                if self._registry.remove_external(name):
                    change.removed.append(name)

    def apply(self, read: Mapping[str, Loaded], change: CatalogChange) -> list[Tool]:
        """Put in what was read, and return the tools that are new or changed."""
        return [tool for place, loaded in read.items() for tool in self._apply(place, loaded, change)]

    def _apply(self, place: str, loaded: Loaded, change: CatalogChange) -> list[Tool]:
        before = self._tools.get(place, {})
        now = {name: tool for name, tool in before.items() if all(name != one.name for one in loaded.tools)}
        found = list(loaded.diagnostics)
        fresh: list[Tool] = []
        for tool in loaded.tools:
            old = before.get(tool.name)
            in_use = old is not None and self._registry.is_external(tool.name)
            if not in_use and (other := self._registry.same_name(tool.name)) is not None:
                path = "" if tool.source is None else tool.source.path
                found.append(name_conflict(path, tool.name, other))
                continue
            now[tool.name] = tool
            if old == tool:
                continue
            # A new tool is checked when it is first used; a wrong one must not replace a working one.
            wrong = [one for one in check_tool(tool) if one.is_error] if in_use else []
            if wrong and old is not None:
                now[tool.name] = old
                found += wrong
                continue
            self._registry.add_external(tool)
            fresh.append(tool)
            if old is None:
                change.added.append(tool.name)
            # Where only the source differs, something else in the same file has changed: nothing to report.
            elif replace(old, source=None) != replace(tool, source=None):
                change.changed.append(tool.name)
        self._tools[place] = now
        if not now:
            del self._tools[place]
        self._report(place, found, loaded, change)
        return fresh

    def _report(self, place: str, found: list[Diagnostic], loaded: Loaded, change: CatalogChange) -> None:
        errors = [finding for finding in found if finding.is_error]
        before = self._errors.pop(place, [])
        if errors:
            self._errors[place] = errors
            change.broken += [finding for finding in errors if finding not in before]
        elif before:
            paths = {finding.path for finding in before}
            change.fixed += [
                name
                for name, tool in self._tools.get(place, {}).items()
                if name not in (*change.added, *change.changed)
                and tool.source is not None
                and tool.source.path in paths
            ]
        self._registry.set_external_findings(place, found, loaded.broken)


def _stays(tool: Tool, loaded: Loaded) -> bool:
    """Return True if a missing tool must stay as it was, because its file is there and has errors."""
    path = "" if tool.source is None else tool.source.path
    read_in_part = any(one.source is not None and one.source.path == path for one in loaded.tools)
    wrong = any(finding.is_error and finding.path == path for finding in loaded.diagnostics)
    return tool.name in loaded.broken or (wrong and not read_in_part and os.path.lexists(path))
