"""What a process has open: what a test of leaks counts."""

from __future__ import annotations

from pathlib import Path

__all__ = ["descriptors"]


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
