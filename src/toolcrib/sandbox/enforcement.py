"""What holds a sandbox here, as results, audit and the doctor tell it."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

from toolcrib.sandbox.cgroup import Pool, Slot, open_pool
from toolcrib.sandbox.failures import unavailable
from toolcrib.sandbox.job import Confinement, NetworkAccess

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


@cache
def groups() -> tuple[Pool | None, str]:
    """The cgroups that calls are put in, or None and why there are none."""
    return open_pool()


def group_for(memory_bytes: int | None, processes: int | None) -> Slot | None:
    """A group with these limits, or the usual ones; None where there are no cgroups.

    Raises:
        OSError: EAGAIN where all are in use.
    """
    pool, _ = groups()
    if pool is None:
        return None
    return pool.acquire(memory_bytes or MEMORY_BYTES, (processes or PROCESSES) + OWN_PROCESSES)


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
    unprotected: tuple[str, ...] = (), exceeded: tuple[str, ...] = (), network: NetworkAccess = "none"
) -> dict[str, Any]:
    """The enforcement report of a call that was run."""
    found = dict(machine())
    found["net"] = HELD_BY[network]
    if unprotected:
        found["unprotected"] = list(unprotected)
    if exceeded:
        found["exceeded"] = list(exceeded)
    return found


@cache
def machine() -> Mapping[str, Any]:
    """The part of the report that is the same for every call."""
    from toolcrib.sandbox import landlock

    pool, held_by = groups()
    version = landlock.abi()
    _, landlocked = landlock.rights_handled(version, landlock.BIND_TCP | landlock.CONNECT_TCP, scope=True)
    missing = [f"landlock {name}" for name in landlocked["missing"]]
    whole = held_by if pool is not None else "not enforced"
    return {
        "level": "full" if pool is None else "full+cgroup",
        "fs": f"mountns+landlock{version}",
        "net": HELD_BY["none"],
        "proc": "pidns",
        "ipc": "ipcns",
        "privileges": "no capabilities, no_new_privs, seccomp",
        "limits": {
            "wall": "kill of the pid namespace",
            "output": "discarded past the limit",
            "cpu": "rlimit (per process)",
            "file_size": "rlimit",
            "open_files": "rlimit (per process)",
            "tmp": "tmpfs size",
            "memory": whole,
            "processes": whole,
        },
        "missing": [*missing, *(() if pool is not None else ("cgroup",))],
    }
