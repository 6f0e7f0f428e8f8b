"""The grants of a tool as real paths, and the places of a project that stay closed whatever is granted.

Also the files by which a tool could make the user's other programs run something. What exists of them at the
start of a call is read-only unless a grant names it. What a call has created is reported: in its result, in
the audit log and by the next `toolcrib trust`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import NamedTuple

from toolcrib.errors import PermissionDenied, ToolUnavailable
from toolcrib.sandbox.files.named import NameSearch
from toolcrib.sandbox.files.paths import Paths, within
from toolcrib.spec import Tool
from toolcrib.spec.naming import HOMES
from toolcrib.spec.record import record
from toolcrib.state.private import make_private

STARTUP: Mapping[str, str] = {
    ".claude": "Claude Code",
    ".cursor": "Cursor",
    ".envrc": "direnv",
    ".git": "git",
    ".github": "GitHub",
    ".gitlab-ci.yml": "GitLab",
    ".husky": "husky",
    ".idea": "IDEs of JetBrains",
    ".mcp.json": "MCP clients",
    ".pre-commit-config.yaml": "pre-commit",
    ".vscode": "VS Code",
    "AGENTS.md": "coding agents",
    "CLAUDE.md": "Claude Code",
}
"""The name of each file or folder, in whatever folder it is, and a program that does what it says."""
_SKIPPED = (*HOMES, "node_modules", "site-packages")
"""Installed packages bring such files too, which no program of the user takes for its own."""
_SEARCH = NameSearch(STARTUP, _SKIPPED)


def startup_files(folders: Iterable[str], paths: Paths | None = None) -> tuple[str, ...]:
    """Return what exists of them below these folders, given as real paths."""
    search = _SEARCH.below if paths is None else partial(paths.search, _SEARCH)
    return tuple(dict.fromkeys(path for folder in folders for path in search(folder)))


def startup_place(path: str, folder: str) -> str | None:
    """Return the file or folder of such a name that a path is, or is in, from `folder` down."""
    here = folder if within(path, folder) else ""
    for part in path[len(here) :].strip("/").split("/"):
        here = f"{here}/{part}"
        if part in STARTUP:
            return here
        if part in _SKIPPED:
            break
    return None


def startup_use(path: str) -> str:
    """Return what to do about one that a call has created."""
    program = STARTUP.get(path.rpartition("/")[2])
    return "check it before you use it" + ("" if program is None else f": {program} may do what it says")


def startup_warning(path: str) -> str:
    """Return the warning about one that a call has created."""
    return f"{path} was created while the tool ran: {startup_use(path)}"


KERNEL = ("/proc", "/sys", "/dev")
"""Never granted: they show other processes, also ours."""
SECRET_FILES = (".env",)
STATE = "state.db"
LOCK = "toolcrib.lock"
GIT_SETTINGS = ("config", "config.worktree", "commondir", "hooks", "modules", "worktrees")


class ClosedFolder(NamedTuple):
    """A folder, as a real path, whose files take effect by being there: no tool may add one."""

    folder: str
    why: str
    """The purpose of the files, in words that follow "may write X, and"."""
    deep: bool = True
    """True if the same applies to the folders in it."""


@record
class ClosedPlaces:
    """Places closed by the settings, the tools and this process, beside those that always are."""

    programs: Callable[[tuple[str, ...]], Iterable[str]] = lambda _: ()
    """Returns the project's programs in these folders that a tool may write: entrypoints and virtual
    environments, as written and as real paths. No tool may write them, or replace a link on the way."""
    folders: tuple[ClosedFolder, ...] = ()
    """Folders of which each file is run or read as a definition, whatever its name."""
    secret: tuple[str, ...] = ()
    """Further files and folders with secrets, as absolute paths. No tool may see them."""
    private: tuple[str, ...] = ()
    """The user's own places, with decisions about projects and the cache: no tool may see or create them."""
    own: tuple[str, ...] = ()
    """The files that this process itself runs from: no tool may write them."""
    writable: tuple[str, ...] = ()
    """Folders outside the project that some tool may write, as real paths."""


