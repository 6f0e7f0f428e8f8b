"""What this machine can hold, found out by doing it.

Each mechanism in use is tried by a short-lived process; version numbers prove nothing where a container,
a sysctl or a security module takes away what the kernel has. Mechanisms that later versions use are
looked for and reported, and are never claimed to be enforced.
"""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from toolcrib.errors import SandboxUnavailable
from toolcrib.sandbox.failures import ANY_NAMESPACE, HINTS, why

__all__ = ["Mechanism", "level", "probe", "require"]

MACHINES = ("aarch64", "x86_64")
LATER = "available; not used yet, so nothing depends on it"
NO_SANDBOX = "command and Python tools are refused"
# One process per trial: `python -c TRIAL NAME`, the mechanism's answer is the exit status (an errno).
TRIAL = """
import ctypes, os, sys
libc = ctypes.CDLL(None, use_errno=True)
name, root = sys.argv[1], os.geteuid() == 0
def done(result):
    sys.stdout.write(str(ctypes.get_errno() if result < 0 else 0))
    sys.stdout.flush()
    os._exit(0)
def rights():
    # The launcher of a user who is not root has its rights from a user namespace.
    if not root or libc.unshare(0x20000) < 0:
        if libc.unshare(0x10000000) < 0:
            done(-1)
flags = {"mount": 0x20000, "pid": 0x20000000, "net": 0x40000000, "ipc": 0x8000000, "uts": 0x4000000,
         "cgroup": 0x2000000}
how = (ctypes.c_uint64 * 4)()
big = ctypes.c_long
if name == "user":
    done(libc.unshare(0x10000000))
elif name in flags:
    rights()
    done(libc.unshare(flags[name]))
elif name == "no_new_privs":
    done(libc.prctl(38, *(ctypes.c_ulong(v) for v in (1, 0, 0, 0))))
elif name == "openat2":
    how[0] = os.O_PATH
    done(libc.syscall(big(437), big(-100), b"/", how, big(24)))
elif name == "mount_setattr":
    rights()
    if libc.unshare(0x20000) < 0:
        done(-1)
    how[0] = 1
    done(libc.syscall(big(442), big(-100), b"/", big(0x8000), how, big(32)))
elif name == "landlock":
    sys.stdout.write(str(max(0, libc.syscall(big(444), None, big(0), big(1)))))
"""


@dataclass(frozen=True, slots=True)
class Mechanism:
    """One thing the kernel can do, or cannot."""

    name: str
    ok: bool
    detail: str
    cost: str
    """What its absence costs the user; empty where it costs nothing today."""
    required: bool = True


@cache
def probe() -> tuple[Mechanism, ...]:
    """Try every mechanism, once per process; takes about a quarter of a second."""
    if sys.platform != "linux" or os.uname().machine not in MACHINES:
        here = f"{sys.platform} on {os.uname().machine}"
        return (
            Mechanism("linux", False, f"this is {here}; needed is Linux on x86_64 or aarch64", NO_SANDBOX),
        )
    root = os.geteuid() == 0
    found = [tried("user namespace", "user", required=not root)]
    found += [tried(f"{name} namespace", name) for name in ("mount", "pid", "net", "ipc", "uts", "cgroup")]
    found += [tried(name, name) for name in ("no_new_privs", "mount_setattr")]
    openat2 = tried("openat2", "openat2")
    found += [openat2, whole(), landlock(), seccomp(), cgroup()]
    return tuple(found)


def level() -> Mapping[str, Any]:
    """The enforcement that tools get here, in the form their results carry; level `none` where refused."""
    from toolcrib.sandbox.runner import ENFORCEMENT

    missing = [mechanism.name for mechanism in probe() if mechanism.required and not mechanism.ok]
    return {"level": "none", "missing": missing} if missing else dict(ENFORCEMENT)


def require() -> None:
    """Raise SandboxUnavailable, naming each missing mechanism, unless tools can be confined here."""
    missing = [mechanism for mechanism in probe() if mechanism.required and not mechanism.ok]
    if missing:
        raise SandboxUnavailable(
            "the sandbox cannot be set up here: " + "; ".join(f"{m.name}: {m.detail}" for m in missing),
            hint=HINTS.get(missing[0].name, ANY_NAMESPACE),
            details={"mechanism": missing[0].name, "missing": [m.name for m in missing]},
        )


def attempt(name: str) -> int:
    """Run one trial; its number, or -1 where it could not even be started."""
    import subprocess

    try:
        done = subprocess.run(
            [sys.executable, "-I", "-S", "-c", TRIAL, name],
            capture_output=True,
            env={},
            timeout=10,
            check=False,
        )
        return int(done.stdout)
    except (OSError, ValueError, subprocess.TimeoutExpired):
        return -1


def tried(name: str, trial: str, required: bool = True) -> Mechanism:
    """A mechanism that works when its trial answers 0, and else says why not."""
    code = attempt(trial)
    detail = "works" if code == 0 else why(name, code) if code > 0 else "the trial could not be run"
    cost = "" if code == 0 else NO_SANDBOX if required else "none: it runs as root"
    if name in HINTS and (code == errno.ENOSYS or (code and name == "user namespace")):
        detail += f" ({HINTS[name]})"
    return Mechanism(name, code == 0, detail, cost, required)


def whole() -> Mechanism:
    """Run /bin/true the way tools are run: the mechanisms must also work together."""
    import asyncio
    import threading

    from toolcrib.errors import ToolcribError
    from toolcrib.sandbox.confine import run
    from toolcrib.sandbox.job import Confinement

    outcome: list[str] = []

    def trial() -> None:
        try:
            done = asyncio.run(run(Confinement(argv=("/bin/sh", "-c", ":"), cwd="/", timeout_ms=10_000)))
            outcome.append("" if done.exit_code == 0 else f"the trial ended with {done}")
        except ToolcribError as error:
            outcome.append(f"{error.message} ({error.hint})" if error.hint else error.message)

    thread = threading.Thread(target=trial)  # The caller may be inside an event loop.
    thread.start()
    thread.join()
    trouble = outcome[0] if outcome else "the trial failed"
    return Mechanism("all together", not trouble, trouble or "works", NO_SANDBOX if trouble else "")


def landlock() -> Mechanism:
    """Which Landlock interface the kernel offers; for a later version."""
    abi = max(0, attempt("landlock"))
    detail = f"ABI {abi}, {LATER}" if abi else "not offered by the kernel"
    return Mechanism("landlock", abi > 0, detail, "", required=False)


def seccomp() -> Mechanism:
    """Whether system calls can be filtered; for a later version."""
    present = os.path.exists("/proc/sys/kernel/seccomp/actions_avail")
    return Mechanism(
        "seccomp", present, LATER if present else "not offered by the kernel", "", required=False
    )


def cgroup() -> Mechanism:
    """Whether memory and processes of a whole tree could be bounded; for a later version."""
    name, cost = "cgroup", "memory and number of processes of a tool are not bounded"
    v2 = "/sys/fs/cgroup/cgroup.controllers"
    if os.path.exists(v2) and os.access("/sys/fs/cgroup/cgroup.subtree_control", os.W_OK):
        return Mechanism(name, True, f"v2, {LATER}", cost, required=False)
    if all(os.access(f"/sys/fs/cgroup/{part}", os.W_OK) for part in ("memory", "pids")):
        return Mechanism(name, True, f"v1, {LATER}", cost, required=False)
    return Mechanism(name, False, "no writable cgroup", cost, required=False)
