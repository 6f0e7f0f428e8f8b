"""Landlock: the kernel limits a process to the files and ports that it was granted, whoever it runs as.

A second layer under the mount tree, and where there are no namespaces the first. Our own binding, because
Python has none and it is used between fork and exec, where only the standard library may be loaded.
`Ruleset.enforce` is called in the child once the mount tree is complete (it forbids mounting) and
no_new_privs is set.

Rules only ever add: whatever is below a granted folder is granted with it. Landlock does not check reads of
names and sizes (stat), changes of modes, owners, times and attributes, and any network but TCP.

Numbers and rules: linux/landlock.h, https://docs.kernel.org/userspace-api/landlock.html.
"""

from __future__ import annotations

import ctypes
import errno
import os
import stat

from toolcrib.sandbox.kernel.libc import check_os, syscall, typed

TYPE_CHECKING = False  # importing it from `typing` takes as long as starting the interpreter
if TYPE_CHECKING:
    from collections.abc import Iterable


# These have the same numbers on every architecture.
SYS_CREATE_RULESET, SYS_ADD_RULE, SYS_RESTRICT_SELF = 444, 445, 446
CREATE_RULESET_VERSION = 1
RULE_PATH_BENEATH, RULE_NET_PORT = 1, 2

EXECUTE, WRITE_FILE, READ_FILE, READ_DIR = 1 << 0, 1 << 1, 1 << 2, 1 << 3
REMOVE_DIR, REMOVE_FILE = 1 << 4, 1 << 5
MAKE_CHAR, MAKE_DIR, MAKE_REG, MAKE_SOCK = 1 << 6, 1 << 7, 1 << 8, 1 << 9
MAKE_FIFO, MAKE_BLOCK, MAKE_SYM = 1 << 10, 1 << 11, 1 << 12
REFER, TRUNCATE, IOCTL_DEV = 1 << 13, 1 << 14, 1 << 15
BIND_TCP, CONNECT_TCP = 1 << 0, 1 << 1
SCOPE_ABSTRACT_UNIX_SOCKET, SCOPE_SIGNAL = 1 << 0, 1 << 1
LOG_SAME_EXEC_OFF, LOG_SUBDOMAINS_OFF = 1 << 0, 1 << 2

FILES = 0x1FFF
"""All rights over files of the first version: EXECUTE to MAKE_SYM."""
FILE_RIGHTS = EXECUTE | WRITE_FILE | READ_FILE | TRUNCATE | IOCTL_DEV
"""The rights that apply to anything but folders; the kernel refuses others there."""
READING = READ_FILE | READ_DIR
WRITING = (
    READING | WRITE_FILE | TRUNCATE | REMOVE_DIR | REMOVE_FILE | REFER
    | MAKE_DIR | MAKE_REG | MAKE_SOCK | MAKE_FIFO | MAKE_SYM
)  # fmt: skip
"""Not MAKE_CHAR and MAKE_BLOCK: a device on a granted folder would outlive the call."""
USING = READ_FILE | WRITE_FILE | TRUNCATE | IOCTL_DEV
"""The rights to device nodes; without that to a terminal's ioctls, `isatty` fails with a misleading error."""

FEATURES: tuple[tuple[str, int, int, int, int], ...] = (
    # name, version of the interface, rights over files, over TCP, scopes
    ("files", 1, FILES, 0, 0),
    ("refer", 2, REFER, 0, 0),
    ("truncate", 3, TRUNCATE, 0, 0),
    ("bind", 4, 0, BIND_TCP, 0),
    ("connect", 4, 0, CONNECT_TCP, 0),
    ("ioctl_dev", 5, IOCTL_DEV, 0, 0),
    ("abstract_unix", 6, 0, 0, SCOPE_ABSTRACT_UNIX_SOCKET),
    ("signal", 6, 0, 0, SCOPE_SIGNAL),
)
# Before version 2 nothing can be moved or linked between folders at all: stricter, not weaker.
NO_LOSS = ("refer",)
LOG_ABI = 7

add_rule = typed(ctypes.c_int, ctypes.c_int, ctypes.c_void_p, ctypes.c_uint)


class RulesetAttr(ctypes.Structure):
    """`struct landlock_ruleset_attr`; older kernels know the beginning of it."""

    _fields_ = (("files", ctypes.c_uint64), ("net", ctypes.c_uint64), ("scoped", ctypes.c_uint64))


class PathBeneathAttr(ctypes.Structure):
    """`struct landlock_path_beneath_attr`."""

    _pack_ = 1
    _layout_ = "ms"
    _fields_ = (("rights", ctypes.c_uint64), ("folder", ctypes.c_int32))


