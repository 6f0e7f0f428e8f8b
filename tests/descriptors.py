"""What a process has open: what a test of leaks counts."""

from __future__ import annotations

import errno
import os
import resource
import socket
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from fcntl import LOCK_EX, flock
from pathlib import Path

__all__ = ["descriptors", "many_open", "reads_from_memory", "under_way"]


def descriptors(pid: int | str = "self") -> int:
    """Open descriptors, without control groups (kept for later calls) and the usage counts (opened later).

    Raises PermissionError for a process that only root may look at.
    """
    count = 0
    for fd in list(Path(f"/proc/{pid}/fd").iterdir()):
        try:
            path = str(fd.readlink())
            count += not (path.startswith("/sys/fs/cgroup/") or "/usage.db" in path)
        except OSError:  # closed meanwhile
            continue
    return count


@contextmanager
def many_open() -> Iterator[None]:
    """Keep so many files open that further ones have numbers which select(2) refuses."""
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (limits[1], limits[1]))
    kept = [os.open(os.devnull, os.O_RDONLY)]
    try:
        while kept[-1] < 1_024:
            kept.append(os.dup(kept[0]))
        yield
    finally:
        for fd in kept:
            os.close(fd)
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)


@contextmanager
def under_way(count: int) -> Iterator[None]:
    """Have so many descriptors sent, and received by nobody: the kernel counts them for all of a user.

    One test of a user at a time: with those of two there would be no room for the tests' own messages.
    """
    with ExitStack() as stack:
        lock = stack.enter_context(
            Path(tempfile.gettempdir(), f"toolcrib-under-way-{os.geteuid()}").open("w")
        )
        flock(lock, LOCK_EX)
        for _ in range(0, count, 100):
            near, far = socket.socketpair()
            stack.enter_context(near)
            stack.enter_context(far)
            try:
                socket.send_fds(near, [b"x"], [0] * 100)
            except OSError as error:  # The kernel still counts some of the test before: they are too many.
                if error.errno != errno.ETOOMANYREFS:
                    raise
        yield


def reads_from_memory(file: Path) -> bool:
    """True if the file system of a file, that was written just now, can say that it has it in memory."""
    fd = os.open(file, os.O_RDONLY)
    try:
        return os.preadv(fd, [bytearray(1)], 0, os.RWF_NOWAIT) == 1
    except OSError:  # As a file system in memory.
        return False
    finally:
        os.close(fd)
