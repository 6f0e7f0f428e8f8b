"""`builtins` and `roots` in a project's settings: the built-in tools that are on, and their folders."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from toolcrib.builtin.names import NAMES
from toolcrib.builtin.settings import RootFolder
from toolcrib.builtin.table import builtin
from toolcrib.project.config.reader import KeyPath, Reader, truth
from toolcrib.spec.naming import did_you_mean

_ROOT_NAME = re.compile(r"[a-zA-Z][a-zA-Z0-9_-]{0,63}")


def read_builtins(reader: Reader, value: Any, at: KeyPath) -> tuple[tuple[str, Mapping[str, Any]], ...]:
    """Read a list of names, or a mapping of names to options."""
    if not isinstance(value, list | dict):
        raise reader.misfit(at, "must be a list of names, or a mapping of names to options")
    options = value if isinstance(value, dict) else {}
    found = []
    for number, name in enumerate(value):
        here = (*at, name if isinstance(value, dict) else number)
        if name not in NAMES:
            hint = did_you_mean(str(name), NAMES, f"known here: {', '.join(NAMES)}")
            raise reader.misfit(here, "is no built-in tool", hint)
        given: Any = {} if options.get(name) is None else options[name]
        if name in options and (faults := builtin(name).option_faults(given)):
            path, message = faults[0]
            raise reader.misfit(here, f"{path.removeprefix('$.')} {message}")
        found.append((name, given))
    return tuple(found)


def read_roots(reader: Reader, value: Any, at: KeyPath) -> tuple[RootFolder, ...]:
    """Read names of folders, each with a path that is only read, or with `path` and `write`."""
    if not isinstance(value, dict) or not value:
        raise reader.misfit(at, "must name at least one folder: `workspace: {path: ., write: true}`")
    found = []
    for name, entry in value.items():
        if not _ROOT_NAME.fullmatch(name):
            raise reader.misfit((*at, name), "is not a name for a folder", "use letters, digits, `_` and `-`")
        block = {"path": entry} if isinstance(entry, str) else entry
        block = reader.mapping(block, (*at, name), ("path", "write"))
        path = reader.line(block.get("path"), (*at, name, "path"), 4096)
        found.append(RootFolder(name, path, truth(reader, block.get("write", False), (*at, name, "write"))))
    return tuple(found)
