"""`sources` in a project's settings: further folders of tools, and what their tools may touch."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from toolcrib.manifest import READERS, Loaded, load_directory, make
from toolcrib.project.reader import Reader
from toolcrib.spec import Network, Permissions

__all__ = ["ToolSource", "load_source", "read_sources"]

_MOST = 100


@dataclass(frozen=True, slots=True)
class ToolSource:
    """One folder of tools."""

    dir: str
    """As written; relative paths begin at the project root."""
    dialect: str = "vega"
    granted: Permissions = field(default_factory=lambda: Permissions(read=(".",)))
    """What programs and files of its tools may touch."""


def read_sources(reader: Reader, value: Any) -> dict[str, Any]:
    """The setting `sources`."""
    sources: list[ToolSource] = []
    for at, entry in enumerate(reader.items(value, ("sources",), _MOST)):
        path = ("sources", at)
        block = reader.mapping(entry, path, ("dir", "dialect", "permissions"))
        if not block.get("dir"):
            raise reader.misfit(path, "must be a mapping that names a folder: `dir: tools/definitions`")
        folder = reader.line(block["dir"], (*path, "dir"), 4096)
        dialect = reader.choice(block.get("dialect", "vega"), (*path, "dialect"), tuple(READERS))
        sources.append(ToolSource(folder, dialect, _granted(reader, block.get("permissions"), path)))
    return {"sources": tuple(sources)}


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
    """The tools of one folder. One written as inside of the project must be inside, links followed."""
    folder = Path(os.path.normpath(root / source.dir))
    if folder.is_relative_to(root) and not Path(os.path.realpath(folder)).is_relative_to(root):
        told = "a symbolic link takes this folder out of the project"
        hint = "if that is meant, write its real path in `sources`"
        return Loaded((), (make(str(folder), (1, 1), "unreadable", told, hint=hint),))
    return load_directory(folder, source.granted, source.dialect)
