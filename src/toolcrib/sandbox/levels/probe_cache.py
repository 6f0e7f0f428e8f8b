"""Remember the level of this machine, for other processes of the same user, until it is restarted.

The file is in the user's own cache folder (`$TOOLCRIB_CACHE`, else `$XDG_CACHE_HOME/toolcrib`). Its name is a
digest of the kernel, our version, and the process's namespaces, filters, capabilities and security label: a
service or a container can do less than a shell of the same user. A remembered level that does not work fails
the call.
"""

from __future__ import annotations

import hashlib
import os
import stat
import sys
from contextlib import suppress
from pathlib import Path
from typing import get_args

from toolcrib.spec import Level

BOOT_ID = "/proc/sys/kernel/random/boot_id"
STATUS_LINES = ("NoNewPrivs", "Seccomp", "Seccomp_filters", "CapEff", "CapBnd", "Uid", "Gid")
SETTINGS = (
    "/proc/self/attr/current",
    "/proc/sys/user/max_user_namespaces",
    "/proc/sys/kernel/unprivileged_userns_clone",
    "/proc/sys/kernel/apparmor_restrict_unprivileged_userns",
)
MOST = 64
"""Files that are kept, the newest."""


def place() -> Path | None:
    """Return the file for a process like this one; None if there is no place for it."""
    # Services of root often have no HOME: `expanduser` then takes the folder from the list of users.
    base = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    folder = os.environ.get("TOOLCRIB_CACHE") or f"{base}/toolcrib"
    boot = text_of(BOOT_ID)
    if not folder.startswith("/") or not boot:
        return None
    seen = [boot, *os.uname(), str(getattr(sys.modules.get("toolcrib"), "__version__", ""))]
    seen += map(text_of, SETTINGS)
    lines = text_of("/proc/self/status").splitlines()
    seen += [line for line in lines if line.partition(":")[0] in STATUS_LINES]
    with suppress(OSError):
        seen += [os.readlink(entry.path) for entry in os.scandir("/proc/self/ns")]
    digest = hashlib.sha256("\0".join(seen).encode(errors="replace")).hexdigest()
    return Path(folder, f"level-{digest}")


def text_of(path: str) -> str:
    """Return a small file of the kernel's; empty if it cannot be read."""
    try:
        return Path(path).read_text(errors="replace")
    except OSError:
        return ""


def known() -> Level | None:
    """Return the level that an equal process has remembered; None if there is none."""
    path = place()
    if path is None:
        return None
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        with open(fd, encoding="ascii", errors="replace") as file:
            text = file.read(16) if is_private(os.fstat(fd)) and is_private(os.lstat(path.parent)) else ""
    except OSError:
        return None
    return next((level for level in get_args(Level) if level == text), None)


def is_private(info: os.stat_result) -> bool:
    """Return True if a file or folder belongs to this user, and nobody else may write to it."""
    kind = stat.S_ISREG(info.st_mode) or stat.S_ISDIR(info.st_mode)
    return kind and info.st_uid == os.geteuid() and not info.st_mode & (stat.S_IWGRP | stat.S_IWOTH)


def keep(level: Level) -> None:
    """Remember a level; where that is not possible, the next process finds out for itself."""
    path = place()
    if path is None:
        return
    with suppress(OSError):
        for folder in reversed(path.parents):
            folder.mkdir(mode=0o700, exist_ok=True)  # With `parents` those above would follow the umask.
        # A reader that comes too early sees no level, and finds out for itself.
        # What is there may be a pipe, or another file's second name, if others may write in the folder.
        path.unlink(missing_ok=True)
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        with open(fd, "w", encoding="ascii") as file:
            file.write(level)
        # Each start of a container or service has namespaces of its own, and so a file of its own.
        files = sorted(path.parent.glob("level-*"), key=lambda one: one.stat().st_mtime)
        for old in files[:-MOST]:
            old.unlink()


def forget() -> None:
    """Have the next process find out again."""
    path = place()
    if path is not None:
        with suppress(OSError):
            path.unlink()
