"""Try one mechanism of the kernel, in a process of its own that ends afterwards.

Standard library and `sandbox.kernel` only. The answer is one line: `works`, perhaps with a version, an errno,
or words for what is wrong.
"""

from __future__ import annotations

import _socket
import ctypes
import os
import sys

from toolcrib.sandbox.kernel import landlock, seccomp
from toolcrib.sandbox.kernel.libc import libc, syscall

__all__ = ["NAMESPACES", "main"]

NEWUSER, NEWNS = 0x10000000, 0x20000  # linux/sched.h
NAMESPACES = {
    "mount namespace": NEWNS, "pid namespace": 0x20000000, "net namespace": 0x40000000,
    "ipc namespace": 0x8000000, "uts namespace": 0x4000000, "cgroup namespace": 0x2000000,
}  # fmt: skip
PR_SET_NO_NEW_PRIVS = 38  # linux/prctl.h
SYS_OPENAT2, SYS_MOUNT_SETATTR = 437, 442  # on every architecture
AT_FDCWD, AT_RECURSIVE = -100, 0x8000


def main(name: str) -> None:
    """Try the mechanism and print the answer."""
    try:
        answer = attempt(name)
    except OSError as error:
        answer = str(error.errno)
    except ValueError as error:
        answer = str(error)
    sys.stdout.write(answer)


def attempt(name: str) -> str:
    """Return the answer, or raise OSError."""
    how = (ctypes.c_uint64 * 4)(os.O_PATH)
    if name == "user namespace":
        call(libc.unshare(NEWUSER))
    elif name in NAMESPACES:
        gain_rights()
        call(libc.unshare(NAMESPACES[name]))
    elif name == "openat2":
        call(syscall(SYS_OPENAT2, AT_FDCWD, b"/", how, 24))
    elif name == "mount_setattr":
        gain_rights()
        call(libc.unshare(NEWNS))
        how[0] = 1
        call(syscall(SYS_MOUNT_SETATTR, AT_FDCWD, b"/", AT_RECURSIVE, how, 32))
    else:
        call(libc.prctl(PR_SET_NO_NEW_PRIVS, *(ctypes.c_ulong(value) for value in (1, 0, 0, 0))))
        if name != "no_new_privs":
            return {"landlock": confined_files, "seccomp": filtered_calls}[name]()
    return "works"


def call(result: int) -> None:
    """Raise OSError for a failed system call."""
    if result < 0:
        raise OSError(ctypes.get_errno(), "")


def gain_rights() -> None:
    """Get rights over namespaces: an ordinary user gets them from a user namespace."""
    if os.geteuid() != 0 or libc.unshare(NEWNS) < 0:
        call(libc.unshare(NEWUSER))


def confined_files() -> str:
    """Allow this process /usr only, and open another file."""
    version = landlock.Ruleset(read=["/usr"]).enforce()["abi"]
    try:
        os.open("/etc/passwd", os.O_RDONLY)
    except PermissionError:
        return f"works, ABI {version}"
    return "a denied file could be opened"


def filtered_calls() -> str:
    """Filter this process's system calls, and make one that is refused."""
    seccomp.install(seccomp.program(os.uname().machine, inet=False))
    try:
        _socket.socket(_socket.AF_INET, _socket.SOCK_STREAM)
    except PermissionError:
        return "works"
    return "a refused call could be made"
