"""What holds a sandbox here, as results, audit and the doctor tell it."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

from toolcrib.sandbox.host.failures import unavailable
from toolcrib.sandbox.job import Confinement, NetworkAccess
from toolcrib.sandbox.kernel.cgroup import Pool, Slot, open_pool
from toolcrib.spec import Level

__all__ = ["MEMORY_BYTES", "PROCESSES", "group_for", "groups", "report", "told_limits"]

MEMORY_BYTES = 4 << 30
PROCESSES = 1_024
"""Bounds for a tool that states none, where there is a cgroup to hold them."""
HELD_BY: Mapping[NetworkAccess, str] = {
    "none": "netns+seccomp",
    "proxy": "netns+proxy",
    "host": "host (not confined)",
}
"""What holds a command's network, by what it was given."""
OWN_PROCESSES = 1
"""Pid 1 of the sandbox is counted with the tool's."""
NOT_ENFORCED = "not enforced"
NAMESPACES = tuple(f"{name} namespace" for name in ("mount", "pid", "net", "ipc", "uts", "cgroup"))
SEEN_AT_LANDLOCK = (
    "names, sizes and times of files outside of the grants can be looked at",
    "times of the user's own files can be changed",
    "what the kernel counts for each user (inotify) can be used up",
)
"""What Landlock says nothing about and no filter can tell from its harmless use."""


@cache
def groups() -> tuple[Pool | None, str]:
    """The cgroups that calls are put in, or None and why there are none."""
    return open_pool()


def group_for(memory_bytes: int | None, processes: int | None) -> Slot | None:
    """A group with these limits, or the usual ones; None where there are no cgroups.

    Raises:
        OSError: EAGAIN where all are in use.
        SandboxUnavailable: there are none any more, and a limit is stated.
    """
    bounds = memory_bytes or MEMORY_BYTES, (processes or PROCESSES) + OWN_PROCESSES
    pool, _ = groups()
    if pool is None:
        return None
    try:
        return pool.acquire(*bounds)
    except FileNotFoundError:
        # Our own group was removed, by whoever tidies up on this machine.
        pool.close()
        groups.cache_clear()
        machine.cache_clear()
    pool, reason = groups()
    if pool is not None:
        return pool.acquire(*bounds)
    if memory_bytes or processes:
        raise unavailable("cgroup", f"limits of the tool cannot be held: {reason}")
    return None


def told_limits(job: Confinement) -> None:
    """Refuse a job that states a limit which nothing here can hold.

    Raises:
        SandboxUnavailable: it names the limit and the mechanism.
    """
    stated = [name for name in ("memory_bytes", "processes") if getattr(job, name) is not None]
    if stated:
        pool, reason = groups()
        if pool is None:
            raise unavailable("cgroup", f"{' and '.join(stated)} cannot be held: {reason}")


def report(
    unprotected: tuple[str, ...] = (),
    exceeded: tuple[str, ...] = (),
    network: NetworkAccess = "none",
    level: Level = "full",
) -> dict[str, Any]:
    """The enforcement report of a call that was run."""
    found = dict(machine(level))
    if level == "full":
        found["net"] = HELD_BY[network]
    if unprotected:
        found["unprotected"] = list(unprotected)
    if exceeded:
        found["exceeded"] = list(exceeded)
    return found


@cache
def machine(level: Level) -> Mapping[str, Any]:
    """The part of the report that is the same for every call."""
    return {"full": full, "landlock": landlocked, "none": unconfined}[level]()


def limits(wall: str, tmp: str) -> dict[str, str]:
    """What holds each limit."""
    pool, held_by = groups()
    whole = held_by if pool is not None else NOT_ENFORCED
    return {
        "wall": wall,
        "output": "discarded past the limit",
        "cpu": "rlimit (per process)",
        "file_size": "rlimit",
        "open_files": "rlimit (per process)",
        "tmp": tmp,
        "memory": whole,
        "processes": whole,
    }


def without_cgroup() -> tuple[str, ...]:
    """The mechanism that is missing where nothing holds memory and number of processes."""
    return () if groups()[0] is not None else ("cgroup",)


def full() -> dict[str, Any]:
    """Namespaces, Landlock, seccomp."""
    version, missing = landlock_parts()
    return {
        "level": "full" if groups()[0] is None else "full+cgroup",
        "fs": f"mountns+landlock{version}",
        "net": HELD_BY["none"],
        "proc": "pidns",
        "ipc": "ipcns",
        "privileges": "no capabilities, no_new_privs, seccomp",
        "limits": limits("kill of the pid namespace", "tmpfs size"),
        "missing": [*missing, *without_cgroup()],
    }


def landlocked() -> dict[str, Any]:
    """What level `landlock` holds, and what it cannot."""
    version, missing = landlock_parts()
    return {
        "level": "landlock",
        "fs": f"landlock{version}",
        "net": "seccomp",
        "proc": f"landlock{version} scope, seccomp",
        "ipc": "seccomp",
        "privileges": "no capabilities, no_new_privs, seccomp",
        "limits": limits("kill of the process tree", NOT_ENFORCED),
        "not_enforced": list(SEEN_AT_LANDLOCK),
        "missing": [*NAMESPACES, *missing, *without_cgroup()],
    }


def unconfined() -> dict[str, Any]:
    """Level `none`: resource limits and an end, nothing else."""
    return {
        "level": "none",
        "fs": NOT_ENFORCED,
        "net": NOT_ENFORCED,
        "proc": NOT_ENFORCED,
        "ipc": NOT_ENFORCED,
        "privileges": "no_new_privs",
        "limits": limits("kill of the process tree", NOT_ENFORCED),
        "missing": [*NAMESPACES, "landlock", "seccomp", *without_cgroup()],
    }


def landlock_parts() -> tuple[int, list[str]]:
    """The version of Landlock, and what it is too old to check."""
    from toolcrib.sandbox.kernel import landlock

    version = landlock.abi()
    _, found = landlock.rights_handled(version, landlock.BIND_TCP | landlock.CONNECT_TCP, scope=True)
    return version, [f"landlock {name}" for name in found["missing"]]
