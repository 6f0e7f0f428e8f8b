"""The files of a project that a manifest tool may use: grants as real paths, and what no grant opens."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol

from toolcrib.errors import PermissionDenied, ToolUnavailable
from toolcrib.executors.workspace.network import CallNetwork
from toolcrib.sandbox import Confinement
from toolcrib.sandbox.files.paths import Paths
from toolcrib.spec import CallContext, Level, Tool

if TYPE_CHECKING:
    from toolcrib.egress import Resolver

__all__ = ["BASE_ENVIRONMENT", "Closed", "FileGrants", "Observer", "Workspace", "links_on", "within"]

SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
BASE_ENVIRONMENT = {"PATH": SYSTEM_PATH, "HOME": "/tmp", "LANG": "C.UTF-8", "TMPDIR": "/tmp"}  # noqa: S108
"""The environment that every confined tool starts from; `/tmp` is its own."""
KERNEL = ("/proc", "/sys", "/dev")
"""Never granted: they show other processes, also ours."""
HOMES = (".toolcrib", ".glee")
SECRET_FILES = (".env",)
STATE = "state.db"
LOCK = "toolcrib.lock"
GIT_SETTINGS = ("config", "config.worktree", "commondir", "hooks", "modules", "worktrees")


@dataclass(frozen=True, slots=True)
class FileGrants:
    """The files that one tool may read and write, as real paths, and what stays closed inside them."""

    read: tuple[str, ...] = ()
    write: tuple[str, ...] = ()
    protect: tuple[str, ...] = ()
    scratch: tuple[str, ...] = ()
    hide: tuple[str, ...] = ()
    links: tuple[tuple[str, str], ...] = ()
    """The symbolic links on the way to the granted paths as written in the manifest, and their targets."""

    def cover(self, path: str) -> bool:
        """Return True if a real path is in a readable or writable grant."""
        return any(within(path, grant) for grant in (*self.read, *self.write))


def within(path: str, folder: str) -> bool:
    """Return True if a real path is the folder or lies below it."""
    return path == folder or path.startswith(folder.rstrip("/") + "/")


class Closed(NamedTuple):
    """A folder, as a real path, whose files take effect by being there: no tool may add one."""

    folder: str
    why: str
    """The purpose of the files, in words that follow "may write X, and"."""
    deep: bool = True
    """True if the same applies to the folders in it."""


class Observer(Protocol):
    """Records what a tool uses, for `toolcrib trace`."""

    def over(self, workspace: Workspace, tool: Tool, job: Confinement) -> Confinement:
        """Return the same job, watched."""

    def touch(self, workspace: Workspace, tool: Tool, access: Literal["read", "write"], path: str) -> None:
        """Note a file that Toolcrib itself opens for a tool."""

    def tell(self, told: Any) -> None:
        """Note the report of a Python tool's own interpreter."""

    def record_host(self, host: str, port: int | None, granted: bool) -> None:
        """Note a host that the tool asked for, and whether it was allowed."""


