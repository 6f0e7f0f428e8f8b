"""`sources` in a project's settings: further folders and files of tools, and their permissions."""

from __future__ import annotations

import os
from dataclasses import field, replace
from pathlib import Path, PurePath
from typing import Any

from toolcrib.manifest import (
    DEFAULT_DIALECT,
    Loaded,
    SourceFiles,
    folder_dialects,
    load_directory,
    load_file,
    make,
)
from toolcrib.project.config.reader import KeyPath, Reader, choice, permissions
from toolcrib.spec import Permissions
from toolcrib.spec.record import record

_KEYS = ("dir", "file", "dialect", "permissions")
_ELSEWHERE = {
    "native": "put manifests into the project's own folder of tools; they need no source",
    "mcp": "write MCP servers into `.mcp.json` at the project's root, or under `mcp_servers` here",
    "openapi": "`toolcrib import openapi FILE` makes manifests of its operations",
}
"""Formats that cannot be a source, and what to do instead."""


@record
class ToolSource:
    """One folder of tools, or one file."""

    path: str
    """As written; relative paths begin at the project root."""
    dialect: str | None = DEFAULT_DIALECT
    """None for a file whose format is detected."""
    is_file: bool = False
    granted: Permissions = field(default_factory=lambda: Permissions(read=(".",)))
    """Permissions of its programs and file tools."""


_permissions = permissions(("network", "fs"), read_default=(".",))


def read_source(reader: Reader, entry: Any, at: KeyPath) -> ToolSource:
    """Read one entry of `sources`."""
    block = reader.mapping(entry, at, _KEYS)
    is_file = "file" in block
    key = "file" if is_file else "dir"
    if is_file is ("dir" in block) or not block[key]:
        raise reader.misfit(
            at, "must name a folder or a file: `dir: tools/definitions`, or `file: tools.yaml`"
        )
    written = reader.line(block[key], (*at, key), 4096)
    if is_file and PurePath(written).name in (".mcp.json", "mcp.json"):
        raise reader.misfit((*at, key), "names MCP servers", _ELSEWHERE["mcp"])
    dialect = block.get("dialect", None if is_file else DEFAULT_DIALECT)
    if "dialect" in block:
        if isinstance(dialect, str) and dialect in _ELSEWHERE:
            raise reader.misfit((*at, "dialect"), f"cannot be `{dialect}`", _ELSEWHERE[dialect])
        choice(folder_dialects(dialect))(reader, dialect, (*at, "dialect"))
    granted = _permissions(reader, block.get("permissions"), (*at, "permissions"))
    return ToolSource(written, dialect, is_file, granted)


def load_source(source: ToolSource, root: Path, files: SourceFiles) -> Loaded:
    """Return the tools of one source. A path inside of the project may not lead out of it by a link.

    `files` are those of the project that may be read. A source outside has all files of its own folder.
    """
    path = place_of(source, root)
    # A commit could otherwise make a source of any folder of this user.
    if path.is_relative_to(root) and not Path(os.path.realpath(path)).is_relative_to(root):
        message = f"a symbolic link takes this {'file' if source.is_file else 'folder'} out of the project"
        hint = "to allow it, write its real path in `sources`"
        return Loaded((), (make(str(path), (1, 1), "unreadable", message, hint=hint),))
    if not path.is_relative_to(root):
        folder = path.parent if source.is_file else path
        files = replace(files, folders=(*files.folders, os.path.realpath(folder)))
    if source.is_file:
        return load_file(path, source.granted, source.dialect, files)
    assert source.dialect is not None
    return load_directory(path, source.granted, source.dialect, files)


def place_of(source: ToolSource, root: Path) -> Path:
    """Return the path of a source; links are not followed."""
    return Path(os.path.normpath(root / source.path))
