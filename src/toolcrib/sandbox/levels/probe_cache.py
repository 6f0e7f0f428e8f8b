"""Remember what this machine can enforce, for other processes of the same user, until it is restarted.

The file is in the user's own cache folder (`$TOOLCRIB_CACHE`, else `$XDG_CACHE_HOME/toolcrib`). It is used
only by a process with the same kernel, version of ours, namespaces, filters, capabilities and security label
as the one that wrote it: a service or a container can do less than a shell of the same user. It never lets a
call run with less than its project allows: a remembered mechanism that does not work fails the call.
"""

from __future__ import annotations

import hashlib
import json
import os
import stat
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

BOOT_ID = "/proc/sys/kernel/random/boot_id"
STATUS_LINES = ("NoNewPrivs", "Seccomp", "Seccomp_filters", "CapEff", "CapBnd", "Uid", "Gid")
SETTINGS = (
    "/proc/self/attr/current",
    "/proc/sys/user/max_user_namespaces",
    "/proc/sys/kernel/unprivileged_userns_clone",
    "/proc/sys/kernel/apparmor_restrict_unprivileged_userns",
)
LONGEST = 65_536


def place() -> Path | None:
    """Return the file, one for each start of the machine, user and kernel; None if there is no place."""
    boot = text_of(BOOT_ID).strip()
    try:
        base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    except RuntimeError:
        base = ""
    folder = os.environ.get("TOOLCRIB_CACHE") or f"{base}/toolcrib"
    if not folder.startswith("/") or not boot.replace("-", "").isalnum():
        return None
    return Path(folder, f"probe-{boot}-{os.geteuid()}-{os.uname().release}.json")


def process_digest() -> str:
    """Return a digest of all that decides what the kernel lets this process do."""
    version = str(getattr(sys.modules.get("toolcrib"), "__version__", ""))
    seen = [version, os.uname().machine, *map(text_of, SETTINGS)]
    lines = text_of("/proc/self/status").splitlines()
    seen += [line for line in lines if line.partition(":")[0] in STATUS_LINES]
    for name in sorted(os.listdir("/proc/self/ns")) if os.path.isdir("/proc/self/ns") else ():
        try:
            seen.append(os.readlink(f"/proc/self/ns/{name}"))
        except OSError:
            seen.append(name)
    return hashlib.sha256("\0".join(seen).encode(errors="replace")).hexdigest()


def text_of(path: str) -> str:
    """Return a small file of the kernel's; empty if it cannot be read."""
    try:
        with open(path, "rb") as file:
            return file.read(LONGEST).decode(errors="replace")
    except OSError:
        return ""


def known() -> Any:
    """Return what an equal process has remembered; None if there is nothing."""
    path = place()
    if path is None:
        return None
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    with open(fd, "rb") as file:
        if not is_private(os.fstat(fd)) or not is_private(os.lstat(path.parent)):
            return None
        try:
            document = json.loads(file.read(LONGEST))
        except ValueError:
            return None
    if not isinstance(document, dict) or document.get("standing") != process_digest():
        return None
    return document.get("found")


def is_private(info: os.stat_result) -> bool:
    """Return True if a file or folder belongs to this user, and nobody else may write to it."""
    kind = stat.S_ISREG(info.st_mode) or stat.S_ISDIR(info.st_mode)
    return kind and info.st_uid == os.geteuid() and not info.st_mode & (stat.S_IWGRP | stat.S_IWOTH)


def keep(found: Any) -> None:
    """Remember something; where that is not possible, the next process finds out for itself."""
    path = place()
    if path is None:
        return
    new = path.with_name(f".{path.name}.{os.getpid()}.{os.urandom(4).hex()}")
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        fd = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        with open(fd, "w", encoding="utf-8") as file:
            json.dump({"standing": process_digest(), "found": found}, file)
        # In one step: a process that reads at the same time sees the old file or the new one, never half of
        # it.
        new.replace(path)
    except OSError:
        with suppress(OSError):
            new.unlink()


def forget() -> None:
    """Have the next process find out again."""
    path = place()
    if path is not None:
        try:
            path.unlink(missing_ok=True)
        except OSError:
            pass
