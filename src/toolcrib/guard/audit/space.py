"""Reserve room on the disk beyond the end of a file, so that a later write cannot fail for lack of it.

The reservation is `fallocate` with FALLOC_FL_KEEP_SIZE: the blocks belong to the file, and its length stays.
Python offers only the form that changes the length, and importing ctypes for this costs more than a call of a
tool. The kernel has the same as an ioctl for every file system with `fallocate` (FS_IOC_RESVSP,
linux/falloc.h).
"""

from __future__ import annotations

import errno
import os
import resource
import struct
from fcntl import ioctl

_CHUNK = 64 * 1024
"""Bytes reserved at a time: most calls find the room for their lines already there."""
_FS_IOC_RESVSP = 0x4030_5828
_FORM = "hhxxxxqqiI4i"
"""`struct space_resv`: type, whence, start, length, and five fields that are not used."""
_NO_ROOM = frozenset({errno.ENOSPC, errno.EDQUOT})
# ENOTTY is the usual answer to an ioctl that a file system does not have.
_UNSUPPORTED = frozenset({errno.EOPNOTSUPP, errno.ENOTTY, errno.ENOSYS})


def reserve(fd: int, end: int, needed: int) -> int:
    """Reserve the bytes of a file from its `end` up to `needed` at least; return where the reservation ends.

    Where the file system cannot reserve (NFS before 4.2), only check that there is room now. Raises OSError
    (ENOSPC, EDQUOT, EFBIG) if there is no room.
    """
    try:
        limit, _ = resource.getrlimit(resource.RLIMIT_FSIZE)
    except OSError:  # A container's filter denies prlimit64; the sandbox says so.
        limit = resource.RLIM_INFINITY
    if 0 <= limit < needed:  # The kernel checks this limit at the write only.
        raise OSError(errno.EFBIG, os.strerror(errno.EFBIG))
    try:
        upto = needed + _CHUNK if limit < 0 else min(needed + _CHUNK, limit)
        _allocate(fd, end, upto)
    except OSError as error:
        if error.errno in _UNSUPPORTED:
            return _check_free(fd, end, needed)
        if error.errno not in _NO_ROOM:
            raise
        # The disk has no room for a whole chunk, but perhaps for this line.
        _allocate(fd, end, needed)
        return needed
    return upto


def _allocate(fd: int, start: int, end: int) -> None:
    ioctl(fd, _FS_IOC_RESVSP, struct.pack(_FORM, 0, os.SEEK_SET, start, end - start, 0, 0, 0, 0, 0, 0))


def _check_free(fd: int, end: int, needed: int) -> int:
    found = os.fstatvfs(fd)
    if found.f_bavail * found.f_frsize < needed - end:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    return needed
