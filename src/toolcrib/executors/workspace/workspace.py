"""What a manifest tool may touch in its project: grants as real paths, and what no grant opens."""

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

__all__ = ["Closed", "Grants", "Observer", "Workspace", "base_environment", "within"]

SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
KERNEL = ("/proc", "/sys", "/dev")
"""Never granted: they show other processes, ours among them."""
HOMES = (".toolcrib", ".glee")
SECRET_FILES = (".env",)
STATE = "state.db"
LOCK = "toolcrib.lock"
GIT_SETTINGS = ("config", "config.worktree", "commondir", "hooks", "modules", "worktrees")


@dataclass(frozen=True, slots=True)
class Grants:
    """Real paths: readable, writable, and what stays closed inside them."""

    read: tuple[str, ...] = ()
    write: tuple[str, ...] = ()
    protect: tuple[str, ...] = ()
    scratch: tuple[str, ...] = ()
    hide: tuple[str, ...] = ()
    links: tuple[tuple[str, str], ...] = ()
    """Symbolic links by which the granted paths are written in the manifest, and what they say."""

    def cover(self, path: str) -> bool:
        """Whether a real path lies in a readable or writable grant."""
        return any(within(path, grant) for grant in (*self.read, *self.write))


def within(path: str, folder: str) -> bool:
    """Whether a real path is the folder or lies below it."""
    return path == folder or path.startswith(folder.rstrip("/") + "/")


def _repository(grant: str) -> str:
    """The folder that has the `.git` which a real path lies in; else the path itself, which may have one."""
    head, inside, _ = f"{grant}/".partition("/.git/")
    return head if inside else grant


class Closed(NamedTuple):
    """A folder, as real path, in which a file counts by being there: no tool may make one."""

    folder: str
    why: str
    """What it is for, in words that follow "may write X, and"."""
    deep: bool = True
    """Whether that goes for the folders in it as well."""


class Observer(Protocol):
    """Who is told what a tool uses."""

    def over(self, workspace: Workspace, tool: Tool, job: Confinement) -> Confinement:
        """The same job, watched."""

    def touch(self, workspace: Workspace, tool: Tool, access: Literal["read", "write"], path: str) -> None:
        """Note a file that Toolcrib itself opens for a tool."""

    def tell(self, told: Any) -> None:
        """Take in what a Python tool's own interpreter noticed."""

    def denied(self, path: str, access: Literal["read", "write"]) -> None:
        """Note a path that the tool's own failure says it was kept from."""

    def record_host(self, host: str, port: int | None, granted: bool) -> None:
        """Note a host that the tool asked for, and whether it was let there."""


