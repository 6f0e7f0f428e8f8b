"""The granted folders of a tool whose files are opened in this process."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Generic, Literal, NamedTuple, TypeVar

from toolcrib.errors import PermissionDenied, ToolcribError
from toolcrib.executors.workspace.grants import FileGrants, startup_place
from toolcrib.executors.workspace.workspace import Workspace
from toolcrib.sandbox import Root, Roots
from toolcrib.sandbox.files.paths import PathCache, Paths, real_path, within
from toolcrib.sandbox.files.roots import FilePart, OpenRoots
from toolcrib.spec import Tool

Access = Literal["read", "write"]
T = TypeVar("T")
_open_roots = OpenRoots()


class _Granted(NamedTuple):
    """The grants of the tool, as one call resolved them."""

    grants: FileGrants
    prefixes: list[tuple[str, str]]
    """Each grant as an absolute path, as it is written, and its real path."""
    hidden: tuple[str, ...]
    protected: tuple[str, ...]
    roots: tuple[Root, ...]
    """All grants: a `read` grant inside a `write` grant stays read-only."""
    device: int
    """The device of the project's home folder; -1 if there is none."""


class Used(NamedTuple, Generic[T]):
    """The end of one use of files."""

    value: T
    path: str
    """The path, with the real path of its grant in it."""
    created: tuple[str, ...]
    """The files that were created and start other programs of the user."""


class GrantedFiles:
    """Opens the roots for one path of a call. Grants are resolved once, until a path on the way changes."""

    def __init__(self, tool: Tool, workspace: Workspace) -> None:
        self._tool = tool
        self._workspace = workspace
        self._granted: PathCache[_Granted] = PathCache(1)

    def use(
        self, asked: str, access: Access, work: Callable[[Roots, str], T], shown: str | None = None
    ) -> Used[T]:
        """Call `work` with the open roots and the path in them; errors name the path as `shown`.

        Raises as `ProjectFiles.grants`, and PermissionDenied for a tool without any grant of this access.
        """
        return self._use(self._granted.get(None, self._resolve), asked, access, work, shown)

    def read_at_once(self, asked: str, limit: int) -> FilePart | None:
        """Return the beginning of a small file; None where an event loop might have to wait for it.

        It is only read on the file system to which the loop writes the audit log. Raises as `use`.
        """
        # What may be written is searched for files that start programs, which takes longer.
        granted = None if self._tool.permissions.write else self._granted.kept(None)
        if granted is None:
            return None
        device = granted.device
        return self._use(
            granted, asked, "read", lambda roots, path: roots.read_at_once(path, limit, device)
        ).value

    def _use(
        self,
        granted: _Granted,
        asked: str,
        access: Access,
        work: Callable[[Roots, str], T],
        shown: str | None = None,
    ) -> Used[T]:
        path, roots = self._find(granted, asked, access)
        try:
            value = work(_open_roots.get(roots), path)
        except ToolcribError as error:
            if isinstance(error, PermissionDenied) and self._startup(granted, path) in granted.protected:
                where = "`roots` in config.yml" if self._tool.is_builtin else "permissions.fs.write"
                error.hint = f"It can start other programs of the user. To allow it, name it under {where}."
            if shown is not None:  # As the caller wrote it: not where the folder really is.
                error.message = error.message.replace(path, shown).replace(asked, shown)
                error.args = (error.message,)
                if "path" in error.details:
                    error.details["path"] = shown
            raise
        place = self._startup(granted, path) if access == "write" else None
        return Used(value, path, () if place is None else (place,))

    @staticmethod
    def _startup(granted: _Granted, path: str) -> str | None:
        """Return what a path is, or is in, that starts other programs and that no grant names."""
        real, grants = real_path(path), granted.grants
        folder = max((one for one in grants.write if within(real, one)), key=len, default=None)
        return None if folder is None or folder in grants.scratch else startup_place(real, folder)

    def _find(self, granted: _Granted, asked: str, access: Access) -> tuple[str, tuple[Root, ...]]:
        """Return an absolute path with the real path of its grant in it, and the roots it is opened in."""
        grants, workspace = granted.grants, self._workspace
        if workspace.watch is not None:
            workspace.watch.touch(workspace, self._tool, grants, access, asked)
        if not (grants.write if access == "write" else granted.prefixes):
            from toolcrib.executors.trace.denials import of_file

            raise of_file(workspace, self._tool, grants, access, asked)
        # A grant may be written as a symbolic link.
        within_grants = (real + asked[len(one) :] for one, real in granted.prefixes if within(asked, one))
        path = next(within_grants, asked)
        scratch = next((folder for folder in grants.scratch if within(path, folder)), None)
        if scratch is not None and access == "write":
            # The scratch folder lies in a protected one, so only what is protected inside of it still counts.
            inside = tuple(one for one in granted.protected if one != scratch and within(one, scratch))
            return path, (Root(scratch, hidden=granted.hidden, protected=inside),)
        return path, granted.roots

    def _resolve(self, paths: Paths) -> _Granted:
        """Return the tool's grants, each resolved once."""
        tool, files = self._tool, self._workspace.files(paths)
        grants = files.grants(tool)
        written = (*tool.permissions.read, *tool.permissions.write)
        # A process needs its own folder to start from; a file tool has only what it was granted.
        real = (*grants.read[: len(tool.permissions.read)], *grants.write)
        prefixes = [
            (os.path.normpath(Path(files.root, one)), place) for one, place in zip(written, real, strict=True)
        ]
        hidden = tuple(dict.fromkeys((*grants.hide, *map(paths.real, grants.hide))))
        protected = tuple(dict.fromkeys((*grants.protect, *map(paths.real, grants.protect))))
        home = paths.look(self._workspace.home).identity
        roots = tuple(Root(place, place not in grants.write, hidden, protected) for place in real)
        return _Granted(grants, prefixes, hidden, protected, roots, -1 if home is None else home[0])
