"""A project as its tools see it: its files, its network, and the sandbox of each call."""

from __future__ import annotations

import os
import socket
import stat
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import field, replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Literal, Protocol

from toolcrib.errors import (
    HostNotAllowed,
    ManifestError,
    PermissionDenied,
    TimedOut,
    ToolFailed,
    ToolSignal,
    ToolUnavailable,
)
from toolcrib.executors.workspace.grants import (
    ClosedPlaces,
    FileGrants,
    ProjectFiles,
    TrustedGrants,
    links_on,
    never_trusted,
)
from toolcrib.manifest import load
from toolcrib.manifest.code import caches, code_of, code_of_start
from toolcrib.manifest.kinds import Start
from toolcrib.sandbox import Confinement
from toolcrib.sandbox.files.paths import Paths, within
from toolcrib.spec import CallContext, Level, Source, Tool
from toolcrib.spec.naming import printable
from toolcrib.spec.record import record

if TYPE_CHECKING:
    from toolcrib.egress import HostRefusal, Proxy, Resolver
    from toolcrib.sandbox import Outlet

_NEEDS_HOST = (
    "It did not use the proxy that leads to its hosts. If it tried to reach one: a program that speaks"
    " neither HTTP nor SOCKS5 needs `permissions.network: host`."
)
_MOST_REPORTED = 10
"""Refusals reported one by one; there may be a hundred."""


class CallNetwork:
    """The network permission of a tool in one call.

    Arguments:
        allowed_hosts: the only hosts that the project allows, whatever the tool's permission; None for any.
        resolver: turns names into addresses (default: the machine's own).
        on_check: called with host and port of each destination, and whether it is allowed.

    Raises:
        PermissionDenied: the project's list cannot be enforced.
        ManifestError: an entry is not a host.
    """

    def __init__(
        self,
        tool: Tool,
        *,
        allowed_hosts: tuple[str, ...] | None = None,
        resolver: Resolver | None = None,
        on_check: Callable[[str, int, bool], None] | None = None,
    ) -> None:
        self._tool = tool
        self.refused: list[HostRefusal] = []
        """The destinations that it asked for and was refused."""
        self._proxy: Proxy | None = None
        self.job: dict[str, Any] = {}
        """Fields of `Confinement`."""
        network = tool.permissions.network
        if network.mode == "none":
            return
        if network.mode == "host":
            if allowed_hosts is not None:
                raise PermissionDenied(
                    f"{tool.name} asks for the machine's network, but the project allows only some hosts",
                    hint="Name hosts in permissions.network, or remove security.allowed_hosts.",
                )
            self.job = {"network": "host"}
            return
        from toolcrib.egress import Proxy, program_policy

        try:
            policy = replace(program_policy(network, allowed_hosts=allowed_hosts), on_check=on_check)
        except ValueError as error:
            raise ManifestError(f"permissions.network of {tool.name}: {error}") from None

        def outlet(listener: socket.socket) -> Outlet:
            self._proxy = Proxy(listener, policy, on_refusal=self.refused.append, resolver=resolver)
            return self._proxy

        self.job = {"network": "proxy", "outlet": outlet}

    @property
    def is_bypassed(self) -> bool:
        """True if there is a proxy that nothing has used so far."""
        return self._proxy is not None and not self._proxy.used

    @property
    def warnings(self) -> tuple[str, ...]:
        """The hosts that a call which succeeded did not reach."""
        return tuple(f"not reached: {text}" for text in self._texts()) if self.refused else ()

    @contextmanager
    def explained(self, *, hint: bool = False) -> Iterator[None]:
        """Add the refused hosts to a failure of the tool; HostNotAllowed replaces ToolFailed.

        With `hint`, a failure without one points to `toolcrib trace`. The kernel does not report which
        refusal made a program fail, so this cannot be more specific.
        """
        try:
            yield
        except ToolFailed as error:
            if self.refused:
                raise self._host_not_allowed(error) from error
            # Nothing reached the proxy, so the program most likely knows no proxies.
            if self.is_bypassed and error.hint is None:
                error.hint = _NEEDS_HOST
            if hint and error.hint is None and "signal" not in error.details:
                given = " with the same arguments" if self._tool.input_schema.get("properties") else ""
                trace = f"`toolcrib trace {self._tool.name}`{given}"
                error.hint = f"If a permission is missing, {trace} shows which."
            raise
        except TimedOut as error:
            if self.refused:
                error.details["refused"] = self._facts()
                error.hint = "; ".join([*self._texts(), self._how_to_allow()])
            raise
        except ToolSignal as signal:
            if self.refused:
                signal.reason += f" ({'; '.join(self._texts())})"
            raise

    def _host_not_allowed(self, failure: ToolFailed) -> HostNotAllowed:
        facts = self._facts()
        first = {name: facts[0][name] for name in ("host", "port")}
        return HostNotAllowed(
            f"{'; '.join(self._texts())}: {failure.message}",
            hint=self._how_to_allow(),
            details={**failure.details, **first, "refused": facts},
        )

    def _texts(self) -> list[str]:
        texts = list(dict.fromkeys(printable(refusal.reason) for refusal in self.refused))
        more = len(texts) - _MOST_REPORTED
        return texts[:_MOST_REPORTED] + ([f"{more} more refusals"] if more > 0 else [])

    def _facts(self) -> list[dict[str, Any]]:
        return [
            {"host": printable(one.host), "port": one.port, "reason": printable(one.reason)}
            for one in self.refused
        ]

    def _how_to_allow(self) -> str:
        """Return the line of the manifest that would allow the refused hosts."""
        from toolcrib.egress import grant_line

        entries = dict.fromkeys(one.entry for one in self.refused if one.entry is not None)
        if not entries:
            return "no permission of the tool can allow that"
        wanted = dict.fromkeys((*self._tool.permissions.network.allow, *entries))
        return f"to allow it, write in {self._place()}: {grant_line(wanted)}"

    def _place(self) -> str:
        """Return the manifest, and the line in it for the permission."""
        if self._tool.source is None:
            return "the tool's manifest"
        line = manifest_line(self._tool.source, ("permissions", "network"))
        return self._tool.source.path + ("" if line is None else f":{line}")