@dataclass(frozen=True, slots=True)
class Workspace:
    """A project as its tools see it. `root` and `home` (`.toolcrib` or `.glee`) are real paths."""

    root: str
    home: str
    programs: tuple[str, ...] = ()
    """What the project's tools run: entrypoints and virtual environments, as written and as real paths. No
    tool may write them, or replace a link on the way to them."""
    closed: tuple[Closed, ...] = ()
    """Folders of which each file is run or read as a definition, whatever its name."""
    allowed_hosts: tuple[str, ...] | None = None
    """The hosts that the project's tools may reach at most; None leaves each tool its own permission."""
    resolver: Resolver | None = None
    """Turns names into addresses for its tools; None: the machine's own."""
    minimum: Level = "full"
    """The weakest level of the sandbox that they may be run at."""
    advice: str = ""
    """What to tell whoever is refused because of that."""
    secret: tuple[str, ...] = ()
    """Further files and folders that hold secrets, as absolute paths. No tool may see them."""
    private: tuple[str, ...] = ()
    """The user's own folders, where decisions about projects are kept and what was read of them: no tool may
    see or make them."""
    own: tuple[str, ...] = ()
    """What this process itself runs from: no tool may write it."""
    watch: Observer | None = None
    """Who is told what the tools use, if anybody."""
    noted: Paths | None = None
    """Where looks at paths are noted, if anybody keeps what was worked out from them."""

    @property
    def paths(self) -> Paths:
        """What to look at paths with."""
        return self.noted or Paths()

    def noting(self, paths: Paths) -> Workspace:
        """The same, its looks noted."""
        return replace(self, noted=paths)

    @property
    def scratch(self) -> str:
        """The one folder in the home folder that tools may be granted for writing."""
        return f"{self.home}/scratch"

    def resolve(self, path: str) -> str:
        """The real path of one written in a manifest: relative ones start at the project root."""
        return self.paths.real(self._written(path))

    def folder(self, tool: Tool) -> str | None:
        """The tool's own folder, beside its manifest."""
        if tool.source is None or tool.source.shared:
            return None
        return self.paths.real(os.path.dirname(os.path.abspath(tool.source.path)))  # noqa: PTH100, PTH120

    def grants(self, tool: Tool) -> Grants:
        """The tool's permissions as real paths.

        Raises:
            ToolUnavailable: a granted path does not exist.
            PermissionDenied: a granted path is the kernel's or the root folder, or a symbolic link takes it
                out of the project.
        """
        permissions = tool.permissions
        read = tuple(self._granted(tool, "read", path) for path in permissions.read)
        write = tuple(self._granted(tool, "write", path) for path in permissions.write)
        self._close_private(write)
        own = self.folder(tool)
        home = tuple(f"{self.home}/{STATE}{suffix}" for suffix in ("", "-wal", "-shm", "-journal"))
        return Grants(
            read=read + ((own,) if own is not None else ()),
            write=write,
            protect=self.protected(tool, write),
            scratch=self._scratch(write),
            # The audit log as well: whoever can open it can lock it, and all other calls would wait.
            hide=(
                *(f"{self.root}/{name}" for name in SECRET_FILES),
                *self.secret,
                *self.private,
                *home,
                f"{self.home}/audit",
            ),
            links=links_on(
                (self._written(path) for path in (*permissions.read, *permissions.write)), self.paths
            ),
        )

    def protected(self, tool: Tool, write: tuple[str, ...] = ()) -> tuple[str, ...]:
        """What stays read-only whatever is granted.

        `.git` as a whole, unless it is granted by name: git runs what its settings and hooks say, and finds
        them by several ways (`commondir`, submodules, worktrees).
        """
        own = self.folder(tool)
        lock = f"{self.root}/{LOCK}"
        locked = (lock,) if self.paths.exists(lock) else ()
        ours = [path for path in self.own if any(within(path, g) or within(g, path) for g in write)]
        git = self._git_places(tool, write)
        homes = [f"{self.root}/{name}" for name in HOMES]
        others = [path for folder in write for name in HOMES if self.paths.exists(path := f"{folder}/{name}")]
        closed = self._closed_places(tool, write)
        found = [*homes, *others, *git, self.home, *self.programs, *closed, *ours, *locked]
        return tuple(dict.fromkeys([*found, own] if own is not None else found))

    def _closed_places(self, tool: Tool, write: tuple[str, ...]) -> list[str]:
        """The folders to close to a tool as a whole.

        A grant of a place in one is refused, as nothing would be left of it; so is one of a folder that holds
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
        """What of git's stays read-only: the project's, and that of any folder that is granted."""
        paths, found = self.paths, []
        for folder in dict.fromkeys((self.root, *map(_repository, write))):
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

    def inside(self, path: str) -> bool:
        """Whether a path of a manifest stays in the project, links followed, if it is written as in it."""
        lexical = os.path.normpath(self._written(path))
        return not within(lexical, self.root) or within(self.resolve(path), self.root)

    def _written(self, path: str) -> str:
        return os.path.join(self.root, path)  # noqa: PTH118 - of Path it would take a tenth of a call

    def _close_private(self, write: tuple[str, ...]) -> None:
        """See that the user's own folders are there where a tool could make them, or they are not hidden."""
        for folder in self.private:
            if not any(within(folder, grant) for grant in write):
                continue
            try:
                Path(folder).mkdir(mode=0o700, parents=True, exist_ok=True)
            except OSError as error:
                raise PermissionDenied(
                    f"{folder} could be made by a tool, and decides what tools may do: {error.strerror}",
                    hint="Make it yourself, or name another one: TOOLCRIB_DATA, TOOLCRIB_CACHE.",
                    details={"path": folder},
                ) from None
            self.paths.exists(folder)  # noted: where it goes, this is done again

    def _scratch(self, write: tuple[str, ...]) -> tuple[str, ...]:
        if any(within(self.scratch, grant) for grant in write):
            self._make_scratch()
            return (self.scratch,)
        return tuple(grant for grant in write if within(grant, self.scratch))

    def _make_scratch(self) -> None:
        try:
            Path(self.scratch).mkdir(exist_ok=True)
        except OSError as error:
            raise ToolUnavailable(
                f"the folder {self.scratch} cannot be made: {error.strerror}", details={"path": self.scratch}
            ) from None
        if self.paths.real(self.scratch) != self.scratch:
            raise PermissionDenied(
                f"{self.scratch} is a symbolic link",
                hint="Make it a real folder.",
                details={"path": self.scratch},
            )

    def _granted(self, tool: Tool, access: str, written: str) -> str:
        if os.path.normpath(self._written(written)) == self.scratch:
            self._make_scratch()
        path = self.resolve(written)
        details = {"grant": written, "path": path}
        where = f"permissions.fs.{access} in the manifest"
        if path == "/" or any(within(path, folder) for folder in KERNEL):
            raise PermissionDenied(
                f"{tool.name} is granted fs.{access} of {written!r}, which no tool may have",
                hint=f"Name the folders that are needed under {where}.",
                details=details,
            )
        closed = next((folder for folder in self.private if within(path, folder)), None)
        if closed is not None:
            raise PermissionDenied(
                f"{tool.name} is granted fs.{access} of {written!r}, where decisions about tools are kept",
                hint=f"No tool may see {closed}; take it out of {where}.",
                details=details,
            )
        if not self.inside(written):
            raise PermissionDenied(
                f"{tool.name} is granted fs.{access} of {written!r}, a symbolic link out of the project",
                hint=f"If that is meant, write its real path, {path}, under {where}.",
                details=details,
            )
        if not self.paths.leads_to(path):
            raise ToolUnavailable(
                f"{tool.name} is granted fs.{access} of {written!r}, which does not exist ({path})",
                hint=f"Create it, or take it out of {where}.",
                details=details,
            )
        return path

    def network(self, tool: Tool) -> CallNetwork:
        """The tool's network permission, for one call.

        Raises:
            PermissionDenied: the project's list of hosts cannot be held with it.
            ManifestError: an entry of the list is no host.
        """
        tell = None if self.watch is None else self.watch.record_host
        return CallNetwork(tool, allowed_hosts=self.allowed_hosts, resolver=self.resolver, tell=tell)

    def confine(
        self, tool: Tool, argv: tuple[str, ...], cwd: str, env: dict[str, str], ctx: CallContext, **more: Any
    ) -> Confinement:
        """The job for the sandbox. `cwd` is as written; `more` are further fields of `Confinement`.

        What `more` says of `read` and `links` comes on top of the tool's grants; `network` is in `more`.
        """
        ground = self.ground(tool, cwd, read=more.pop("read", ()), links=more.pop("links", ()))
        return self.confine_on(ground, tool, env, ctx, argv=argv, **more)

    def confine_on(
        self, ground: Confinement, tool: Tool, env: dict[str, str], ctx: CallContext, **more: Any
    ) -> Confinement:
        """The job of one call; `more` are further fields of `Confinement`."""
        env = {**base_environment(), **env, **ctx.secrets}
        job = replace(ground, env=env, timeout_ms=max(1, int(ctx.remaining * 1000)), **more)
        return job if self.watch is None else self.watch.over(self, tool, job)

    def ground(
        self, tool: Tool, cwd: str, *, read: tuple[str, ...], links: tuple[tuple[str, str], ...]
    ) -> Confinement:
        """What all jobs of a tool have in common, but for its network: it follows from manifest and paths.

        Arguments:
            cwd: the working folder as written.
            read, links: on top of the tool's grants.
        """
        folder = self.resolve(cwd)
        if not self.paths.is_folder(folder):
            raise ToolUnavailable(
                f"the working folder {cwd!r} of {tool.name} "
                f"{'is not a folder' if self.paths.leads_to(folder) else 'does not exist'} ({folder})",
                hint="Create it, or mend `cwd` in the manifest.",
                details={"path": folder},
            )
        grants = self.grants(tool)
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
            **bounds(tool),
        )


def bounds(tool: Tool) -> dict[str, Any]:
    """The limits that the tool states, as the sandbox takes them; it refuses what it cannot hold."""
    limits = tool.limits
    found = {
        "memory_bytes": limits.memory_bytes,
        "processes": limits.processes,
        "cpu_s": None if limits.cpu_ms is None else -(-limits.cpu_ms // 1000),
        "file_size": limits.file_bytes,
        "open_files": limits.open_files,
    }
    return {name: value for name, value in found.items() if value is not None}


def links_on(
    written: Iterable[str | os.PathLike[str]], paths: Paths | None = None
) -> tuple[tuple[str, str], ...]:
    """Every symbolic link on the way to these absolute paths, with what it says."""
    paths = paths or Paths()
    found: dict[str, str] = {}
    for path in written:
        found |= paths.links(os.fspath(path))
    return tuple(found.items())


def base_environment() -> dict[str, str]:
    """The environment every confined tool starts from; nothing of ours is inherited."""
    return {"PATH": SYSTEM_PATH, "HOME": "/tmp", "LANG": "C.UTF-8", "TMPDIR": "/tmp"}  # noqa: S108 - its own /tmp
