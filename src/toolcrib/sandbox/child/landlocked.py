"""The levels without namespaces: `landlock`, by Landlock and a narrower filter only, and `none`.

There is no private root: the command sees the machine's tree and can open in it what it was granted. A folder
of its own replaces `/tmp`. Tools that this level cannot confine were refused before, by `levels`.
"""

from __future__ import annotations

import errno
import os

from toolcrib.sandbox.child.privileges import clear_capabilities, drop_privileges, enforce
from toolcrib.sandbox.kernel import landlock
from toolcrib.sandbox.kernel.libc import PR_SET_NO_NEW_PRIVS, SetupFailure, close_other, prctl
from toolcrib.sandbox.kernel.mounts import DEVICES, HOW, HOW_LINK, resolve

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    Stamp = tuple[int, int] | None
    """Device and inode of what is granted; None where there is nothing."""


def confine(job: dict[str, Any], control: int) -> list[Stamp]:
    """Limit this process to the job's grants; return what each of them is."""
    readable: list[int | str] = []
    writable: list[int | str] = [job["home"]]
    found = []
    for source, target, mode, _ in job["mounts"]:
        fd, stamp = open_grant(source, target, mode)
        found.append(stamp)
        if fd >= 0:
            (writable if mode.startswith("rw") else readable).append(fd)
    try:
        drop_privileges()
    except SetupFailure as failure:
        if failure.number != errno.EPERM:
            raise
        clear_capabilities()  # An ordinary user has none that could be dropped for good.
    ports = None if job["network"] == "host" else ()
    try:
        ruleset = landlock.Ruleset(
            execute=[*readable, *writable],
            write=writable,
            devices=[f"/dev/{name}" for name in DEVICES],
            connect_ports=ports,
            bind_ports=ports,
        )
    except OSError as error:
        raise SetupFailure("landlock", error.errno or 0, text=str(error.filename or "")) from None
    # The open grants as well: a process keeps what it has open, whatever Landlock says.
    close_other((control, ruleset.fd))
    enforce(ruleset, job["filter"])
    return found


def confine_nothing(job: dict[str, Any], _: int) -> list[Stamp]:
    """Forbid setuid programs to give rights; a granted path that does not exist is an error here as well."""
    found = []
    for source, target, mode, _size in job["mounts"]:
        fd, stamp = open_grant(source, target, mode)
        found.append(stamp)
        if fd >= 0:
            os.close(fd)
    prctl("no_new_privs", PR_SET_NO_NEW_PRIVS, 1)
    return found


def open_grant(source: str, target: str, mode: str) -> tuple[int, Stamp]:
    """Open what is granted with O_PATH, through no symbolic link; -1 and None for what need not exist."""
    if mode in ("empty", "hide"):
        return -1, None
    root = os.open("/", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fd = resolve(root, source, HOW_LINK if mode == "link" else HOW)
    except OSError as error:
        if mode.endswith("?") and error.errno in (errno.ENOENT, errno.ENOTDIR):
            return -1, None
        raise SetupFailure("grant", error.errno or 0, target) from None
    finally:
        os.close(root)
    seen = os.fstat(fd)
    return fd, (seen.st_dev, seen.st_ino)
