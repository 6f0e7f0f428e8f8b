"""Names for processes, by which another process can see if one still runs.

A process number alone says little, because numbers are used again. The name also holds the start time
(`/proc/PID/stat`, field 22, proc(5)), the boot, and the PID namespace in which the number is valid.
"""

from __future__ import annotations

import os
import time
from functools import cache
from pathlib import Path

LEASE_S = 30.0
"""Seconds for which a process that cannot be seen from here may be silent: the usual length of a lease."""
_PF_EXITING = 0x4
_ELSEWHERE_S = 3_600.0
"""Seconds for which a process of another container, invisible from here, counts as alive."""


@cache
def this_process() -> str:
    """Return the name of this process."""
    return f"{boot_id()}/{_pid_namespace()}/{short_name()}"


@cache
def short_name() -> str:
    """Return the number and the start time of this process: `4711/882341`."""
    pid = os.getpid()
    return f"{pid}/{_start_time(str(pid))}"


os.register_at_fork(after_in_child=short_name.cache_clear)
os.register_at_fork(after_in_child=this_process.cache_clear)


def is_running(short_name: str) -> bool:
    """Return True if the process of this short name still runs and can be seen from here."""
    pid, _, started = short_name.partition("/")
    return pid.isdecimal() and started != "" and _start_time(pid) == started


def has_ended(process: str) -> bool:
    """Return True if the process of this name ran here and has ended; False where that cannot be seen."""
    boot, namespace, pid, started = (*process.split("/"), "", "", "", "")[:4]
    return boot == boot_id() and namespace == _pid_namespace() and _start_time(pid) != started


def is_alive(process: str, since: float) -> bool:
    """Return True if the process still runs; `since` is the `uptime` at which it was last known to.

    A process in another PID namespace cannot be seen; it counts as alive for an hour.
    """
    boot, namespace, pid, started = (*process.split("/"), "", "", "", "")[:4]
    if boot != boot_id():
        return False
    if namespace != _pid_namespace():
        return uptime() - since < _ELSEWHERE_S
    return _start_time(pid) == started


def uptime() -> float:
    """Return seconds since the machine started, sleep included: one clock for all processes, never set."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


@cache
def boot_id() -> str:
    """Return the kernel's random id of the current boot."""
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def _pid_namespace() -> str:
    return os.readlink("/proc/self/ns/pid")


def _start_time(pid: str) -> str:
    """Return a process's start in clock ticks after boot, or an empty text if it has ended."""
    try:
        # The second field, the name in parentheses, may itself contain blanks and parentheses.
        fields = Path("/proc", pid, "stat").read_text(errors="replace").rpartition(")")[2].split()
    except OSError:
        return ""
    # Its locks are free before it is a zombie, so whoever waited for one may meet it on its way there.
    return "" if fields[0] in ("Z", "X") or int(fields[6]) & _PF_EXITING else fields[19]
