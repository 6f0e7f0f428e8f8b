"""Report what enforces the limits of a sandbox on this machine, for results, the audit log and the doctor."""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import cache
from typing import Any

from toolcrib.sandbox.host.failures import unavailable
from toolcrib.sandbox.job import NetworkAccess
from toolcrib.sandbox.kernel.cgroup import CgroupPool, CgroupSlot, open_pool
from toolcrib.sandbox.kernel.signals import try_pidfd_signal
from toolcrib.spec import Level

MEMORY_BYTES = 4 << 30
PROCESSES = 1_024
"""Bounds of a tool that states none, where they can be enforced."""
INIT_PROCESSES = 1
"""Pid 1 of the sandbox is counted with the tool's processes."""
NETWORK_BY: Mapping[NetworkAccess, str] = {
    "none": "netns+seccomp",
    "proxy": "netns+proxy",
    "host": "host (not confined)",
}
NOT_ENFORCED = "not enforced"
FILTERED = "no capabilities, no_new_privs, seccomp"
NAMESPACES = tuple(f"{name} namespace" for name in ("mount", "pid", "net", "ipc", "uts", "cgroup"))
SEEN_AT_LANDLOCK = (
    "names, sizes and times of files outside the grants can be read",
    "times of the user's own files can be changed",
    "resources that the kernel counts for each user (inotify) can be used up",
)
"""The access that Landlock cannot deny, and no filter can tell from harmless use."""


@cache
def groups() -> tuple[CgroupPool | None, str]:
    """Return the control groups for calls and their description; or None and why there are none."""
    return open_pool()


def group_for(memory_bytes: int | None, processes: int | None, level: str) -> CgroupSlot | None:
    """Return a control group with these limits, or the usual ones; None if there are no control groups.

    Raises:
        OSError: EAGAIN if all are in use.
        SandboxUnavailable: there are none any more, and a limit is stated.
    """
    bounds = memory_bytes or MEMORY_BYTES, (processes or PROCESSES) + INIT_PROCESSES
    # Two tries: the first may find that our own group is gone, the second has a new one.
    for _ in range(2):
        pool, _ = groups()
        if pool is None:
            break
        try:
            return pool.acquire(*bounds)
        except FileNotFoundError:
            # Our own group was removed by some other program.
            pool.close()
            for known in (groups, machine, process_limit):
                known.cache_clear()
    check_limits(memory_bytes, processes, level)
    return None


def has_process_limit(level: str) -> bool:
    """Return True if RLIMIT_NPROC limits the processes of one sandbox.

    The kernel counts them for each user in each user namespace (Linux 5.14), and never limits root's.
    """
    return level == "full" and os.geteuid() != 0


@cache
def process_limit(processes: int | None, level: str) -> int | None:
    """Return the value of RLIMIT_NPROC; None if a control group limits the processes, or nothing can."""
    if groups()[0] is not None or not has_process_limit(level):
        return None
    return (processes or PROCESSES) + INIT_PROCESSES


def check_limits(memory_bytes: int | None, processes: int | None, level: str) -> None:
    """Raise SandboxUnavailable if a limit is stated that nothing on this machine can enforce."""
    if groups()[0] is not None:
        return
    stated = {"memory_bytes": memory_bytes, "processes": None if has_process_limit(level) else processes}
    names = [name for name, value in stated.items() if value is not None]
    if names:
        raise unavailable("cgroup", f"{' and '.join(names)} cannot be enforced: {groups()[1]}")


@cache
def machine(level: Level) -> Mapping[str, Any]:
    """Return the part of the report that is the same for every call."""
    pool, group = groups()
    version, missing = (0, ["landlock", "seccomp"]) if level == "none" else landlock_parts()
    missing += [] if pool is not None else ["cgroup"]
    missing += ["pidfd_send_signal"] if try_pidfd_signal() else []
    reports: dict[Level, dict[str, Any]] = {
        "full": {
            "level": "full" if pool is None else "full+cgroup",
            "fs": f"mountns+landlock{version}",
            "net": NETWORK_BY["none"],
            "proc": "pidns",
            "ipc": "ipcns",
            "privileges": FILTERED,
        },
        "landlock": {
            "level": "landlock",
            "fs": f"landlock{version}",
            "net": "seccomp",
            "proc": f"landlock{version} scope, seccomp",
            "ipc": "seccomp",
            "privileges": FILTERED,
            "notEnforced": list(SEEN_AT_LANDLOCK),
        },
        "none": {
            "level": "none",
            **dict.fromkeys(("fs", "net", "proc", "ipc"), NOT_ENFORCED),
            "privileges": "no_new_privs",
        },
    }
    is_full = level == "full"
    limits = {
        "wall": f"kill of the {'pid namespace' if is_full else 'process tree'}",
        "output": "discarded past the limit",
        "cpu": "rlimit (per process)",
        "fileSize": "rlimit",
        "openFiles": "rlimit (per process)",
        "tmp": "tmpfs size" if is_full else NOT_ENFORCED,
        **dict.fromkeys(("memory", "processes"), NOT_ENFORCED if pool is None else group),
    }
    if process_limit(None, level) is not None:
        limits["processes"] = "rlimit (user namespace)"
    missing = missing if is_full else [*NAMESPACES, *missing]
    return {**reports[level], "limits": limits, **({"missing": missing} if missing else {})}


def landlock_parts() -> tuple[int, list[str]]:
    """Return the version of Landlock, and the rights that it is too old to check."""
    from toolcrib.sandbox.kernel import landlock

    version = landlock.abi()
    _, missing = landlock.rights_handled(version, landlock.BIND_TCP | landlock.CONNECT_TCP, scope=True)
    return version, [f"landlock {name}" for name in missing]
