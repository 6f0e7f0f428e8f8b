"""The catalogue outside of a project: the records of the user, to be read."""

from __future__ import annotations

from pathlib import Path
from typing import NoReturn

from toolcrib.core.toolset import Toolset
from toolcrib.errors import ToolNotFound
from toolcrib.manifest import ANY_FILE
from toolcrib.project.catalog.bundles import Bundles, Parts
from toolcrib.project.catalog.entries import Entries
from toolcrib.project.catalog.registry import ToolRegistry
from toolcrib.project.catalog.search import Search
from toolcrib.project.catalog.stored import StoredTools
from toolcrib.project.catalog.stored_search import StoredSearch
from toolcrib.project.root import Place
from toolcrib.spec import Tool


def bundles_outside(data: Path) -> Bundles:
    """Return the records in a data folder, to be listed and searched. None of them can be called."""
    return Bundles(data, lambda: _parts(data))


def _parts(data: Path) -> Parts:
    def refuse(tool: Tool, *_: object) -> NoReturn:
        raise ToolNotFound(f"{tool.name} can only be called in a project", hint="toolcrib init makes one.")

    registry = ToolRegistry(Place(data, data), ANY_FILE, Toolset(), refuse)
    stored = StoredTools(data, registry, lambda _: None, lambda: None)
    index = StoredSearch(stored)
    entries = Entries(stored)
    return Parts(stored, entries, Search(stored, lambda: index if stored.store.exists else None, entries))
