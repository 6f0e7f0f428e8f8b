"""Settings of the built-in tools: the folders of file tools and commands, and options of single tools."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping
from dataclasses import field
from pathlib import Path
from typing import Any

from toolcrib.errors import UsageError
from toolcrib.spec.record import record

HOSTS: Mapping[str, Any] = {
    "type": "object",
    "properties": {"allow": {"type": "array", "items": {"type": "string", "minLength": 1}}},
    "required": ["allow"],
    "additionalProperties": False,
}
"""The JSON Schema of a list of hosts in an option `network`."""


@record
class RootFolder:
    """One folder that built-in tools may use."""

    name: str
    path: str
    """As written; relative paths begin at the project root."""
    write: bool = False


PROJECT_ROOT = (RootFolder("project", "."),)
"""The folders of a project that names none: the project, read-only."""


@record
class BuiltinSettings:
    """The settings of all built-in tools of one project or toolset."""

    roots: tuple[RootFolder, ...] = PROJECT_ROOT
    """The first one is where relative paths begin."""
    options: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """Name of a tool to its options, which are described beside the tool."""

    def of(self, name: str) -> Mapping[str, Any]:
        """Return the options of one tool."""
        return self.options.get(name) or {}

    @property
    def read(self) -> tuple[str, ...]:
        """The folders that may be read, the first root first."""
        return tuple(root.path for root in self.roots)

    @property
    def write(self) -> tuple[str, ...]:
        """The folders that may be written."""
        return tuple(root.path for root in self.roots if root.write)


def root_folders(
    roots: str | os.PathLike[str] | Mapping[str, str | os.PathLike[str]] | None, read_only: Collection[str]
) -> tuple[RootFolder, ...]:
    """Return the folders of a toolset: one path, or paths by name; `read_only` are names among them.

    None is the working folder. Raises UsageError for a name in `read_only` that is not a root.
    """
    named = roots if isinstance(roots, Mapping) else {"workspace": "." if roots is None else roots}
    if unknown := set(read_only) - named.keys():
        raise UsageError(f"read_only names no root: {', '.join(sorted(unknown))}")
    return tuple(
        RootFolder(name, str(Path(path).absolute()), name not in read_only) for name, path in named.items()
    )