def hidden_places(root: str, home: str) -> tuple[str, ...]:
    """Return the files and folders of a project that no tool may read."""
    return (
        *(f"{root}/{name}" for name in SECRET_FILES),
        *(f"{home}/{STATE}{suffix}" for suffix in ("", "-wal", "-shm", "-journal")),
        # A tool that could open the audit log could lock it, and all other calls would wait.
        f"{home}/audit",
    )


TrustedGrants = frozenset[tuple[str, str]]
"""The grants of a trusted tool: `read/PATH` or `write/PATH`, as written, and the real path it had then."""


@record
class FileGrants:
    """The files that one tool may read and write, as real paths, and what stays closed inside them."""

    read: tuple[str, ...] = ()
    """`permissions.fs.read` in its order, and last the tool's own folder."""
    write: tuple[str, ...] = ()
    """`permissions.fs.write` in its order."""
    protect: tuple[str, ...] = ()
    scratch: tuple[str, ...] = ()
    """Grants that stay writable though they are in something protected."""
    hide: tuple[str, ...] = ()
    links: tuple[tuple[str, str], ...] = ()
    """The symbolic links on the way to the granted paths as written in the manifest, and their targets."""

    def cover(self, path: str) -> bool:
        """Return True if a real path is in a readable or writable grant."""
        return within(path, *self.read, *self.write)


def never_trusted(tool: Tool) -> TrustedGrants | None:  # noqa: ARG001
    """Return None: outside of a project nobody is asked to trust tools."""
    return None


