"""Open a path that cannot lead out of a folder, whatever is renamed or linked meanwhile.

openat2(2) with RESOLVE_BENEATH has the kernel check each step of the way; a program that checks a real path
first and opens it afterwards loses that race. Where a filter refuses openat2, the file is opened first, and
the place that it really has is checked then. Python has no binding for openat2, so it is called by number.
"""

from __future__ import annotations

import errno
import os
from functools import cache

from toolcrib.errors import SandboxUnavailable

SYS_OPENAT2 = 437  # on every architecture
AT_FDCWD = -100
RESOLVE_NO_MAGICLINKS, RESOLVE_NO_SYMLINKS, RESOLVE_BENEATH = 0x02, 0x04, 0x08
RETRIES = 128
"""Attempts when somebody renames folders at the same time (EAGAIN)."""


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
    flags |= os.O_CLOEXEC
    if not has_openat2():
        return open_checked(root, path or ".", flags, links)
    raw = os.fsencode(path) or b"."
    resolve = RESOLVE_BENEATH | RESOLVE_NO_MAGICLINKS | (0 if links else RESOLVE_NO_SYMLINKS)
    # The kernel gives up when a folder on the way is renamed during the walk, and asks for another try.
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

    from toolcrib.sandbox.kernel.libc import check_os, syscall

    how = (ctypes.c_uint64 * 3)(flags, mode, resolve)
    return check_os(syscall(SYS_OPENAT2, folder, path, how, ctypes.sizeof(how)), os.fsdecode(path))


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
