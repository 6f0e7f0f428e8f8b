"""What one tool reaches in one run: may it read or write a path, and if not, would a grant do."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Literal

from toolcrib.executors.workspace.workspace import GIT_SETTINGS, Workspace, within
from toolcrib.sandbox import Confinement
from toolcrib.sandbox.files.grants import BASE, BASE_ETC, PRIVATE, RESERVED
from toolcrib.spec import Tool

__all__ = ["Access", "Reach", "Verdict", "above", "in_any", "is_folder", "nearest", "parent", "there"]

Access = Literal["read", "write"]
Verdict = Literal["free", "granted", "missing", "closed"]
"""Every tool has it · the tool's grants give it · a grant would give it · no grant does."""


def in_any(path: str, folders: Iterable[str]) -> bool:
    """Whether a real path is one of the folders or lies below one."""
    return any(within(path, folder) for folder in folders)


def parent(path: str) -> str:
    """The folder that an absolute path is an entry of."""
    return path.rpartition("/")[0] or "/"


def above(path: str) -> Iterator[str]:
    """The folders above an absolute path, from the nearest up."""
    while path != "/":
        path = parent(path)
        yield path


def there(path: str) -> bool:
    """Whether it is known that there is something; what may not be looked at is not."""
    return os.path.exists(path)  # noqa: PTH110 - Path.exists raises where that may not be asked


def is_folder(path: str) -> bool:
    """Whether it is known to be a folder."""
    return os.path.isdir(path)  # noqa: PTH112 - likewise


def nearest(entry: str) -> str:
    """The nearest folder above an absolute path that is there."""
    return next(folder for folder in above(entry) if is_folder(folder))


@dataclass(frozen=True, slots=True)
class Reach:
    """The grants of one run, as real paths of this machine."""

    root: str
    home: str
    cwd: str
    read: tuple[str, ...]
    """What the tool's permissions name."""
    write: tuple[str, ...]
    free: tuple[str, ...]
    """What it may read without naming it: its own folder, its program, its interpreter."""
    protect: tuple[str, ...]
    scratch: tuple[str, ...]
    hide: tuple[str, ...]

    @classmethod
    def of(cls, workspace: Workspace, tool: Tool, job: Confinement) -> Reach:
        """What a job for this tool reaches."""
        read = tuple(workspace.resolve(path) for path in tool.permissions.read)
        own = workspace.folder(tool)
        free = tuple(path for path in job.read if path not in read or path == own)
        return cls(
            workspace.root, workspace.home, job.cwd, read, job.write, free,
            job.protect, (*job.scratch, workspace.scratch), job.hide,
        )  # fmt: skip

    @classmethod
    def of_file(cls, workspace: Workspace, tool: Tool) -> Reach:
        """What a tool of kind `file` reaches: nothing it does not name."""
        grants = workspace.grants(tool)
        read = tuple(workspace.resolve(path) for path in tool.permissions.read)
        scratch = (*grants.scratch, workspace.scratch)
        return cls(
            workspace.root, workspace.home, workspace.root, read, grants.write, (),
            grants.protect, scratch, grants.hide,
        )  # fmt: skip

    def absolute(self, path: str) -> str:
        """The path from the working folder, links as they are."""
        return os.path.normpath(os.path.join(self.cwd, path))  # noqa: PTH118 - text is what is compared

    def place(self, path: str) -> str:
        """The real path, links followed as far as there is something."""
        return os.path.realpath(os.path.join(self.cwd, path))  # noqa: PTH118

    def entry(self, path: str) -> str:
        """The real path of an entry itself, which may be a link."""
        folder, name = os.path.split(self.absolute(path))
        return os.path.join(self.place(folder), name)  # noqa: PTH118

    def in_project(self, path: str) -> bool:
        """Whether a real path lies in the project."""
        return within(path, self.root) or within(path, self.home)

    def of_system(self, path: str) -> bool:
        """Whether every tool sees this path: programs and libraries of this machine."""
        return in_any(path, (*BASE, *BASE_ETC)) or in_any(self.place(path), (*BASE, *BASE_ETC))

    def above_system(self, folder: str) -> bool:
        """Whether every tool sees this folder with the system's part of what is in it."""
        return any(within(place, folder) for place in (*BASE, *BASE_ETC))

    def of_kernel(self, path: str) -> bool:
        """Whether it is one of the places that show processes and devices: the tool has its own."""
        return in_any(path, RESERVED)

    def private(self, path: str) -> bool:
        """Whether the tool has a place of its own of this name, which is not the machine's."""
        granted = (*self.read, *self.write, *self.free)
        return in_any(path, PRIVATE) and not self.in_project(path) and not in_any(path, granted)

    def shown(self, folder: str) -> bool:
        """Whether the tool sees this folder, be it as an empty one with its grants inside."""
        return any(within(place, folder) for place in (self.cwd, *self.read, *self.write, *self.free))

    def granted(self, path: str) -> Access | None:
        """What the grants give for a real path: the one nearest to it decides."""
        best, found = -1, None
        for access, grants in (("read", (*self.read, *self.free)), ("write", self.write)):
            for grant in grants:
                if within(path, grant) and len(grant) >= best:
                    best, found = len(grant), access
        return found  # type: ignore[return-value]  # one of the two above

    def verdict(self, path: str, access: Access) -> Verdict:
        """What holds of a real path."""
        if in_any(path, self.hide):
            return "closed"
        granted = self.granted(path)
        if access == "write":
            if in_any(path, self.protect) and not in_any(path, self.scratch):
                return "missing" if self.repository(path) else "closed"
            if granted == "write":
                return "granted"
            if self.of_kernel(path):
                return "closed"
            return "free" if granted is None and self.private(path) else "missing"
        if in_any(path, self.free):
            return "free"
        if granted is not None:
            return "granted"
        if self.of_kernel(path) or self.of_system(path) or self.private(path):
            return "free"
        if within(path, self.home) and not in_any(path, self.scratch):
            return "closed"
        return "missing"

    def repository(self, path: str) -> str:
        """The `.git` that a real path lies in, where only a grant that names it is missing; else nothing."""
        for folder in self.protect:
            if folder.endswith("/.git") and within(path, folder) and not os.path.islink(folder):  # noqa: PTH114
                inside = path[len(folder) + 1 :].partition("/")[0]
                return "" if inside in GIT_SETTINGS else folder
        return ""

    def written(self, path: str) -> str:
        """A real path as a manifest names it: from the project root where it lies below."""
        if path == self.root:
            return "."
        return path[len(self.root) + 1 :] if within(path, self.root) else path