class ProjectFiles:
    """The files of a project as one call sees them.

    Each path is looked at once. So a folder that another tool swaps for a link in the meantime cannot be one
    thing when it is checked and another when it is used. `trusted` returns the grants of a tool that a
    person was shown; None if nobody has trusted the tool.
    """

    def __init__(
        self,
        root: str,
        home: str,
        closed: ClosedPlaces,
        paths: Paths,
        trusted: Callable[[Tool], TrustedGrants | None],
    ) -> None:
        self.root = root
        self.home = home
        self.paths = paths
        self._closed = closed
        self._trusted = trusted

    @property
    def scratch(self) -> str:
        """The one folder in the home folder that may be granted for writing."""
        return f"{self.home}/scratch"

    def resolve(self, path: str) -> str:
        """Return the real path of one written in a manifest; relative ones start at the project root."""
        return self.paths.real(self._written(path))

    def inside(self, path: str) -> bool:
        """Return False if a manifest's path is written as in the project, but leads out of it by a link."""
        lexical = os.path.normpath(self._written(path))
        return not within(lexical, self.root) or within(self.resolve(path), self.root)

    def folder(self, tool: Tool) -> str | None:
        """Return the tool's own folder, beside its manifest."""
        if tool.source is None or tool.source.shared:
            return None
        return self.paths.real(os.path.dirname(os.path.abspath(tool.source.path)))

    def _written(self, path: str) -> str:
        return os.path.join(self.root, path)

    def grants(self, tool: Tool) -> FileGrants:
        """Return the tool's permissions as real paths.

        Raises:
            ToolUnavailable: a granted path does not exist.
            PermissionDenied: a granted path is the kernel's or the root folder, is not the trusted one, or
                depends on a symbolic link: one that leads out of the project, or one that a tool could have
                made and nobody has trusted.
        """
        permissions = tool.permissions
        trusted = self._trusted(tool)
        read = tuple(self._granted(tool, "read", path, trusted) for path in permissions.read)
        write = tuple(self._granted(tool, "write", path, trusted) for path in permissions.write)
        self._make_private(write)
        own = self.folder(tool)
        # A toolset without a project has no home folder.
        scratched = self.paths.is_folder(self.home) and within(self.scratch, *write)
        if scratched:
            self._make_scratch()
        inside = (grant for grant in write if within(grant, self.scratch) or self._names_startup(grant))
        scratch = tuple(dict.fromkeys((*([self.scratch] if scratched else []), *inside)))
        startup = startup_files((grant for grant in write if grant not in scratch), self.paths)
        written = (self._written(path) for path in (*permissions.read, *permissions.write))
        return FileGrants(
            read=(*read, *([own] if own is not None else [])),
            write=write,
            protect=self._protected(tool, write, startup),
            scratch=scratch,
            hide=(*hidden_places(self.root, self.home), *self._closed.secret, *self._closed.private),
            links=links_on(written, self.paths),
        )

    def _granted(self, tool: Tool, access: str, written: str, trusted: TrustedGrants | None) -> str:
        """Return the real path of one permission, or raise why it cannot be granted."""
        # It is made on demand; everywhere else a missing grant is an error.
        if os.path.normpath(self._written(written)) == self.scratch:
            self._make_scratch()
        path = self.resolve(written)
        where = "`roots` in config.yml" if tool.is_builtin else f"permissions.fs.{access} in the manifest"
        private = next((folder for folder in self._closed.private if within(path, folder)), None)
        pinned = trusted is not None and (f"{access}/{written}", path) in trusted
        link = None if pinned else self._unsafe_link(written)
        real = f"To allow it, write its real path, {path}, under {where}"
        why = hint = ""
        if path == "/" or within(path, *KERNEL):
            why, hint = "which no tool may have", f"Name the folders that are needed under {where}."
        elif private is not None:
            why = "where decisions about tools are stored"
            hint = f"No tool may see {private}; remove it from {where}."
        elif not self.inside(written):
            why, hint = "a symbolic link out of the project", f"{real}."
        elif link is not None:
            why = f"which leads to {path} by the symbolic link {link}, and a tool could have made that link"
            hint = f"{real}." if tool.source is None else f"{real}, or run: toolcrib trust {tool.name}"
        elif not pinned and any(name == f"{access}/{written}" for name, _ in trusted or ()):
            why, hint = (
                f"which leads to {path} now, and not where it led when it was trusted",
                "Make the call again.",
            )
        if why:
            raise PermissionDenied(
                f"{tool.name} is granted fs.{access} of {written!r}, {why}",
                hint=hint,
                details={"grant": written, "path": path, **({"link": link} if link else {})},
            )
        if not self.paths.leads_to(path):
            raise ToolUnavailable(
                f"{tool.name} is granted fs.{access} of {written!r}, which does not exist ({path})",
                hint=f"Create it, or remove it from {where}.",
                details={"grant": written, "path": path},
            )
        return path

    def _unsafe_link(self, written: str) -> str | None:
        """Return the first symbolic link on the way to a grant that a tool could have made.

        Links of the home folder are safe, because no tool can write there, and so are links to it.
        """
        folders = (self.root, *self._closed.writable)
        safe = [link for name in HOMES for link in self.paths.links(f"{self.root}/{name}")]
        for link in self.paths.links(self._written(written)):
            at_home = within(link, self.home) and not within(link, self.scratch)
            if within(link, *folders) and not at_home and link not in safe:
                return link
        return None

    def _names_startup(self, grant: str) -> bool:
        """Return True for a grant that names a file that starts other programs, or something in one."""
        place = startup_place(grant, self.root)
        return place is not None and not place.endswith("/.git")

    def _protected(self, tool: Tool, write: tuple[str, ...], startup: tuple[str, ...]) -> tuple[str, ...]:
        """Return what stays read-only whatever is granted. `startup` are files that start other programs."""
        paths, own = self.paths, self.folder(tool)
        found = [
            *(f"{self.root}/{name}" for name in HOMES),
            *(path for folder in write for name in HOMES if paths.exists(path := f"{folder}/{name}")),
            *self._git_places(tool, write, startup),
            *(path for path in startup if not path.endswith("/.git")),
            self.home,
            *self._closed.programs(write),
            *self._closed_places(tool, write),
            *(path for path in self._closed.own if any(within(path, g) or within(g, path) for g in write)),
            f"{self.root}/{LOCK}",
            *([own] if own is not None else []),
        ]
        return tuple(dict.fromkeys(found))

    def _closed_places(self, tool: Tool, write: tuple[str, ...]) -> list[str]:
        """Return the folders that are closed to a tool as a whole.

        A grant inside one is refused, as nothing would be left of it; so is a grant of a folder that contains
        the project, which cannot be closed.
        """
        for one in self._closed.folders:
            whole = within(self.root, one.folder)
            for grant in write:
                inside = within(grant, one.folder) and (one.deep or grant == one.folder)
                if inside or (whole and within(one.folder, grant)):
                    raise PermissionDenied(
                        f"{tool.name} may write {grant}, and {one.why}",
                        hint="Keep that in a folder of its own, and grant the tool other folders under"
                        " permissions.fs.write in the manifest.",
                        details={"path": one.folder},
                    )
        return [one.folder for one in self._closed.folders if not within(self.root, one.folder)]

    def _git_places(self, tool: Tool, write: tuple[str, ...], startup: tuple[str, ...]) -> list[str]:
        """Return what of git's stays read-only: that of the project and of any granted folder.

        That is all of `.git` unless it is granted by name: git runs what its settings and hooks say, and
        finds them in several ways (`commondir`, submodules, worktrees).
        """
        paths, found = self.paths, []
        # A grant inside a `.git` belongs to the repository around it.
        repositories = [f"{grant}/".partition("/.git/")[0].rstrip("/") for grant in write]
        nested = (path.removesuffix("/.git") for path in startup if path.endswith("/.git"))
        for folder in dict.fromkeys((self.root, *repositories, *nested)):
            git = f"{folder}/.git"
            if paths.is_link(git) and folder in (self.root, *repositories) and within(git, *write):
                raise PermissionDenied(
                    f"{tool.name} may write {folder}, where .git is a symbolic link that it could replace",
                    hint="Grant the folders that are needed under permissions.fs.write in the manifest.",
                    details={"path": git},
                )
            if paths.is_folder(git) and any(within(grant, git) for grant in write):
                found += [f"{git}/{name}" for name in GIT_SETTINGS]
            elif folder == self.root or paths.exists(git):
                found.append(git)
        return found

    def _make_private(self, write: tuple[str, ...]) -> None:
        """Create the user's own folders where a tool could create them: only what exists can be hidden."""
        for folder in self._closed.private:
            if os.path.lexists(folder) or not within(folder, *write):
                continue
            try:
                make_private(Path(folder))
            except OSError as error:
                raise PermissionDenied(
                    f"a tool could create {folder}, which decides what tools may do: {error.strerror}",
                    hint="Create it yourself, or choose another one with TOOLCRIB_DATA, TOOLCRIB_CACHE or"
                    " TOOLCRIB_CONFIG.",
                    details={"path": folder},
                ) from None
            self.paths.exists(folder)  # A noted look: if the folder is removed, this is done again.

    def _make_scratch(self) -> None:
        details = {"path": self.scratch}
        try:
            Path(self.scratch).mkdir(exist_ok=True)
        except OSError as error:
            message = f"the folder {self.scratch} cannot be created: {error.strerror}"
            raise ToolUnavailable(message, details=details) from None
        if self.paths.real(self.scratch) != self.scratch:
            raise PermissionDenied(
                f"{self.scratch} is a symbolic link", hint="Make it a real folder.", details=details
            )


def links_on(written: Iterable[str | os.PathLike[str]], paths: Paths) -> tuple[tuple[str, str], ...]:
    """Return every symbolic link on the way to these absolute paths, with its target."""
    found: dict[str, str] = {}
    for path in written:
        found |= paths.links(os.fspath(path))
    return tuple(found.items())
