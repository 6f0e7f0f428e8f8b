"""A command line with its surroundings: the folders of this machine, and the places of its programs."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from dataclasses import field

from toolcrib.manifest.dialects.mcp_servers import Resolved
from toolcrib.sandbox.files.paths import within
from toolcrib.spec.record import record

SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib64")
"""Folders that every confined process sees."""


@record
class Launch:
    """A command line to start. The program has an absolute path once it has been found."""

    argv: tuple[str, ...]
    cwd: str = "."
    """From the project's root."""
    env: Mapping[str, str] = field(default_factory=dict)
    """Variables that the server's settings name."""
    path: tuple[str, ...] = ()
    """Folders that its `PATH` has before those of the system."""
    project: str = ""
    """The folder of the package that `uv run` starts."""
    resolved: Resolved | None = None
    """The command that the launcher was resolved to when the server was trusted."""
    server: str = ""
    """The server that it starts."""


@record
class MachineView:
    """The user's folders and variables, and the project's root as a real path."""

    root: str
    env: Mapping[str, str] = field(default_factory=lambda: os.environ)

    @property
    def home(self) -> str:
        """The user's home folder."""
        return self.env.get("HOME") or os.path.expanduser("~")

    def which(self, name: str) -> str | None:
        """Return the program that the user's own shell would start for a name without a slash."""
        # A relative folder would search the project, which could bring a program of that name.
        folders = [one for one in self.env.get("PATH", "").split(":") if one.startswith("/")]
        return shutil.which(name, path=":".join([*folders, "/usr/local/bin", "/usr/bin", "/bin"]))

    def absolute(self, path: str, cwd: str = ".") -> str:
        """Return a path as it is written, from the project's root and a working folder in it."""
        return os.path.normpath(os.path.join(self.root, cwd, path))

    def is_system(self, path: str) -> bool:
        """Return True for what every confined process sees."""
        return within(path, *SYSTEM)

    def is_inside(self, path: str) -> bool:
        """Return True for a path in the project."""
        return within(path, self.root)

    def is_too_wide(self, folder: str) -> bool:
        """Return True for a folder around the home folder or the project, which is never granted so."""
        places = (self.root, self.home, os.path.realpath(self.home))
        return folder.count("/") < 2 or any(within(place, folder) for place in places)
