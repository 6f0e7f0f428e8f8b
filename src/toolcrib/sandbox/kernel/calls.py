"""What the launcher's processes ask of the kernel, and how they tell the server what it refused.

Standard library only, and of that only what loads fast. It imports neither `json`, `signal` nor `socket`:
they cost as much time as all the rest.
"""

from __future__ import annotations

import _socket
import ctypes
import os
import select
import sys

TYPE_CHECKING = False  # as `typing` has it, whose import takes as long as the interpreter's start
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Any

__all__ = [
    "Failure",
    "as_forked",
    "check",
    "clone",
    "close_other",
    "fork",
    "guarded",
    "held",
    "prctl",
    "readable",
    "receive",
    "report",
    "send",
    "syscall",
    "typed",
    "whole",
    "write_file",
    "write_if_allowed",
]

# linux/prctl.h
PR_SET_PDEATHSIG, PR_SET_DUMPABLE = 1, 4
SYS_CLOSE_RANGE = 436  # on every architecture
SYS_CLONE = {"x86_64": 56, "aarch64": 220}
SIGCHLD = 17
MESSAGE = 65_536
MOST_FDS = 8

libc = ctypes.CDLL(None, use_errno=True)
# Forking must not let go of the interpreter's lock between the call and what puts it right after.
held = ctypes.PyDLL(None, use_errno=True)


class Failure(Exception):
    """A step that did not work: nothing was run."""

    def __init__(self, stage: str, number: int, path: str = "", text: str = "") -> None:
        super().__init__(stage, number, path, text)
        self.stage = stage
        self.message = "\0".join((f"fail {stage}", str(number), path, text))


def check(stage: str, result: int, path: str = "") -> int:
    """Pass on a system call's result, or raise what its `errno` says."""
    if result < 0:
        raise Failure(stage, ctypes.get_errno(), path)
    return result


def syscall(number: int, *args: int | bytes | ctypes.Array[Any]) -> int:
    """Make a system call that libc may not know; integers are passed at full width."""
    wide = [ctypes.c_long(a) if isinstance(a, int) else a for a in args]
    return int(libc.syscall(ctypes.c_long(number), *wide))


def typed(*types: Any) -> Callable[..., int]:
    """syscall(2) for arguments of these types: half the time of `syscall`, which finds them out each time."""
    function = libc["syscall"]  # an object of its own
    function.argtypes = (ctypes.c_long, *types)
    function.restype = ctypes.c_long
    return function


def prctl(stage: str, option: int, value: int, third: int = 0) -> None:
    """Call prctl(2) or fail."""
    check(stage, libc.prctl(option, *(ctypes.c_ulong(v) for v in (value, third, 0, 0))))


def clone(flags: int) -> int:
    """Fork a process of one thread into new namespaces; -1 with `errno` set where the kernel refuses.

    The child must fork once more before it runs anything but ours: the C library keeps the parent's thread
    id in it. What modules want done in a child (os.register_at_fork) is not done.
    """
    number = SYS_CLONE[os.uname().machine]
    zero = ctypes.c_long(0)
    return int(held.syscall(ctypes.c_long(number), ctypes.c_long(flags | SIGCHLD), zero, zero, zero, zero))


def fork() -> int:
    """Fork as the C library does it, and not yet what modules want done about it; see `as_forked`.

    Raises:
        OSError: the kernel refuses.
    """
    pid = int(held.fork())
    if pid < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return pid


def as_forked() -> None:
    """Do all that os.fork does about a fork, in the child: new random numbers, fresh locks and the like."""
    held.PyOS_BeforeFork()
    held.PyOS_AfterFork_Child()


def write_file(folder: int, path: str, text: str) -> None:
    """Write to a file of the kernel in one go."""
    fd = os.open(path, os.O_WRONLY | os.O_CLOEXEC, dir_fd=folder)
    try:
        os.write(fd, text.encode())
    finally:
        os.close(fd)


def write_if_allowed(folder: int, path: str, text: str) -> None:
    """The same for what is no promise: a container may have /proc read-only."""
    try:
        write_file(folder, path, text)
    except OSError:
        pass


def readable(fd: int, events: int = select.POLLIN) -> bool:
    """Whether there is something to read now, or the other end is gone; of a pidfd: whether it has ended."""
    poll = select.poll()
    poll.register(fd, events)
    return bool(poll.poll(0))


def close_other(keep: Iterable[int], first: int = 3) -> None:
    """Close every descriptor from `first` on but these."""
    for fd in sorted(fd for fd in keep if fd >= first):
        if fd > first:
            check("descriptors", syscall(SYS_CLOSE_RANGE, first, fd - 1, 0))
        first = fd + 1
    check("descriptors", syscall(SYS_CLOSE_RANGE, first, 0xFFFFFFFF, 0))


def whole(fd: int) -> bytes:
    """All that stands in a file in memory; the descriptor is closed."""
    with open(fd, "rb", buffering=0) as file:
        return file.read()


# Messages with descriptors, over sockets that keep their bounds.


def send(fd: int, data: bytes, fds: Iterable[int] = ()) -> None:
    """Send one message and copies of descriptors."""
    sock = _socket.socket(fileno=fd)
    try:
        rights = b"".join(one.to_bytes(4, sys.byteorder) for one in fds)
        sock.sendmsg([data], [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, rights)] if rights else [])
    finally:
        sock.detach()


def receive(fd: int) -> tuple[bytes, list[int]]:
    """Wait for one message; empty when the other end is gone."""
    sock = _socket.socket(fileno=fd)
    try:
        data, rights, _, _ = sock.recvmsg(MESSAGE, _socket.CMSG_SPACE(4 * MOST_FDS), _socket.MSG_CMSG_CLOEXEC)
    except ConnectionResetError:
        return b"", []
    finally:
        sock.detach()
    raw = b"".join(part for _, _, part in rights)
    return data, [int.from_bytes(raw[n : n + 4], sys.byteorder) for n in range(0, len(raw), 4)]


def report(control: int, message: str, fds: Iterable[int] = ()) -> None:
    """Tell the server; when it is gone there is nobody to tell."""
    try:
        send(control, message.encode("utf-8", "surrogateescape"), fds)
    except OSError:
        pass


def guarded(control: int, body: Callable[[], None]) -> None:
    """Run the rest of a forked process; whatever comes out is told, and the process ends."""
    try:
        body()
    except Failure as failure:
        report(control, failure.message)
    except BaseException as error:
        number = error.errno or 0 if isinstance(error, OSError) else 0
        report(control, Failure("set-up", number, text=repr(error)).message)
    finally:
        os._exit(126)
