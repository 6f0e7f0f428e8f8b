"""A folder of tools in another dialect than the native one: one file a tool."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path

from toolcrib.errors import ManifestError
from toolcrib.manifest.diagnostics import Diagnostic, diagnostics_of, make
from toolcrib.manifest.native import Loaded
from toolcrib.manifest.source import read
from toolcrib.manifest.vega import read_vega
from toolcrib.spec import Permissions, Tool

__all__ = ["READERS", "load_directory"]

Reader = Callable[[str, bytes, Permissions], list[Tool]]

READERS: Mapping[str, tuple[Reader, tuple[str, ...]]] = {"vega": (read_vega, (".yaml", ".yml"))}
"""By dialect: who reads a file, and which files there are."""


def load_directory(folder: Path, granted: Permissions, dialect: str = "vega") -> Loaded:
    """Every tool of a folder, by the names of its files; folders in it are not looked into.

    `granted` is what programs and files of its tools may touch. Never raises for a bad file.
    """
    reader, endings = READERS[dialect]
    found: list[Diagnostic] = []
    tools: dict[str, Tool] = {}
    for path in _files(folder, endings, found):
        try:
            read_one = reader(path, read(path), granted)
        except FileNotFoundError:
            found.append(make(path, (1, 1), "unreadable", "the manifest is a link that leads to nothing"))
            continue
        except ManifestError as error:
            found += diagnostics_of(error)
            continue
        for tool in read_one:
            first = tools.setdefault(tool.name, tool)
            if first is not tool:
                there = "" if first.source is None else f": in {first.source.path}"
                told = f"there is a tool named `{tool.name}` already{there}"
                found.append(make(path, (1, 1), "name", told, hint="give one of the two another name"))
    return Loaded(tuple(tools.values()), tuple(found))


def _files(folder: Path, endings: tuple[str, ...], found: list[Diagnostic]) -> list[str]:
    base = os.fspath(folder)
    try:
        with os.scandir(base) as entries:
            names = sorted(entry.name for entry in entries if entry.name[0] != ".")
    except OSError as error:
        told = f"the folder of tools cannot be listed: {error.strerror}"
        found.append(make(base, (1, 1), "unreadable", told))
        return []
    return [f"{base}/{name}" for name in names if name.endswith(endings)]