def manifest_line(source: Source, keys: tuple[str, ...]) -> int | None:
    """Return the line of the nearest of these keys that a manifest has; None if it cannot be read."""
    try:
        return load(source.raw, source.path).locate(keys, key=True)[0]
    except ManifestError:
        return None


SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
BASE_ENVIRONMENT = {"PATH": SYSTEM_PATH, "HOME": "/tmp", "LANG": "C.UTF-8", "TMPDIR": "/tmp"}  # noqa: S108
"""The environment that every confined tool starts from; `/tmp` is its own."""


class Observer(Protocol):
    """Records what a tool uses, for `toolcrib trace`."""

    def over(self, workspace: Workspace, tool: Tool, job: Confinement) -> Confinement:
        """Return the same job, watched."""

    def touch(
        self,
        workspace: Workspace,
        tool: Tool,
        grants: FileGrants,
        access: Literal["read", "write"],
        path: str,
    ) -> None:
        """Note a file that Toolcrib itself opens for a tool."""

    def add_report(self, report: Any) -> None:
        """Note the report of a Python tool's own interpreter."""

    def record_host(self, host: str, port: int | None, granted: bool) -> None:
        """Note a host that the tool asked for, and whether it was allowed."""


@record
class HostLimits:
    """The project's limits for hosts, and how their names are resolved."""

    allowed: tuple[str, ...] | None = None
    """The only hosts that any tool of the project may reach; None if the project sets no such list."""
    resolver: Resolver | None = None
    """Resolves host names for the tools; None: as this machine does."""


@record
class LowestLevel:
    """The lowest sandbox level that tools may run at, and the hint for a tool that it refuses."""

    level: Level = "full"
    advice: str = ""


