"""Level `landlock`: a command held without namespaces, by Landlock, a narrower filter and nothing else.

There is no private root: the command sees the machine's tree and opens in it what it was granted. A folder of
its own stands in for `/tmp`. What this level cannot hold is refused before, by `levels`.
"""

from __future__ import annotations

import ctypes
import errno
import os

from toolcrib.sandbox.child.confined import drop_privileges, hold_none
from toolcrib.sandbox.kernel import landlock, seccomp
from toolcrib.sandbox.kernel.calls import Failure, close_other, syscall
from toolcrib.sandbox.kernel.mounts import DEVICES, RESOLVE_NO_SYMLINKS, SYS_OPENAT2

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

__all__ = ["confine", "stamp"]


def confine(job: dict[str, Any], control: int) -> list[tuple[int, int] | None]:
    """Hold this process to the job's grants; answers device and inode of what each of them is."""
    found: list[tuple[int, int] | None] = []
    readable: list[int | str] = []
    writable: list[int | str] = [job["home"]]
    for source, target, mode, _ in job["mounts"]:
        fd = grant(source, target, mode)
        if fd < 0:
            found.append(None)
            continue
        seen = os.fstat(fd)
        found.append((seen.st_dev, seen.st_ino))
        (writable if mode.startswith("rw") else readable).append(fd)
    try:
        drop_privileges()
    except Failure as failure:
        if failure.args[1] != errno.EPERM:
            raise
        hold_none()  # An ordinary user has none that could be dropped for good.
    ports = None if job["network"] == "host" else ()
    try:
        landlock.restrict(
            execute=[*readable, *writable],
            write=writable,
            devices=[f"/dev/{name}" for name in DEVICES],
            connect_ports=ports,
            bind_ports=ports,
        )
    except OSError as error:
        raise Failure("landlock", error.errno or 0, text=str(error.filename or "")) from None
    close_other((control,))
    try:
        seccomp.install(job["filter"])
    except OSError as error:
        raise Failure("seccomp", error.errno or 0) from None
    return found


def stamp(source: str, target: str, mode: str) -> tuple[int, int] | None:
    """Device and inode of what is granted."""
    fd = grant(source, target, mode)
    if fd < 0:
        return None
    seen = os.fstat(fd)
    os.close(fd)
    return seen.st_dev, seen.st_ino


def grant(source: str, target: str, mode: str) -> int:
    """Open what is granted for reference, through no symbolic link; -1 for what need not be there."""
    if mode in ("empty", "hide"):
        return -1
    itself = os.O_NOFOLLOW if mode == "link" else 0
    how = (ctypes.c_uint64 * 3)(os.O_PATH | os.O_CLOEXEC | itself, 0, RESOLVE_NO_SYMLINKS)
    fd = syscall(SYS_OPENAT2, -1, os.fsencode(source), how, ctypes.sizeof(how))
    if fd >= 0:
        return fd
    number = ctypes.get_errno()
    if number == errno.ENOSYS:
        raise Failure("openat2", number)
    if mode.endswith("?") and number in (errno.ENOENT, errno.ENOTDIR):
        return -1
    raise Failure("grant", number, target)
