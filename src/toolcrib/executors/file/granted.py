"""The granted folders of a tool whose files are opened in this process."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Literal, NamedTuple

from toolcrib.executors.workspace.grants import FileGrants
from toolcrib.executors.workspace.workspace import Workspace
from toolcrib.sandbox import Root
from toolcrib.sandbox.files.paths import PathCache, Paths, within
from toolcrib.spec import Tool

Access = Literal["read", "write"]


class _Granted(NamedTuple):
    """The grants of the tool, as one call resolved them."""

    grants: FileGrants
    prefixes: list[tuple[str, str]]
    """Each grant as an absolute path, as it is written, and its real path."""
    hidden: tuple[str, ...]
    protected: tuple[str, ...]


class GrantedFiles:
    """Finds the roots for one path of a call. Grants are resolved once, until a path on the way changes."""

    def __init__(self, tool: Tool, workspace: Workspace) -> None:
        self._tool = tool
        self._workspace = workspace
        self._granted: PathCache[_Granted] = PathCache(1)

    def find(self, asked: str, access: Access) -> tuple[str, tuple[Root, ...]]:
        """Return an absolute path with the real path of its grant in it, and the roots it is opened in.

        Raises as `ProjectFiles.grants`, and PermissionDenied for a tool without any grant of this access.
        """
        granted, workspace = self._granted.get(None, self._resolve), self._workspace
        grants = granted.grants
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
        # All of them: a `read` grant inside a `write` grant stays read-only.
        return path, tuple(
            Root(place, place not in grants.write, granted.hidden, granted.protected)
            for _, place in granted.prefixes
        )

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
        return _Granted(grants, prefixes, hidden, protected)
