"""What a process has open: what a test of leaks counts."""

from __future__ import annotations

import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

__all__ = ["descriptors", "many_open"]


def descriptors(pid: int | str = "self") -> int:
    """Open descriptors but for those of control groups, of which some are kept for the next calls.

    Raises PermissionError for a process that only root may look at.
    """
    count = 0
    for fd in list(Path(f"/proc/{pid}/fd").iterdir()):
        try:
            count += not str(fd.readlink()).startswith("/sys/fs/cgroup/")
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
