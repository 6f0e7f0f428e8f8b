"""Tools of other formats in a folder, or in one file, that somebody names."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from toolcrib.errors import ManifestError
from toolcrib.manifest.dialects.registry import read_dialect
from toolcrib.manifest.dialects.skill import SKILL_FILE
from toolcrib.manifest.dialects.vega.reader import read_vega
from toolcrib.manifest.native.reader import FILE_NAME, OTHER_NAME, Loaded
from toolcrib.manifest.yaml.diagnostics import Diagnostic, diagnostics_of, make
from toolcrib.manifest.yaml.source import read
from toolcrib.spec import CommandExec, FileExec, Permissions, SqlExec, Tool

__all__ = ["FOLDERS", "load_directory", "load_file"]


class _Files(NamedTuple):
    """Which files of a folder are tools."""

    endings: tuple[str, ...]
    below: str | None = None
    """Also files of this name in folders of the folder; such a folder belongs to its tool alone."""


FOLDERS: Mapping[str, _Files] = {
    "vega": _Files((".yaml", ".yml")),
    "flexigpt": _Files((".json", ".jsonc"), "tool.json"),
    "toolbox": _Files((".yaml", ".yml")),
    "sympozium": _Files((".yaml", ".yml")),
    "skill": _Files((SKILL_FILE,), SKILL_FILE),
}
"""By format: the files of a folder that are read."""


def load_directory(folder: Path, granted: Permissions, dialect: str = "vega") -> Loaded:
    """Every tool of a folder, by the names of its files.

    `granted` is what programs and files of its tools may touch. Never raises for a bad file.
    """
    found: list[Diagnostic] = []
    files = _files(folder, FOLDERS[dialect], found)
    loaded = _joined(_read(path, granted, dialect, own=own) for path, own in files)
    return Loaded(loaded.tools, (*found, *loaded.diagnostics), loaded.broken)


def load_file(path: Path, granted: Permissions, dialect: str | None = None) -> Loaded:
    """Every tool of one file, whose format is found out unless it is said. Never raises for a bad file."""
    if path.name not in (FILE_NAME, OTHER_NAME):
        loaded = _read(os.fspath(path), granted, dialect, own=path.name == SKILL_FILE)
        if all(tool.source is not None and tool.source.dialect != "native" for tool in loaded.tools):
            return loaded
    told = "this is a manifest of Toolcrib's own format"
    hint = "put it into a folder of its own in the project's folder of tools: tools/NAME/tool.yml"
    return Loaded((), (make(os.fspath(path), (1, 1), "dialect", told, hint=hint),))


def _read(path: str, granted: Permissions, dialect: str | None, *, own: bool) -> Loaded:
    """One file; `own` when its folder belongs to its tool alone."""
    loaded = _definition(path) if dialect == "vega" else read_dialect(path, dialect=dialect)
    tools = tuple(_placed(tool, granted, own=own) for tool in loaded.tools)
    return Loaded(tools, loaded.diagnostics, loaded.broken)


def _definition(path: str) -> Loaded:
    try:
        return Loaded(tuple(read_vega(path, read(path))), ())
    except FileNotFoundError:
        return Loaded((), (make(path, (1, 1), "unreadable", "the manifest is a link that leads to nothing"),))
    except ManifestError as error:
        return Loaded((), diagnostics_of(error))


def _placed(tool: Tool, granted: Permissions, *, own: bool) -> Tool:
    """The tool with what it was granted beside what its file says."""
    source, permissions = tool.source, tool.permissions
    assert source is not None
    if isinstance(tool.config, CommandExec):
        permissions = replace(granted, secrets=permissions.secrets)
    elif isinstance(tool.config, FileExec) and source.dialect == "vega":
        write = granted.write if tool.config.action == "write" else ()
        permissions = Permissions(read=granted.read, write=write, secrets=permissions.secrets)
    elif isinstance(tool.config, SqlExec):
        permissions = replace(permissions, write=granted.write)
    return replace(tool, permissions=permissions, source=source if own else replace(source, shared=True))


def _joined(parts: Iterable[Loaded]) -> Loaded:
    """What several files hold; of two tools of one name the first counts."""
    found: list[Diagnostic] = []
    tools: dict[str, Tool] = {}
    broken: dict[str, tuple[Diagnostic, ...]] = {}
    for part in parts:
        found += part.diagnostics
        broken |= part.broken
        for tool in part.tools:
            first = tools.setdefault(tool.name, tool)
            if first is not tool and first.source is not None and tool.source is not None:
                told = f"there is a tool named `{tool.name}` already: in {first.source.path}"
                hint = "give one of the two another name"
                found.append(make(tool.source.path, (1, 1), "name", told, hint=hint))
    return Loaded(tuple(tools.values()), tuple(found), broken)


def _files(folder: Path, wanted: _Files, found: list[Diagnostic]) -> list[tuple[str, bool]]:
    """The paths of a folder's files that are tools, and whether each has a folder of its own."""
    base = os.fspath(folder)
    try:
        with os.scandir(base) as entries:
            names = sorted((entry.name, entry.is_dir()) for entry in entries if entry.name[0] != ".")
    except OSError as error:
        told = f"the folder of tools cannot be listed: {error.strerror}"
        found.append(make(base, (1, 1), "unreadable", told))
        return []
    paths: list[tuple[str, bool]] = []
    for name, is_dir in names:
        if not is_dir and name.endswith(wanted.endings):
            paths.append((f"{base}/{name}", name == SKILL_FILE))
        elif is_dir and wanted.below is not None and os.path.lexists(f"{base}/{name}/{wanted.below}"):
            paths.append((f"{base}/{name}/{wanted.below}", True))
    return paths
