"""Work out the sandbox of a command from its job: mounts, limits and filters, but nothing of the call."""

from __future__ import annotations

import os
import resource
from functools import cache
from operator import attrgetter
from typing import Any

from toolcrib.sandbox.files.grants import MountPlan, plan
from toolcrib.sandbox.files.paths import Paths
from toolcrib.sandbox.host.enforcement import process_limit
from toolcrib.sandbox.host.pool import SandboxOrder
from toolcrib.sandbox.job import Confinement, NetworkAccess
from toolcrib.sandbox.kernel import seccomp
from toolcrib.spec import Level
from toolcrib.spec.record import record

LIMITS: dict[str, int] = {
    "cpu_s": resource.RLIMIT_CPU,
    "file_size": resource.RLIMIT_FSIZE,
    "open_files": resource.RLIMIT_NOFILE,
}
EVERY_COMMAND = (
    # 1 and not 0: then the kernel feeds no core dump program either (core(5)).
    (resource.RLIMIT_CORE, 1),
    # Queued signals and timers are counted for each user, so a command gets a part of them.
    (resource.RLIMIT_SIGPENDING, 1_024),
    # The user may be allowed to raise the priority of processes (limits.conf(5)); a command is not.
    (resource.RLIMIT_NICE, 0),
    (resource.RLIMIT_RTPRIO, 0),
)
"""Limits that no job changes."""
MADE_FROM = attrgetter(
    "cwd", "read", "write", "protect", "scratch", "hide", "empty", "links", "pinned", "stays", "tmp_size",
    *LIMITS, "memory_bytes", "processes", "network", "script",
)  # fmt: skip
"""The fields of a job that its sandbox depends on."""
_init_filter = cache(seccomp.init_program)


@record
class CommandOrder:
    """The sandbox of a command at one level, and the paths that it was worked out from."""

    plan: MountPlan
    sandbox: SandboxOrder
    paths: Paths
    sources: tuple[str | None, ...]
    """The path that each mount shows; None for one that shows none."""
    guards: tuple[int, ...] = ()
    """Indexes of the mounts that keep something read-only inside something writable."""


def new_order(job: Confinement, level: Level, paths: Paths) -> CommandOrder:
    """Work out the order for a job, which depends on nothing but it and the paths. Raises as `plan`."""
    mounts = plan(job, paths)
    guards = tuple(n for n, mount in enumerate(mounts.mounts) if mount.mode == "ro?" and not mount.make)
    sources = tuple(
        None
        if mount.mode in ("empty", "symlink") or mount[2:] == ("own", True)
        else mount.source or mount.target
        for mount in mounts.mounts
    )
    paths.identities(sources)  # So that these paths are checked for changes as well.
    return CommandOrder(mounts, sandbox_order(job, mounts, level), paths, sources, guards)


def sandbox_order(job: Confinement, mounts: MountPlan, level: Level) -> SandboxOrder:
    """Put the order together as the launcher reads it."""
    script, watch = job.script, b""
    if job.watch is not None:
        from toolcrib.sandbox.tracing import watched_calls

        watch = watched_calls.program(os.uname().machine)
    processes = process_limit(job.processes, level)
    message: dict[str, Any] = {
        "cwd": job.cwd,
        "limits": (
            *EVERY_COMMAND,
            *((which, getattr(job, name)) for name, which in LIMITS.items()),
            *([(resource.RLIMIT_NPROC, processes)] if processes is not None else []),
        ),
        "links": mounts.links,
        "files": mounts.files,
        "own": mounts.own,
        "mounts": tuple(tuple(mount) for mount in mounts.mounts),
        "tmp_size": job.tmp_size,
        "memory_bytes": job.memory_bytes,
        "processes": job.processes,
        "level": level,
        "network": job.network,
        "init_filter": _init_filter(os.uname().machine),
        "filter": command_filter(job.network, level, refuses_sockets(job)),
        "watch": watch,
    }
    # Everything that the sandbox is made of: a spare made for an equal key differs in nothing.
    key = (script, *message.values(), None if job.watch is None else object())
    message["warm"] = None
    if script is not None:
        message["warm"] = {"script": script.path, "executable": script.executable}
    return SandboxOrder("" if script is None else script.interpreter, message, key)


def refuses_sockets(job: Confinement) -> bool:
    """Return True if the watcher must refuse internet sockets itself, to see which process wanted one."""
    return job.watch is not None and job.network == "none"


@cache
def command_filter(network: NetworkAccess, level: Level, asked: bool) -> bytes:
    """Return the system call filter of every command with this network; narrower without namespaces."""
    private = level == "full"
    return seccomp.program(
        os.uname().machine,
        inet=private and network == "proxy",
        host=network == "host",
        private=private,
        watched_sockets=private and asked,
    )