@dataclass(frozen=True, slots=True)
class Workspace:
    """A project as its tools see it. `root` and `home` (`.toolcrib` or `.glee`) are real paths."""

    root: str
    home: str
    programs: tuple[str, ...] = ()
    """The project's programs: entrypoints and virtual environments, as written and as real paths. No
    tool may write them, or replace a link on the way to them."""
    closed: tuple[Closed, ...] = ()
    """Folders of which each file is run or read as a definition, whatever its name."""
    allowed_hosts: tuple[str, ...] | None = None
    """The only hosts that any tool of the project may reach; None if the project sets no such list."""
    resolver: Resolver | None = None
    """Resolves host names for the tools; None: as this machine does."""
    minimum: Level = "full"
    """The lowest sandbox level that the tools may run at."""
    advice: str = ""
    """The hint for a tool that is refused because of that."""
    secret: tuple[str, ...] = ()
    """Further files and folders with secrets, as absolute paths. No tool may see them."""
    private: tuple[str, ...] = ()
    """The user's own places, with decisions about projects and the cache: no tool may see or create them."""
    own: tuple[str, ...] = ()
    """The files that this process itself runs from: no tool may write them."""
    watch: Observer | None = None
    """Records what the tools use, if anything does."""
    noted: Paths | None = None
    """Notes each look at a path, for whoever keeps what follows from them."""

    @property
    def paths(self) -> Paths:
        """The looks at paths: noted ones, or else new ones each time."""
        return self.noted or Paths()

    def noting(self, paths: Paths) -> Workspace:
        """Return the same workspace with its looks noted in `paths`."""
        return replace(self, noted=paths)

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
        return self.paths.real(os.path.dirname(os.path.abspath(tool.source.path)))  # noqa: PTH100, PTH120

    def _written(self, path: str) -> str:
        return os.path.join(self.root, path)  # noqa: PTH118 - a Path would take a tenth of a call

    # Files

    def grants(self, tool: Tool) -> FileGrants:
        """Return the tool's permissions as real paths.

        Raises:
            ToolUnavailable: a granted path does not exist.
            PermissionDenied: a granted path is the kernel's or the root folder, or a symbolic link takes it
                out of the project.
        """
        permissions = tool.permissions
        read = tuple(self._granted(tool, "read", path) for path in permissions.read)
        write = tuple(self._granted(tool, "write", path) for path in permissions.write)
        self._make_private(write)
        own = self.folder(tool)
        scratch = (self.scratch,) if any(within(self.scratch, grant) for grant in write) else ()
        if scratch:
            self._make_scratch()
        written = (self._written(path) for path in (*permissions.read, *permissions.write))
        return FileGrants(
            read=(*read, *([own] if own is not None else [])),
            write=write,
            protect=self._protected(tool, write),
            scratch=scratch or tuple(grant for grant in write if within(grant, self.scratch)),
            hide=(
                *(f"{self.root}/{name}" for name in SECRET_FILES),
                *self.secret,
                *self.private,
                *(f"{self.home}/{STATE}{suffix}" for suffix in ("", "-wal", "-shm", "-journal")),
                # A tool that could open the audit log could lock it, and all other calls would wait.
                f"{self.home}/audit",
            ),
            links=links_on(written, self.paths),
        )

    def _granted(self, tool: Tool, access: str, written: str) -> str:
        """Return the real path of one permission, or raise why it cannot be granted."""
        if os.path.normpath(self._written(written)) == self.scratch:
            self._make_scratch()
        path = self.resolve(written)
        details = {"grant": written, "path": path}
        where = f"permissions.fs.{access} in the manifest"
        private = next((folder for folder in self.private if within(path, folder)), None)
        why = hint = ""
        if path == "/" or any(within(path, folder) for folder in KERNEL):
            why, hint = "which no tool may have", f"Name the folders that are needed under {where}."
        elif private is not None:
            why = "where decisions about tools are stored"
            hint = f"No tool may see {private}; remove it from {where}."
        elif not self.inside(written):
            why = "a symbolic link out of the project"
            hint = f"To allow it, write its real path, {path}, under {where}."
        if why:
            raise PermissionDenied(
                f"{tool.name} is granted fs.{access} of {written!r}, {why}", hint=hint, details=details
            )
        if not self.paths.leads_to(path):
            raise ToolUnavailable(
                f"{tool.name} is granted fs.{access} of {written!r}, which does not exist ({path})",
                hint=f"Create it, or remove it from {where}.",
                details=details,
            )
        return path

    def _protected(self, tool: Tool, write: tuple[str, ...]) -> tuple[str, ...]:
        """Return what stays read-only whatever is granted."""
        paths, lock, own = self.paths, f"{self.root}/{LOCK}", self.folder(tool)
        found = [
            *(f"{self.root}/{name}" for name in HOMES),
            *(path for folder in write for name in HOMES if paths.exists(path := f"{folder}/{name}")),
            *self._git_places(tool, write),
            self.home,
            *self.programs,
            *self._closed_places(tool, write),
            *(path for path in self.own if any(within(path, g) or within(g, path) for g in write)),
            *([lock] if paths.exists(lock) else []),
            *([own] if own is not None else []),
        ]
        return tuple(dict.fromkeys(found))

    def _closed_places(self, tool: Tool, write: tuple[str, ...]) -> list[str]:
        """Return the folders that are closed to a tool as a whole.

        A grant inside one is refused, as nothing would be left of it; so is a grant of a folder that contains
        the project, which cannot be closed.
        """
        for one in self.closed:
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
        return [one.folder for one in self.closed if not within(self.root, one.folder)]

    def _git_places(self, tool: Tool, write: tuple[str, ...]) -> list[str]:
        """Return what of git's stays read-only: the project's, and that of any granted folder.

        That is all of `.git` unless it is granted by name: git runs what its settings and hooks say, and
        finds them in several ways (`commondir`, submodules, worktrees).
        """
        paths, found = self.paths, []
        # A grant inside a `.git` belongs to the repository around it.
        repositories = (f"{grant}/".partition("/.git/")[0].rstrip("/") for grant in write)
        for folder in dict.fromkeys((self.root, *repositories)):
            git = f"{folder}/.git"
            if paths.is_link(git) and any(within(git, grant) for grant in write):
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
        for folder in self.private:
            if os.path.lexists(folder) or not any(within(folder, grant) for grant in write):
                continue
            try:
                Path(folder).mkdir(mode=0o700, parents=True, exist_ok=True)
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

    # Calls

    def network(self, tool: Tool) -> CallNetwork:
        """Return the tool's network permission, for one call.

        Raises:
            PermissionDenied: the project's list of hosts cannot be enforced with it.
            ManifestError: an entry of the list is no host.
        """
        record = None if self.watch is None else self.watch.record_host
        return CallNetwork(tool, allowed_hosts=self.allowed_hosts, resolver=self.resolver, tell=record)

    def confine(
        self, tool: Tool, argv: tuple[str, ...], cwd: str, env: dict[str, str], ctx: CallContext, **more: Any
    ) -> Confinement:
        """Return the job for the sandbox. `cwd` is as written; `more` are further fields of `Confinement`.

        `read` and `links` in `more` are added to the tool's grants; `network` must be in `more`.
        """
        job = self.tool_job(tool, cwd, read=more.pop("read", ()), links=more.pop("links", ()))
        return self.call_job(job, tool, env, ctx, argv=argv, **more)

    def call_job(
        self, job: Confinement, tool: Tool, env: dict[str, str], ctx: CallContext, **more: Any
    ) -> Confinement:
        """Return the job of one call. `job` is the tool's; `more` are further fields of `Confinement`."""
        env = {**BASE_ENVIRONMENT, **env, **ctx.secrets}
        job = replace(job, env=env, timeout_ms=max(1, int(ctx.remaining * 1000)), **more)
        return job if self.watch is None else self.watch.over(self, tool, job)

    def tool_job(
        self, tool: Tool, cwd: str, *, read: tuple[str, ...], links: tuple[tuple[str, str], ...]
    ) -> Confinement:
        """Return what all jobs of a tool share: it follows from the manifest and from the paths in it.

        Arguments:
            cwd: the working folder as written.
            read, links: added to the tool's grants.
        """
        folder = self.resolve(cwd)
        if not self.paths.is_folder(folder):
            raise ToolUnavailable(
                f"the working folder {cwd!r} of {tool.name} "
                f"{'is not a folder' if self.paths.leads_to(folder) else 'does not exist'} ({folder})",
                hint="Create it, or fix `cwd` in the manifest.",
                details={"path": folder},
            )
        grants, limits = self.grants(tool), tool.limits
        stated: dict[str, Any] = {
            "memory_bytes": limits.memory_bytes,
            "processes": limits.processes,
            "cpu_s": None if limits.cpu_ms is None else -(-limits.cpu_ms // 1000),
            "file_size": limits.file_bytes,
            "open_files": limits.open_files,
        }
        return Confinement(
            argv=(),
            cwd=folder,
            read=(*grants.read, *read),
            write=grants.write,
            protect=grants.protect,
            scratch=grants.scratch,
            hide=grants.hide,
            links=tuple(dict.fromkeys((*grants.links, *links))),
            empty=() if grants.cover(folder) else (folder,),
            minimum=self.minimum,
            advice=self.advice,
            **{name: value for name, value in stated.items() if value is not None},
        )


def links_on(
    written: Iterable[str | os.PathLike[str]], paths: Paths | None = None
) -> tuple[tuple[str, str], ...]:
    """Return every symbolic link on the way to these absolute paths, with its target."""
    paths, found = paths or Paths(), dict[str, str]()
    for path in written:
        found |= paths.links(os.fspath(path))
    return tuple(found.items())
