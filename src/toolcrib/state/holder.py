"""Who holds something in the database: a process, named such that others can tell whether it still lives.

A process number alone says little, since numbers are given again. Its start time (`/proc/PID/stat`, field 22,
proc(5)) and the boot belong to it, and the namespace in which the number means anything.
"""

from __future__ import annotations

import os
import time
from functools import cache
from pathlib import Path

__all__ = ["boot_id", "is_alive", "me", "uptime"]

_ELSEWHERE_S = 3_600.0
"""How long a process that cannot be seen from here (another container) is taken to live."""


def me() -> str:
    """This process."""
    return _named(os.getpid())


def is_alive(holder: str, held_since: float) -> bool:
    """Whether the process still runs; `held_since` is when it took hold, by `uptime`.

    One in another PID namespace cannot be seen; it is taken to live for an hour.
    """
    boot, space, pid, started = (*holder.split("/"), "", "", "", "")[:4]
    if boot != boot_id():
        return False
    if space != _space():
        return uptime() - held_since < _ELSEWHERE_S
    return _started(pid) == started


def uptime() -> float:
    """Seconds since the machine started, sleep included: one clock for all processes, that nobody sets."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


@cache
def boot_id() -> str:
    """The kernel's name for the time since it started."""
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


@cache
def _named(pid: int) -> str:
    return f"{boot_id()}/{_space()}/{pid}/{_started(str(pid))}"


def _space() -> str:
    return os.readlink("/proc/self/ns/pid")  # noqa: PTH115 - the text as it stands


def _started(pid: str) -> str:
    """When a process started, in clock ticks after boot; empty where there is none, or only its remains."""
    try:
        fields = Path("/proc", pid, "stat").read_text(errors="replace").rpartition(")")[2].split()
    except OSError:
        return ""
    return "" if fields[0] in ("Z", "X") else fields[19]
