"""Open a path that cannot lead out of a folder, whatever is renamed or linked meanwhile.

openat2(2) with RESOLVE_BENEATH has the kernel check each step of the way; a program that checks a real path
first and opens it afterwards loses that race. Where the kernel has no openat2, each folder is opened in turn
without following links, which is as safe but refuses every symbolic link. Python has no binding for openat2,
so it is called by number.
"""

from __future__ import annotations

import errno
import os
import stat
from functools import cache
from typing import Any

__all__ = ["has_openat2", "open_beneath", "open_real"]

SYS_OPENAT2 = 437  # on every architecture
AT_FDCWD = -100
RESOLVE_NO_MAGICLINKS, RESOLVE_NO_SYMLINKS, RESOLVE_BENEATH = 0x02, 0x04, 0x08
RETRIES = 128
"""Attempts when somebody renames folders at the same time (EAGAIN)."""


@cache
def libc() -> Any:
    """Return the C library; loaded on first use."""
    import ctypes

    return ctypes.CDLL(None, use_errno=True)


@cache
def has_openat2() -> bool:
    """Return True if the kernel has openat2(2) and lets us call it (a seccomp filter may answer EPERM)."""
    try:
        os.close(openat2(AT_FDCWD, b"/", os.O_PATH | os.O_CLOEXEC, 0, 0))
    except OSError:
        return False
    return True


def open_beneath(root: int, path: str, flags: int, *, links: bool = True) -> int:
    """Open `path` relative to the folder `root` is open on; never outside of it.

    Raises:
        OSError: EXDEV if the path leads out, ELOOP if a link may not be followed, EAGAIN if others rename too
            fast, else as open(2).
    """
    raw = os.fsencode(path) or b"."
    flags |= os.O_CLOEXEC
    if not has_openat2():
        return walk(root, raw, flags)
    resolve = RESOLVE_BENEATH | RESOLVE_NO_MAGICLINKS | (0 if links else RESOLVE_NO_SYMLINKS)
    for _ in range(RETRIES):
        try:
            return openat2(root, raw, flags, 0, resolve)
        except BlockingIOError:
            continue
    raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN), path)


def open_real(path: str, flags: int) -> int:
    """Open an absolute path through no symbolic link; errors as of `open_beneath`."""
    top = os.open("/", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        return open_beneath(top, path.lstrip("/"), flags, links=False)
    finally:
        os.close(top)


def openat2(folder: int, path: bytes, flags: int, mode: int, resolve: int) -> int:
    """Call openat2(2); the caller has refused NUL bytes, which would end the path in C."""
    import ctypes

    how = (ctypes.c_uint64 * 3)(flags, mode, resolve)
    number = ctypes.c_long(SYS_OPENAT2)
    result = int(libc().syscall(number, ctypes.c_long(folder), path, how, ctypes.c_size_t(24)))
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code), os.fsdecode(path))
    return result


def walk(root: int, path: bytes, flags: int) -> int:
    """Open one component after the other; no link, no `..`."""
    parts = [part for part in path.split(b"/") if part not in (b"", b".")]
    if path.startswith(b"/") or b".." in parts:
        raise OSError(errno.EXDEV, os.strerror(errno.EXDEV), os.fsdecode(path))
    folder = os.open(".", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=root)
    step = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        for part in parts[:-1]:
            inner = follow(part, step, folder)
            os.close(folder)
            folder = inner
        return follow(parts[-1] if parts else b".", flags | os.O_NOFOLLOW, folder)
    finally:
        os.close(folder)


def follow(part: bytes, flags: int, folder: int) -> int:
    """Open one component; a symbolic link is always ELOOP, which open(2) says only in some cases."""
    if stat.S_ISLNK(os.stat(part, dir_fd=folder, follow_symlinks=False).st_mode):
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), os.fsdecode(part))
    fd = os.open(part, flags, dir_fd=folder)
    # O_PATH opens a link itself, if it became one just now.
    if flags & os.O_PATH and stat.S_ISLNK(os.fstat(fd).st_mode):
        os.close(fd)
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), os.fsdecode(part))
    return fd
