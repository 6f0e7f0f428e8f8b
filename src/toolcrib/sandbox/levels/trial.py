"""Try one mechanism of the kernel, in a process of its own that ends afterwards.

Standard library and `sandbox.kernel` only. The answer is one line: `works`, perhaps with a version, an errno,
or words for what is wrong.
"""

from __future__ import annotations

import _socket
import ctypes
import os
import sys

from toolcrib.sandbox.kernel import landlock, mounts, seccomp
from toolcrib.sandbox.kernel.libc import PR_SET_NO_NEW_PRIVS, SetupFailure, check_os, libc
from toolcrib.sandbox.kernel.namespaces import NAMESPACES, NEWNS, NEWUSER


def main(name: str) -> None:
    """Try the mechanism and print the answer."""
    try:
        answer = attempt(name)
    except SetupFailure as error:
        answer = str(error.number)
    except OSError as error:
        answer = str(error.errno)
    except ValueError as error:
        answer = str(error)
    sys.stdout.write(answer)


def attempt(name: str) -> str:
    """Return the answer, or raise OSError."""
    if name == "user namespace":
        check_os(libc.unshare(NEWUSER))
    elif name in (namespaces := dict(NAMESPACES)):
        gain_rights()
        check_os(libc.unshare(namespaces[name]))
    elif name == "openat2":
        mounts.resolve(mounts.AT_FDCWD, ".")
    elif name == "mount_setattr":
        gain_rights()
        check_os(libc.unshare(NEWNS))
        check_os(mounts.set_attributes(mounts.AT_FDCWD, b"/", mounts.AT_RECURSIVE, mounts.ATTR_RDONLY))
    else:
        check_os(libc.prctl(PR_SET_NO_NEW_PRIVS, *(ctypes.c_ulong(value) for value in (1, 0, 0, 0))))
        if name != "no_new_privs":
            return {"landlock": confined_files, "seccomp": filtered_calls}[name]()
    return "works"


def gain_rights() -> None:
    """Get rights over namespaces: an ordinary user gets them from a user namespace."""
    if os.geteuid() != 0 or libc.unshare(NEWNS) < 0:
        check_os(libc.unshare(NEWUSER))


def confined_files() -> str:
    """Allow this process /usr only, and open another file."""
    landlock.Ruleset(read=["/usr"]).enforce()
    try:
        os.open("/etc/passwd", os.O_RDONLY)
    except PermissionError:
        return f"works, ABI {landlock.abi()}"
    return "a denied file could be opened"


def filtered_calls() -> str:
    """Filter this process's system calls, and make one that is refused."""
    seccomp.install(seccomp.program(os.uname().machine, inet=False))
    try:
        _socket.socket(_socket.AF_INET, _socket.SOCK_STREAM)
    except PermissionError:
        return "works"
    return "a refused call could be made"