class NetPortAttr(ctypes.Structure):
    """`struct landlock_net_port_attr`."""

    _fields_ = (("rights", ctypes.c_uint64), ("port", ctypes.c_uint64))


def abi() -> int:
    """Return the version of Landlock that this kernel offers; 0 for none, or switched off."""
    return max(0, syscall(SYS_CREATE_RULESET, None, 0, CREATE_RULESET_VERSION))


class Ruleset:
    """Grants that a thread can be limited to; made ahead, and by another process if need be.

    Arguments:
        read: files and folders to read; a path or an open descriptor (O_PATH will do) each.
        write: the same to read, write, make and remove in.
        execute: the same to read and to run programs from.
        devices: device nodes to read, write and control.
        listing: folders whose names, and those of folders below, may be listed; this does not allow reading a
        file.
        connect_ports: TCP ports that may be connected to on any address; None leaves all open.
        bind_ports: TCP ports that may be listened on; None leaves all open.
        scope: forbid signals to, and abstract unix sockets of, processes outside.
        version: behave as on a kernel that offers only this much.

    Raises:
        OSError: ENOSYS where there is no Landlock; a path does not exist.
    """

    __slots__ = ("fd", "flags")

    def __init__(
        self,
        *,
        read: Iterable[str | int] = (),
        write: Iterable[str | int] = (),
        execute: Iterable[str | int] = (),
        devices: Iterable[str | int] = (),
        listing: Iterable[str | int] = (),
        connect_ports: Iterable[int] | None = None,
        bind_ports: Iterable[int] | None = None,
        scope: bool = True,
        version: int | None = None,
    ) -> None:
        known = abi() if version is None else min(version, abi())
        if known < 1:
            raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS), "landlock")
        ports = [(CONNECT_TCP, connect_ports), (BIND_TCP, bind_ports)]
        net = sum(right for right, numbers in ports if numbers is not None)
        attr, _ = rights_handled(known, net, scope=scope)
        # Refusals of hostile code must not flood the machine's audit log.
        self.flags = LOG_SAME_EXEC_OFF | LOG_SUBDOMAINS_OFF if known >= LOG_ABI else 0
        self.fd = check_os(syscall(SYS_CREATE_RULESET, ctypes.byref(attr), ctypes.sizeof(attr), 0))
        granted = (
            (execute, READING | EXECUTE),
            (read, READING),
            (write, WRITING),
            (devices, USING),
            (listing, READ_DIR),
        )
        try:
            for places, rights in granted:
                for place in places:
                    self._add_place(place, rights & attr.files)
            for right, numbers in ports:
                for number in (numbers or ()) if attr.net & right else ():
                    self._add(RULE_NET_PORT, NetPortAttr(right, number))
        except BaseException:
            os.close(self.fd)
            raise

    def enforce(self) -> None:
        """Limit this thread, and all that comes from it, to the grants; there is no way back.

        Raises:
            OSError: EPERM where no_new_privs is not set; E2BIG at the 16th layer. Nothing is in force then.
        """
        try:
            check_os(syscall(SYS_RESTRICT_SELF, self.fd, self.flags))
        finally:
            os.close(self.fd)

    def _add_place(self, place: str | int, rights: int) -> None:
        """Grant rights over a file, or a folder and all below it."""
        fd = place if isinstance(place, int) else os.open(place, os.O_PATH | os.O_CLOEXEC)
        try:
            if not stat.S_ISDIR(os.fstat(fd).st_mode):
                rights &= FILE_RIGHTS
            self._add(RULE_PATH_BENEATH, PathBeneathAttr(rights, fd), str(place))
        finally:
            if fd is not place:
                os.close(fd)

    def _add(self, kind: int, rule: ctypes.Structure, path: str | None = None) -> None:
        check_os(add_rule(SYS_ADD_RULE, self.fd, kind, ctypes.byref(rule), 0), path)


def rights_handled(known: int, net: int, *, scope: bool) -> tuple[RulesetAttr, list[str]]:
    """Return what a kernel of this version is asked to check, and the names of the checks that it lacks."""
    attr = RulesetAttr()
    missing = []
    for name, since, files, ports, scopes in FEATURES:
        if not (files or ports & net or (scopes and scope)):
            continue
        if known >= since:
            attr.files |= files
            attr.net |= ports
            attr.scoped |= scopes
        elif name not in NO_LOSS:
            missing.append(name)
    return attr, missing