@record
class Workspace:
    """A project as its tools see it. `root` and `home` (`.toolcrib` or `.glee`) are real paths."""

    root: str
    home: str
    closed: ClosedPlaces = field(default_factory=ClosedPlaces)
    hosts: HostLimits = HostLimits()
    lowest: LowestLevel = LowestLevel()
    trusted: Callable[[Tool], TrustedGrants | None] = never_trusted
    """Returns the grants of a tool that a person was shown; None if nobody has trusted it."""
    watch: Observer | None = None
    """Records what the tools use, if anything does."""

    def files(self, paths: Paths | None = None) -> ProjectFiles:
        """Return the project's files for one call. `paths` keeps each look at a path."""
        return ProjectFiles(self.root, self.home, self.closed, paths or Paths(), self.trusted)

    def network(self, tool: Tool) -> CallNetwork:
        """Return the tool's network permission, for one call.

        Raises:
            PermissionDenied: the project's list of hosts cannot be enforced with it.
            ManifestError: an entry of the list is not a host.
        """
        record = None if self.watch is None else self.watch.record_host
        return CallNetwork(
            tool, allowed_hosts=self.hosts.allowed, resolver=self.hosts.resolver, on_check=record
        )

    def call_job(
        self, job: Confinement, tool: Tool, env: Mapping[str, str], ctx: CallContext, **more: Any
    ) -> Confinement:
        """Return the job of one call. `job` is the tool's; `more` are further fields of `Confinement`."""
        code = getattr(ctx, "code", None)
        if code is not None:
            more["pinned"] = code()
        # Secrets last: nothing that a manifest or a caller sets can replace them.
        env = {**BASE_ENVIRONMENT, **env, **ctx.secrets}
        job = replace(job, env=env, timeout_ms=max(1, int(ctx.remaining * 1000)), **more)
        return job if self.watch is None else self.watch.over(self, tool, job)

    def tool_job(
        self,
        files: ProjectFiles,
        tool: Tool,
        cwd: str,
        *,
        read: tuple[str, ...],
        links: tuple[tuple[str, str], ...],
        start: Start | None = None,
    ) -> Confinement:
        """Return what all jobs of a tool share: it follows from the manifest and from the paths in it.

        Arguments:
            cwd: the working folder as written.
            read, links: added to the tool's grants.
            start: the command line; None for that of the tool's own configuration.
        """
        folder = files.resolve(cwd)
        if not files.paths.is_folder(folder):
            raise ToolUnavailable(
                f"the working folder {cwd!r} of {tool.name} "
                f"{'is not a folder' if files.paths.leads_to(folder) else 'does not exist'} ({folder})",
                hint="Create it, or fix `cwd` in the manifest.",
                details={"path": folder},
            )
        grants, limits, paths = files.grants(tool), tool.limits, files.paths
        if start is None:
            code = code_of(tool, files.root, paths)
        else:
            code = code_of_start(tool.name, start, files.root, tool.permissions.write, paths)
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
            hide=(*grants.hide, *caches(code, paths)),
            links=tuple(dict.fromkeys((*grants.links, *links))),
            empty=() if grants.cover(folder) or within(folder, *read) else (folder,),
            minimum=self.lowest.level,
            advice=self.lowest.advice,
            **{name: value for name, value in stated.items() if value is not None},
        )


def process_job(
    workspace: Workspace,
    tool: Tool,
    argv: tuple[str, ...],
    cwd: str,
    env: Mapping[str, str],
    secrets: Mapping[str, str],
    *,
    read: tuple[str, ...] = (),
    network: CallNetwork | None = None,
    **more: Any,
) -> Confinement:
    """Return the job of a process with the permissions of `tool`; `more` are further fields of it.

    `read` are absolute paths that the program reads because of what it is, beside its permissions; `network`
    is its network permission, if the caller needs it too.

    Raises ToolUnavailable for a missing program, and the errors of the sandbox and the workspace.
    """
    command, *args = argv
    files = workspace.files()
    links = links_on(read, files.paths)
    read = tuple(dict.fromkeys(files.paths.real(path) for path in read))
    if "/" in command:
        written = os.path.join(workspace.root, command)
        real = files.paths.real(written)
        if not stat.S_ISREG(files.paths.leads_to(real)):
            raise ToolUnavailable(
                f"its command {command!r} does not exist ({written})",
                hint="Install it, or correct the command in the settings.",
                details={"path": written},
            )
        # The path is visible as it is written: Python finds its virtual environment by it.
        read, links = (*read, real), (*links, *links_on([written], files.paths))
        command = os.path.normpath(written)
    # In place of a call's context: the process belongs to no call, and nothing limits its time.
    context: Any = SimpleNamespace(secrets=secrets, remaining=86_400.0)
    job = workspace.tool_job(files, tool, cwd, read=read, links=links, start=Start(argv, cwd))
    way = (network or workspace.network(tool)).job
    return workspace.call_job(job, tool, dict(env), context, argv=(command, *args), **{**way, **more})
