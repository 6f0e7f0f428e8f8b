"""Tools of other formats in a folder or a file that the settings or a program name."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

from toolcrib.manifest.dialects.dialect import Dialect
from toolcrib.manifest.dialects.registry import DEFAULT_DIALECT, DIALECTS, dialect_named, joined, read_dialect
from toolcrib.manifest.native.reader import FILE_NAME, OTHER_NAME, Loaded
from toolcrib.manifest.yaml.diagnostics import Diagnostic, make
from toolcrib.manifest.yaml.files import ANY_FILE, SourceFiles
from toolcrib.spec import Permissions, Tool


def load_directory(
    folder: Path, granted: Permissions, dialect: str = DEFAULT_DIALECT, files: SourceFiles = ANY_FILE
) -> Loaded:
    """Return every tool of a folder, by the names of its files. Never raises for a bad file.

    `granted` is what programs and files of its tools may touch; only `files` are read.
    """
    found: list[Diagnostic] = []
    form = dialect_named(dialect)
    loaded = joined(
        _read(path, granted, dialect, files, own=own) for path, own in _files(folder, form, found)
    )
    return Loaded(loaded.tools, (*found, *loaded.diagnostics), loaded.broken)


def load_file(
    path: Path, granted: Permissions, dialect: str | None = None, files: SourceFiles = ANY_FILE
) -> Loaded:
    """Return every tool of one file. Never raises for a bad file; the format is found out if not named."""
    if path.name not in (FILE_NAME, OTHER_NAME):
        loaded = _read(os.fspath(path), granted, dialect, files, own=_is_own(path.name))
        if all(tool.source is not None and tool.source.dialect != "native" for tool in loaded.tools):
            return loaded
    message = "this is a manifest of Toolcrib's own format"
    hint = "put it into a folder of its own in the project's folder of tools: tools/NAME/tool.yml"
    return Loaded((), (make(os.fspath(path), (1, 1), "dialect", message, hint=hint),))


def _is_own(name: str) -> bool:
    """Return True for a file whose name is its whole ending: all of its folder belongs to it."""
    return any(name in dialect.endings for dialect in DIALECTS.builtin)


def _read(path: str, granted: Permissions, dialect: str | None, files: SourceFiles, *, own: bool) -> Loaded:
    """Read one file; `own` if its folder belongs to its tool alone."""
    loaded = read_dialect(path, dialect=dialect, files=files)
    tools = tuple(_placed(tool, granted, own=own) for tool in loaded.tools)
    return Loaded(tools, loaded.diagnostics, loaded.broken)


def _placed(tool: Tool, granted: Permissions, *, own: bool) -> Tool:
    """Return the tool with what its folder was granted, beside what its file says."""
    source = tool.source
    assert source is not None
    permissions = DIALECTS[source.dialect].granted(tool, granted)
    return replace(tool, permissions=permissions, source=source if own else replace(source, shared=True))


def _files(folder: Path, dialect: Dialect, found: list[Diagnostic]) -> list[tuple[str, bool]]:
    """Return the paths of a folder's files that are tools, with True for those in a folder of their own."""
    base = os.fspath(folder)
    try:
        with os.scandir(base) as entries:
            names = sorted((entry.name, entry.is_dir()) for entry in entries if entry.name[0] != ".")
    except OSError as error:
        message = f"the folder of tools cannot be listed: {error.strerror}"
        found.append(make(base, (1, 1), "unreadable", message))
        return []
    paths: list[tuple[str, bool]] = []
    for name, is_dir in names:
        if not is_dir and name.endswith(dialect.endings):
            paths.append((f"{base}/{name}", _is_own(name)))
        elif is_dir and dialect.own_file is not None and os.path.lexists(f"{base}/{name}/{dialect.own_file}"):
            paths.append((f"{base}/{name}/{dialect.own_file}", True))
    return paths
