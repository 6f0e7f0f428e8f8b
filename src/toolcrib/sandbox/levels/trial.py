"""Try mechanisms of the kernel, each in a process of its own that ends afterwards.

Standard library and `sandbox.kernel` only. Each answer is one line: the name, a tab, and `works`, perhaps
with a version, an errno, or words for what is wrong.
"""

from __future__ import annotations

import _socket
import ctypes
import os
import resource
import signal

from toolcrib.sandbox.kernel import landlock, mounts, seccomp
from toolcrib.sandbox.kernel.libc import PR_SET_NO_NEW_PRIVS, SetupFailure, check_os, libc
from toolcrib.sandbox.kernel.namespaces import NAMESPACES, NEWNS, NEWUSER


def main(*names: str) -> None:
    """Try the mechanisms and print the answers."""
    for name in names:
        pid = os.fork()
        if pid == 0:
            os.write(1, f"{name}\t{answer(name)}\n".encode())
            os._exit(0)
        os.waitpid(pid, 0)


def answer(name: str) -> str:
    """Try one mechanism in this process, which may be restricted by it for good."""
    try:
        return attempt(name)
    except SetupFailure as error:
        return str(error.number)
    except OSError as error:
        return str(error.errno)
    except ValueError as error:
        return str(error)


def attempt(name: str) -> str:
    """Return the answer, or raise OSError."""
    if name == "user namespace":
        check_os(libc.unshare(NEWUSER))
    elif name in (namespaces := dict(NAMESPACES)):
        gain_rights()
        check_os(libc.unshare(namespaces[name]))
    elif name == "memfd_create":
        os.memfd_create("trial")
    elif name == "prlimit64":
        resource.setrlimit(resource.RLIMIT_CORE, resource.getrlimit(resource.RLIMIT_CORE))
    elif name == "pidfd_send_signal":
        signal.pidfd_send_signal(os.pidfd_open(os.getpid()), 0)
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
