"""`sources` in a project's settings: further folders and files of tools, and what their tools may touch."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path, PurePath
from typing import Any

from toolcrib.manifest import FOLDERS, Loaded, load_directory, load_file, make
from toolcrib.project.config.reader import Reader
from toolcrib.spec import Network, Permissions

__all__ = ["ToolSource", "load_source", "place_of", "read_sources"]

_MOST = 100
_KEYS = ("dir", "file", "dialect", "permissions")
_ELSEWHERE = {
    "native": "manifests of the project lie in its own folder of tools; there they need no source",
    "mcp": "MCP servers stand in `.mcp.json` at the project's root, or under `mcp_servers` here",
    "openapi": "`toolcrib import openapi FILE` makes manifests of its operations",
}
"""What is no source, and where it goes."""


@dataclass(frozen=True, slots=True)
class ToolSource:
    """One folder of tools, or one file."""

    path: str
    """As written; relative paths begin at the project root."""
    dialect: str | None = "vega"
    """None for a file whose format is found out."""
    is_file: bool = False
    granted: Permissions = field(default_factory=lambda: Permissions(read=(".",)))
    """What programs and files of its tools may touch."""


def read_sources(reader: Reader, value: Any) -> dict[str, Any]:
    """The setting `sources`."""
    return {
        "sources": tuple(
            _source(reader, entry, ("sources", at))
            for at, entry in enumerate(reader.items(value, ("sources",), _MOST))
        )
    }


def _source(reader: Reader, entry: Any, path: tuple[str | int, ...]) -> ToolSource:
    block = reader.mapping(entry, path, _KEYS)
    is_file = "file" in block
    key = "file" if is_file else "dir"
    if is_file is ("dir" in block) or not block[key]:
        told = "must name a folder or a file: `dir: tools/definitions`, or `file: tools.yaml`"
        raise reader.misfit(path, told)
    where = (*path, key)
    written = reader.line(block[key], where, 4096)
    if is_file and PurePath(written).name in (".mcp.json", "mcp.json"):
        raise reader.misfit(where, "names MCP servers", _ELSEWHERE["mcp"])
    dialect = block.get("dialect", None if is_file else "vega")
    if dialect is not None or "dialect" in block:
        if isinstance(dialect, str) and dialect in _ELSEWHERE:
            raise reader.misfit((*path, "dialect"), f"cannot be `{dialect}`", _ELSEWHERE[dialect])
        dialect = reader.choice(dialect, (*path, "dialect"), tuple(FOLDERS))
    return ToolSource(written, dialect, is_file, _granted(reader, block.get("permissions"), path))


def _granted(reader: Reader, value: Any, above: tuple[str | int, ...]) -> Permissions:
    at = (*above, "permissions")
    block = reader.mapping(value, at, ("network", "fs"))
    files = reader.mapping(block.get("fs"), (*at, "fs"), ("read", "write"))
    try:
        network = Network.parse(block.get("network", False))
    except ValueError as error:
        raise reader.misfit((*at, "network"), str(error).removeprefix("network ")) from None
    return Permissions(
        network,
        reader.texts(files.get("read", ["."]), (*at, "fs", "read")),
        reader.texts(files.get("write", []), (*at, "fs", "write")),
    )


def load_source(source: ToolSource, root: Path) -> Loaded:
    """The tools of one source. One written as inside of the project must be inside, links followed."""
    path = place_of(source, root)
    if path.is_relative_to(root) and not Path(os.path.realpath(path)).is_relative_to(root):
        told = f"a symbolic link takes this {'file' if source.is_file else 'folder'} out of the project"
        hint = "if that is meant, write its real path in `sources`"
        return Loaded((), (make(str(path), (1, 1), "unreadable", told, hint=hint),))
    if source.is_file:
        return load_file(path, source.granted, source.dialect)
    assert source.dialect is not None
    return load_directory(path, source.granted, source.dialect)


def place_of(source: ToolSource, root: Path) -> Path:
    """Where a source is; links are not followed."""
    return Path(os.path.normpath(root / source.path))
