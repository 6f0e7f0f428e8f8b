"""Open a path that cannot lead out of a folder, whatever is renamed or linked meanwhile.

openat2(2) with RESOLVE_BENEATH has the kernel check each step of the way; a program that checks a real path
first and opens it afterwards loses that race. Where a filter refuses openat2, the file is opened first, and
the place that it really has is checked then. Python has no binding for openat2, so it is called by number.
"""

from __future__ import annotations

import errno
import os
from functools import cache, lru_cache
from typing import Any

from toolcrib.errors import SandboxUnavailable

AT_FDCWD = -100
RESOLVE_NO_XDEV, RESOLVE_NO_MAGICLINKS, RESOLVE_NO_SYMLINKS = 0x01, 0x02, 0x04
RESOLVE_BENEATH, RESOLVE_CACHED = 0x08, 0x20
RETRIES = 128
"""Attempts when somebody renames folders at the same time (EAGAIN)."""


@cache
def has_openat2() -> bool:
    """Return True if the kernel has openat2(2) and lets us call it (a seccomp filter may answer EPERM)."""
    try:
        os.close(openat2(AT_FDCWD, b"/", os.O_PATH | os.O_CLOEXEC, 0))
    except OSError:
        return False
    return True


def open_beneath(root: int, path: str, flags: int, *, links: bool = True) -> int:
    """Open `path` relative to the folder `root` is open on; never outside of it.

    Raises:
        OSError: EXDEV if the path leads out, ELOOP if a link may not be followed, EAGAIN if others rename too
            fast, else as open(2).
    """
    flags |= os.O_CLOEXEC
    if not has_openat2():
        return open_checked(root, path or ".", flags, links)
    raw, resolve = os.fsencode(path) or b".", _resolve(links)
    # The kernel gives up when a folder on the way is renamed during the walk, and asks for another try.
    for _ in range(RETRIES):
        try:
            return openat2(root, raw, flags, resolve)
        except BlockingIOError:
            continue
    raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN), path)


def open_at_once(root: int, path: str, flags: int, *, links: bool) -> int:
    """Do what `open_beneath` does, if the way needs no other mount and no disk; OSError otherwise."""
    resolve = _resolve(links) | RESOLVE_NO_XDEV | RESOLVE_CACHED
    return openat2(root, os.fsencode(path) or b".", flags | os.O_CLOEXEC, resolve)


def _resolve(links: bool) -> int:
    return RESOLVE_BENEATH | RESOLVE_NO_MAGICLINKS | (0 if links else RESOLVE_NO_SYMLINKS)


def open_real(path: str, flags: int) -> int:
    """Open an absolute path through no symbolic link; errors as of `open_beneath`."""
    top = os.open("/", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        return open_beneath(top, path.lstrip("/"), flags, links=False)
    finally:
        os.close(top)


def openat2(folder: int, path: bytes, flags: int, resolve: int) -> int:
    """Call openat2(2); the caller has refused NUL bytes, which would end the path in C."""
    from toolcrib.sandbox.kernel.libc import check_os
    from toolcrib.sandbox.kernel.mounts import SYS_OPENAT2
    from toolcrib.sandbox.kernel.mounts import openat2 as call

    return check_os(call(SYS_OPENAT2, folder, path, _how(flags, resolve), 24), os.fsdecode(path))


@lru_cache
def _how(flags: int, resolve: int) -> Any:
    """Return a `struct open_how`, which has 24 bytes and which the kernel only reads."""
    import ctypes

    return (ctypes.c_uint64 * 3)(flags, 0, resolve)


def open_checked(root: int, path: str, flags: int, links: bool) -> int:
    """Open a path, and then compare the place that the file really has; no `..`."""
    if path.startswith("/") or ".." in path.split("/"):
        raise OSError(errno.EXDEV, os.strerror(errno.EXDEV), path)
    # A pipe in the place of a file would block the open until somebody writes to it.
    fd = os.open(path, flags | os.O_NONBLOCK, dir_fd=root)
    top, real = real_path_of(root), real_path_of(fd)
    if (below(real, top) is not None) if links else (real == os.path.normpath(os.path.join(top, path))):
        return fd
    os.close(fd)
    raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), path)


def below(path: str, folder: str) -> str | None:
    """Return the path from a folder on; None if it lies elsewhere."""
    if path == folder:
        return ""
    prefix = folder.rstrip("/") + "/"
    return path[len(prefix) :] if path.startswith(prefix) else None


def real_path_of(fd: int) -> str:
    """Return the present path of an open file, without any link."""
    try:
        return os.readlink(f"/proc/self/fd/{fd}")
    except OSError as error:
        raise SandboxUnavailable(
            f"/proc is needed to find out where a file is: {error.strerror}", details={"mechanism": "proc"}
        ) from None
