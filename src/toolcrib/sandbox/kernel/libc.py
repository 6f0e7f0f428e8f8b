"""The C library and the system calls that Python does not wrap, for the processes of a sandbox.

Written by us because this code runs between fork and exec, where only the standard library may be loaded, and
no library on PyPI covers clone(2), mount_setattr(2), Landlock and seccomp that way. It imports neither
`json`, `signal` nor `socket`: each of them takes as long to import as everything else here together.
"""

from __future__ import annotations

import ctypes
import os
import select

TYPE_CHECKING = False  # importing it from `typing` takes as long as starting the interpreter
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Any

# linux/prctl.h
PR_SET_PDEATHSIG, PR_SET_DUMPABLE, PR_SET_NO_NEW_PRIVS = 1, 4, 38
SYS_CLOSE_RANGE = 436  # on every architecture
CLOSE_RANGE_CLOEXEC = 4  # linux/close_range.h
SIGKILL, SIGTERM = 9, 15

libc = ctypes.CDLL(None, use_errno=True)
gil_libc = ctypes.PyDLL(None, use_errno=True)
"""The same library, called without releasing the interpreter's lock: the child of a fork could not get it
back."""


class SetupFailure(Exception):
    """A step of the set-up failed: nothing was run."""

    def __init__(self, stage: str, number: int, path: str = "", text: str = "") -> None:
        super().__init__(stage, number, path, text)
        self.number = number
        self.message = "\0".join((f"fail {stage}", str(number), path, text))


def check(stage: str, result: int, path: str = "") -> int:
    """Return the result of a system call.

    Raises:
        SetupFailure: the call failed; `errno` says why.
    """
    if result < 0:
        raise SetupFailure(stage, ctypes.get_errno(), path)
    return result


def check_os(result: int, path: str | None = None) -> int:
    """Return the result of a system call.

    Raises:
        OSError: the call failed.
    """
    if result < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), path)
    return result


def syscall(number: int, *args: object) -> int:
    """Make a system call by its number; integers are passed at full width. On failure -1, with `errno`
    set."""
    wide = [ctypes.c_long(a) if isinstance(a, int) else a for a in args]
    return int(libc.syscall(ctypes.c_long(number), *wide))


def typed(*types: Any) -> Callable[..., int]:
    """Return syscall(2) for arguments of these types: half the time of `syscall`, which works them out
    anew."""
    function = libc["syscall"]  # an object of its own, so that the types belong to it alone
    function.argtypes = (ctypes.c_long, *types)
    function.restype = ctypes.c_long
    return function


def prctl(stage: str, option: int, value: int, third: int = 0) -> None:
    """Call prctl(2), or raise `SetupFailure`."""
    check(stage, libc.prctl(option, *(ctypes.c_ulong(v) for v in (value, third, 0, 0))))


def write_file(folder: int, path: str, text: str) -> None:
    """Write to a file of the kernel in one go, as it demands."""
    fd = os.open(path, os.O_WRONLY | os.O_CLOEXEC, dir_fd=folder)
    try:
        os.write(fd, text.encode())
    finally:
        os.close(fd)


def write_if_allowed(folder: int, path: str, text: str) -> bool:
    """Write to a file of the kernel where that is possible: a container may have /proc read-only."""
    try:
        write_file(folder, path, text)
    except OSError:
        return False
    return True


def read_all(fd: int) -> bytes:
    """Read a file in memory to its end, and close it."""
    with open(fd, "rb", buffering=0) as file:
        return file.read()


def readable(fd: int, events: int = select.POLLIN) -> bool:
    """Return True if there is something to read, or the other end is gone. A pidfd: if the process has
    ended."""
    poll = select.poll()
    poll.register(fd, events)
    return bool(poll.poll(0))


def close_other(keep: Iterable[int]) -> None:
    """Close every descriptor from 3 on, except those in `keep`."""
    first = 3
    for fd in sorted(fd for fd in keep if fd >= first):
        if fd > first:
            check("descriptors", syscall(SYS_CLOSE_RANGE, first, fd - 1, 0))
        first = fd + 1
    check("descriptors", syscall(SYS_CLOSE_RANGE, first, 0xFFFFFFFF, 0))
