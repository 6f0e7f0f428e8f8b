"""The watched system calls: their numbers, and what each does to which path.

Numbers as in `syscalls`; aarch64 has no calls that take a path without a folder's descriptor.
"""

from __future__ import annotations

import os
from typing import Literal, NamedTuple

Access = Literal["read", "list", "look", "run", "write", "create", "make", "put", "remove", "network"]
"""The effect of a call on a path: read it, list it, look if it exists, run it, change it, create it if
missing and write, make a new entry, put an entry in the place of any other, remove one. Or use the
network."""


class Act(NamedTuple):
    """One path of a call."""

    access: Access | Literal["open"]
    """`open`: it depends on the flags."""
    path: int
    """Index of the argument that points to it."""
    folder: int | None = None
    """Index of the argument that a relative path starts from; None for the working folder."""


Row = tuple[int | None, int | None, tuple[Act, ...]]

_AT: dict[str, Row] = {
    "execve": (59, 221, (Act("run", 0),)),
    "execveat": (322, 281, (Act("run", 1, 0),)),
    "openat": (257, 56, (Act("open", 1, 0),)),
    "newfstatat": (262, 79, (Act("look", 1, 0),)),
    "statx": (332, 291, (Act("look", 1, 0),)),
    "faccessat": (269, 48, (Act("look", 1, 0),)),
    "faccessat2": (439, 439, (Act("look", 1, 0),)),
    "readlinkat": (267, 78, (Act("look", 1, 0),)),
    "statfs": (137, 43, (Act("look", 0),)),
    "chdir": (80, 49, (Act("look", 0),)),
    "inotify_add_watch": (254, 27, (Act("look", 1),)),
    "truncate": (76, 45, (Act("write", 0),)),
    "fchmodat": (268, 53, (Act("write", 1, 0),)),
    "fchownat": (260, 54, (Act("write", 1, 0),)),
    "utimensat": (280, 88, (Act("write", 1, 0),)),
    "getxattr": (191, 8, (Act("look", 0),)),
    "lgetxattr": (192, 9, (Act("look", 0),)),
    "listxattr": (194, 11, (Act("look", 0),)),
    "llistxattr": (195, 12, (Act("look", 0),)),
    "mkdirat": (258, 34, (Act("make", 1, 0),)),
    "mknodat": (259, 33, (Act("make", 1, 0),)),
    "symlinkat": (266, 36, (Act("make", 2, 1),)),
    "linkat": (265, 37, (Act("look", 1, 0), Act("make", 3, 2))),
    "renameat": (264, 38, (Act("remove", 1, 0), Act("put", 3, 2))),
    "renameat2": (316, 276, (Act("remove", 1, 0), Act("put", 3, 2))),
    "unlinkat": (263, 35, (Act("remove", 1, 0),)),
}
_PLAIN: dict[str, Row] = {
    "open": (2, None, (Act("open", 0),)),
    "creat": (85, None, (Act("create", 0),)),
    "stat": (4, None, (Act("look", 0),)),
    "lstat": (6, None, (Act("look", 0),)),
    "access": (21, None, (Act("look", 0),)),
    "readlink": (89, None, (Act("look", 0),)),
    "chmod": (90, None, (Act("write", 0),)),
    "chown": (92, None, (Act("write", 0),)),
    "lchown": (94, None, (Act("write", 0),)),
    "utime": (132, None, (Act("write", 0),)),
    "utimes": (235, None, (Act("write", 0),)),
    "futimesat": (261, None, (Act("write", 1, 0),)),
    "mkdir": (83, None, (Act("make", 0),)),
    "mknod": (133, None, (Act("make", 0),)),
    "symlink": (88, None, (Act("make", 1),)),
    "link": (86, None, (Act("look", 0), Act("make", 1))),
    "rename": (82, None, (Act("remove", 0), Act("put", 1))),
    "rmdir": (84, None, (Act("remove", 0),)),
    "unlink": (87, None, (Act("remove", 0),)),
}
SOCKET = "socket"
ADDRESSED = {"connect": (1, 2), "bind": (1, 2), "sendto": (4, 5)}
"""Call to the indexes of its arguments for a socket address and its length."""
_NETWORK: dict[str, Row] = {
    SOCKET: (41, 198, ()),
    "connect": (42, 203, ()),
    "bind": (49, 200, ()),
    "sendto": (44, 206, ()),
}
_ALL = {**_AT, **_PLAIN, **_NETWORK}
_FLAGS = {"open": 1, "openat": 2}
"""Call to the index of its flags."""


def calls(arch: str) -> dict[int, tuple[str, tuple[Act, ...]]]:
    """Return the watched calls of an architecture: number to name and what it does.

    Raises:
        ValueError: there is no table for this architecture.
    """
    from toolcrib.sandbox.kernel.syscalls import column

    place = column(arch)
    found = ((row[place], (name, row[2])) for name, row in _ALL.items())
    return {number: what for number, what in found if isinstance(number, int)}


def opened(call: str, arguments: tuple[int, ...]) -> Access:
    """Return the access that a call asks for when it opens a path (open(2))."""
    flags = arguments[_FLAGS[call]]
    if flags & os.O_PATH:
        return "look"
    if flags & os.O_TMPFILE == os.O_TMPFILE:
        return "write"
    if flags & os.O_CREAT:
        return "make" if flags & os.O_EXCL else "create"
    if flags & (os.O_WRONLY | os.O_RDWR | os.O_TRUNC):
        return "write"
    return "list" if flags & os.O_DIRECTORY else "read"


def program(arch: str) -> bytes:
    """Return the filter that makes the kernel ask before each watched call; all others continue.

    It refuses nothing, so it is put on beside the filter that does. Only internet sockets are asked about.
    """
    from toolcrib.sandbox.kernel import bpf, seccomp
    from toolcrib.sandbox.kernel.syscalls import AUDIT_ARCH

    numbers = {name: number for number, (name, _) in calls(arch).items()}
    ask = bpf.answer(bpf.RET_USER_NOTIF)
    return bpf.encode([
        bpf.load(bpf.DATA_ARCH),
        (bpf.EQUAL, 1, 0, AUDIT_ARCH[arch]),
        bpf.ALLOW,
        bpf.load(bpf.DATA_NUMBER),
        *bpf.match((number for name, number in numbers.items() if name != SOCKET), ask),
        (bpf.EQUAL, 1, 0, numbers[SOCKET]),
        bpf.ALLOW,
        bpf.load_argument(0),
        *bpf.match((seccomp.AF_INET, seccomp.AF_INET6), ask),
        bpf.ALLOW,
    ])  # fmt: skip
