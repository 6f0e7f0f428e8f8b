"""What a sandbox is made from, as its launcher is told: nothing of the call itself."""

from __future__ import annotations

import os
import resource
from dataclasses import dataclass
from functools import cache
from operator import attrgetter
from typing import Any

from toolcrib.sandbox.files.grants import Plan, plan
from toolcrib.sandbox.files.paths import Kept, Paths, look
from toolcrib.sandbox.host.handle import Stamps
from toolcrib.sandbox.host.pool import Key
from toolcrib.sandbox.job import Confinement, NetworkAccess
from toolcrib.sandbox.kernel.network import filter_arguments
from toolcrib.spec import Level

__all__ = ["Order", "asked", "order"]

LIMITS: dict[str, int] = {
    "cpu_s": resource.RLIMIT_CPU,
    "file_size": resource.RLIMIT_FSIZE,
    "open_files": resource.RLIMIT_NOFILE,
}
EVERY_COMMAND = (
    # 1 and not 0: the kernel then does not feed a core dump program either (core(5)).
    (resource.RLIMIT_CORE, 1),
    # Queued signals and timers are counted for each user: a part of all he has.
    (resource.RLIMIT_SIGPENDING, 1_024),
)
"""Limits that no job changes."""
MADE_FROM = attrgetter(
    "cwd", "read", "write", "protect", "scratch", "hide", "empty", "links", "tmp_size",
    *LIMITS, "memory_bytes", "processes", "network", "script",
)  # fmt: skip
"""All of a job that its sandbox depends on."""


@dataclass(frozen=True, slots=True)
class Order:
    """What to make for a job at a level, and what the paths in it were found to be."""

    plan: Plan
    job: dict[str, Any]
    """What the launcher is told; never changed."""
    key: Key
    """What two calls must have in common for one to use a spare made for the other."""
    paths: Paths
    guards: tuple[int, ...] = ()
    """Which of the mounts keep something read-only inside of what is writable."""

    def replaced(self, bound: Stamps) -> tuple[str, ...]:
        """Protected places where something else is by now than what was bound there.

        The kernel takes a mount away whose place is renamed over in another namespace, so the command could
        write it from then on.
        """
        found = ((self.plan.mounts[n].target, bound[n]) for n in self.guards)
        now = ((path, was, look(path).identity) for path, was in found if was is not None)
        return tuple(path for path, was, here in now if here is not None and here != was)

    def stamps(self) -> Stamps:
        """Device and inode of what each mount names now."""
        return [
            None if mount.mode == "empty" else self.paths.look(mount.source or mount.target).identity
            for mount in self.plan.mounts
        ]


_orders: Kept[Order] = Kept()


def order(job: Confinement, level: Level) -> Order:
    """The order for a job; one made before, as long as all its paths are what they were.

    Raises:
        What `grants.plan` raises.
    """

    def work(paths: Paths) -> Order:
        return new_order(job, level, paths)

    # What is watched shares with nothing.
    return work(Paths()) if job.watch is not None else _orders.get((level, *MADE_FROM(job)), work)


def new_order(job: Confinement, level: Level, paths: Paths) -> Order:
    """Work it out."""
    mounts = plan(job, paths)
    told = describe(job, mounts, level)
    guards = tuple(n for n, mount in enumerate(mounts.mounts) if mount.mode == "ro?" and not mount.make)
    made = Order(mounts, told, key_of(told, job), paths, guards)
    made.stamps()  # So that these looks are noted as well.
    return made


def describe(job: Confinement, mounts: Plan, level: Level) -> dict[str, Any]:
    """What a sandbox is made from; nothing of the call itself."""
    limits = [*EVERY_COMMAND, *((which, getattr(job, n)) for n, which in LIMITS.items())]
    script = job.script
    return {
        "cwd": job.cwd,
        "limits": tuple(limits),
        "links": mounts.links,
        "mounts": tuple(tuple(mount) for mount in mounts.mounts),
        "tmp_size": job.tmp_size,
        "memory_bytes": job.memory_bytes,
        "processes": job.processes,
        "level": level,
        "network": job.network,
        "waiting": waiting_calls(),
        "filter": system_calls(job.network, asked=asked(job))
        if level == "full"
        else level_filter(job.network),
        "watch": b"" if job.watch is None else watched_calls(),
        "warm": None
        if script is None
        else {"script": script.path, "executable": script.executable, "modules": script.modules},
    }


@cache
def system_calls(network: NetworkAccess, *, asked: bool = False) -> bytes:
    """The filter that every command with this network gets; built once."""
    from toolcrib.sandbox.kernel import seccomp

    return seccomp.program(os.uname().machine, **filter_arguments(network), asked=asked)


@cache
def waiting_calls() -> bytes:
    """The filter of every pid 1."""
    from toolcrib.sandbox.child import waiting

    return waiting.program(os.uname().machine)


@cache
def level_filter(network: str) -> bytes:
    """The narrower filter for commands that have no namespaces of their own."""
    from toolcrib.sandbox.kernel import seccomp

    return seccomp.program(os.uname().machine, inet=False, host=network == "host", private=False)


def asked(job: Confinement) -> bool:
    """Whether the watcher is to refuse internet sockets, so that it sees who wanted one."""
    return job.watch is not None and job.network == "none"


@cache
def watched_calls() -> bytes:
    """The filter that has the kernel tell of calls; built once."""
    from toolcrib.sandbox.tracing import watched

    return watched.program(os.uname().machine)


def key_of(order: dict[str, Any], job: Confinement) -> Key:
    """What two calls must have in common for one to use a spare made for the other."""
    script = job.script
    launcher = (
        ("",) if script is None else (script.interpreter, script.executable, script.path, script.modules)
    )
    # What is watched shares with nothing.
    own = () if job.watch is None else (object(),)
    same = ("cwd", "limits", "links", "mounts", "tmp_size", "memory_bytes", "processes", "level", "network")
    return (*launcher, *(order[name] for name in same), *own)
