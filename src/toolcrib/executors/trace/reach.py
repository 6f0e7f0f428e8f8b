"""The files that one tool may use in one run, and those that a permission would give it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Literal

from toolcrib.executors.workspace.grants import GIT_SETTINGS, STARTUP, FileGrants
from toolcrib.executors.workspace.workspace import Workspace
from toolcrib.sandbox import Confinement
from toolcrib.sandbox.files.grants import BASE, BASE_ETC, PRIVATE, RESERVED
from toolcrib.sandbox.files.paths import within
from toolcrib.spec import Tool
from toolcrib.spec.record import record

Access = Literal["read", "write"]
Verdict = Literal["free", "granted", "missing", "closed"]
"""Every tool has it; the tool's permissions grant it; a permission would grant it; no permission does."""


def parent(path: str) -> str:
    """Return the folder of an absolute path."""
    return path.rpartition("/")[0] or "/"


def above(path: str) -> Iterator[str]:
    """Yield the folders above an absolute path, the nearest first."""
    while path != "/":
        path = parent(path)
        yield path


def nearest(entry: str) -> str:
    """Return the nearest existing folder above an absolute path."""
    return next(folder for folder in above(entry) if os.path.isdir(folder))


@record
class Reach:
    """The grants of one run, as real paths of this machine."""

    root: str
    home: str
    cwd: str
    read: tuple[str, ...]
    """The tool's `permissions.fs.read`."""
    write: tuple[str, ...]
    free: tuple[str, ...]
    """Readable without a permission: the tool's own folder, its program, its interpreter."""
    protect: tuple[str, ...]
    scratch: tuple[str, ...]
    hide: tuple[str, ...]

    @classmethod
    def of(cls, workspace: Workspace, tool: Tool, run: Confinement | FileGrants) -> Reach:
        """Return the reach of a tool in one run: the job of a confined tool, the grants of a file tool."""
        count, confined = len(tool.permissions.read), isinstance(run, Confinement)
        return cls(
            workspace.root,
            workspace.home,
            run.cwd if isinstance(run, Confinement) else workspace.root,
            run.read[:count],
            run.write,
            run.read[count:] if confined else (),
            run.protect,
            (*run.scratch, f"{workspace.home}/scratch"),
            run.hide,
        )

    def place(self, path: str) -> str:
        """Return the real path of one from the working folder."""
        return os.path.realpath(os.path.join(self.cwd, path))

    def name(self, path: str) -> str:
        """Return the absolute path that a grant must name.

        That is the path with its symbolic links, because the tool needs those too; the real path if a link
        leads into or out of the project, or is followed by `..`.
        """
        name = os.path.normpath(os.path.join(self.cwd, path))
        place = self.place(path)
        # normpath takes `a/..` away even if `a` is a link to elsewhere; then the names differ.
        same = self.place(name) == place and self.in_project(name) == self.in_project(place)
        return name if same else place

    def entry(self, path: str) -> str:
        """Return the name of a folder's entry, which may itself be a link."""
        folder, name = os.path.split(path.rstrip("/"))
        return os.path.join(self.name(folder), name)

    def in_project(self, path: str) -> bool:
        """Return True if a path lies in the project."""
        return within(path, self.root, self.home)

    def may_make(self, path: str) -> bool:
        """Return True if nothing is at a path in the project, and this user could make something there."""
        place = self.place(path)
        new = self.in_project(place) and not os.path.lexists(place)
        return new and os.access(parent(place), os.W_OK | os.X_OK)

    def of_system(self, path: str) -> bool:
        """Return True for programs and libraries of this machine, which every tool sees."""
        return within(path, *BASE, *BASE_ETC) or within(self.place(path), *BASE, *BASE_ETC)

    def of_kernel(self, path: str) -> bool:
        """Return True for /proc, /sys and /dev: the tool sees others than this process."""
        return within(path, *RESERVED)

    def private(self, path: str) -> bool:
        """Return True if the tool sees an own folder of this name, such as `/tmp`, not the machine's."""
        granted = (*self.read, *self.write, *self.free)
        return within(path, *PRIVATE) and not self.in_project(path) and not within(path, *granted)

    def shown(self, folder: str) -> bool:
        """Return True if the tool sees this folder, if only as the way to a grant."""
        return any(within(place, folder) for place in (self.cwd, *self.read, *self.write, *self.free))

    def above_system(self, folder: str) -> bool:
        """Return True if a folder contains programs or libraries that every tool sees."""
        return any(within(place, folder) for place in (*BASE, *BASE_ETC))

    def granted(self, path: str) -> Access | None:
        """Return the access that the nearest grant gives to a real path."""
        grants: list[tuple[int, Access]] = [
            *((len(grant), "read") for grant in (*self.read, *self.free) if within(path, grant)),
            *((len(grant), "write") for grant in self.write if within(path, grant)),
        ]
        # The longest path is the innermost; of equal ones `write` sorts last.
        return max(grants)[1] if grants else None

    def verdict(self, path: str, access: Access) -> Verdict:
        """Return the verdict on this access to a real path."""
        if within(path, *self.hide):
            return "closed"
        granted = self.granted(path)
        if access == "write":
            if within(path, *self.protect) and not within(path, *self.scratch):
                return "missing" if self.to_name(path) else "closed"
            if granted == "write":
                return "granted"
            if self.of_kernel(path):
                return "closed"
            return "free" if granted is None and self.private(path) else "missing"
        if within(path, *self.free):
            return "free"
        if granted is not None:
            return "granted"
        if self.of_kernel(path) or self.of_system(path) or self.private(path):
            return "free"
        if within(path, self.home) and not within(path, *self.scratch):
            return "closed"
        return "missing"

    def to_name(self, path: str) -> str:
        """Return what a grant must name to make a protected real path writable; else nothing.

        That is a `.git`, or another file or folder that starts the user's programs.
        """
        for folder in self.protect:
            name = os.path.basename(folder)
            if name in STARTUP and within(path, folder) and not os.path.islink(folder):
                if name != ".git":
                    return folder
                inside = path[len(folder) + 1 :].partition("/")[0]
                return "" if inside in GIT_SETTINGS else folder
        return ""

    def written(self, path: str) -> str:
        """Return an absolute path as a manifest has it: relative to the project root if it is below."""
        if path == self.root:
            return "."
        return path[len(self.root) + 1 :] if within(path, self.root) else path
