"""Landlock: the kernel holds a process to the files and ports it was granted, whoever it runs as.

A second layer under the mount tree, and where there are no namespaces the first. `restrict` is called in
the child once the mount tree stands (it forbids mounting) and no_new_privs is set. Imports nothing but
what every launcher has loaded anyway, so that a bare interpreter can load this file by its path.

Rules only ever add: what lies below a granted folder is granted with it. Landlock says nothing about
looking at names and sizes (stat), changing modes, owners, times and attributes, and about any network
but TCP. What the kernel is too old for is named in the report's `missing`.

Numbers and rules: linux/landlock.h, https://docs.kernel.org/userspace-api/landlock.html.
"""

from __future__ import annotations

import ctypes
import errno
import os
import stat

TYPE_CHECKING = False  # as `typing` has it, whose import takes as long as the interpreter's start
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any, TypedDict

    Place = str | int

    class Report(TypedDict):
        """What was put in force; plain data, so that it can be sent on."""

        abi: int
        """Version of the kernel's interface."""
        held: tuple[str, ...]
        """What the kernel now checks, by the names in `FEATURES`."""
        missing: tuple[str, ...]
        """What was asked for and this kernel cannot check."""


__all__ = ["Rules", "abi", "restrict"]

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
"""Those that mean something for what is no folder; others there are an error."""
READING = READ_FILE | READ_DIR
WRITING = (
    READING | WRITE_FILE | TRUNCATE | REMOVE_DIR | REMOVE_FILE | REFER
    | MAKE_DIR | MAKE_REG | MAKE_SOCK | MAKE_FIFO | MAKE_SYM
)  # fmt: skip
"""Not MAKE_CHAR and MAKE_BLOCK: a device on a granted folder would outlive the call."""
USING = READ_FILE | WRITE_FILE | TRUNCATE | IOCTL_DEV
"""For device nodes; a terminal's ioctls must be asked for as well, or `isatty` fails oddly."""

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
# Before version 2 nothing could be moved or linked between folders at all: stricter, not weaker.
NO_LOSS = ("refer",)
LOG_ABI = 7

libc = ctypes.CDLL(None, use_errno=True)
add_rule = libc["syscall"]  # an object of its own, for the one that is called thirty times
add_rule.argtypes = (ctypes.c_long, ctypes.c_int, ctypes.c_int, ctypes.c_void_p, ctypes.c_uint)


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


def syscall(number: int, *arguments: object) -> int:
    """Make a system call; integers are passed at full width.

    Raises:
        OSError: it failed.
    """
    wide = [ctypes.c_long(value) if isinstance(value, int) else value for value in arguments]
    result = int(libc.syscall(ctypes.c_long(number), *wide))
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    return result


def abi() -> int:
    """The version of Landlock this kernel offers; 0 for none, or switched off."""
    try:
        return syscall(SYS_CREATE_RULESET, None, 0, CREATE_RULESET_VERSION)
    except OSError:
        return 0


class Rules:
    """Grants that a thread can be held to; made ahead, and by another process if need be."""

    __slots__ = ("fd", "flags", "report")

    def __init__(
        self,
        *,
        read: Iterable[Place] = (),
        write: Iterable[Place] = (),
        execute: Iterable[Place] = (),
        devices: Iterable[Place] = (),
        listing: Iterable[Place] = (),
        connect_ports: Iterable[int] | None = None,
        bind_ports: Iterable[int] | None = None,
        scope: bool = True,
        version: int | None = None,
    ) -> None:
        """Make them.

        Arguments:
            read: files and folders to read; a path or an open descriptor (O_PATH will do) each.
            write: the same to read, write, make and remove in.
            execute: the same to read and to run programs from.
            devices: device nodes to read, write and control.
            listing: folders whose names, and those of folders below, may be listed; no file is read by that.
            connect_ports: TCP ports that may be connected to on any address; None leaves all open.
            bind_ports: TCP ports that may be listened on; None leaves all open.
            scope: no signals to, and no abstract unix sockets of, processes outside.
            version: act as on a kernel that offers only this much.

        Raises:
            OSError: ENOSYS where there is no Landlock; a path is not there.
        """
        known = abi() if version is None else min(version, abi())
        if known < 1:
            raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS), "landlock")
        ports = [(CONNECT_TCP, connect_ports), (BIND_TCP, bind_ports)]
        net = sum(right for right, numbers in ports if numbers is not None)
        attr, self.report = rights_handled(known, net, scope=scope)
        # Refusals of hostile code must not flood the machine's audit log.
        self.flags = LOG_SAME_EXEC_OFF | LOG_SUBDOMAINS_OFF if known >= LOG_ABI else 0
        self.fd = syscall(SYS_CREATE_RULESET, ctypes.byref(attr), ctypes.sizeof(attr), 0)
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
                    add_place(self.fd, place, rights & attr.files)
            for right, numbers in ports:
                for number in numbers or ():
                    if attr.net & right:
                        rule = NetPortAttr(right, number)
                        syscall(SYS_ADD_RULE, self.fd, RULE_NET_PORT, ctypes.byref(rule), 0)
        except BaseException:
            os.close(self.fd)
            raise

    def enforce(self) -> Report:
        """Hold this thread, and all that comes from it, to them; there is no way back.

        Raises:
            OSError: EPERM where no_new_privs is not set; E2BIG at the 16th layer. Nothing is in force then.
        """
        try:
            syscall(SYS_RESTRICT_SELF, self.fd, self.flags)
        finally:
            os.close(self.fd)
        return self.report


def restrict(**grants: Any) -> Report:
    """Hold this thread to grants at once; arguments and errors as of `Rules`."""
    return Rules(**grants).enforce()


def rights_handled(known: int, net: int, *, scope: bool) -> tuple[RulesetAttr, Report]:
    """What a kernel of this version is told to check, of what was asked for."""
    attr = RulesetAttr()
    held, missing = [], []
    for name, since, files, ports, scopes in FEATURES:
        if not (files or ports & net or (scopes and scope)):
            continue
        if known >= since:
            held.append(name)
            attr.files |= files
            attr.net |= ports
            attr.scoped |= scopes
        elif name not in NO_LOSS:
            missing.append(name)
    return attr, {"abi": known, "held": tuple(held), "missing": tuple(missing)}


def add_place(ruleset: int, place: Place, rights: int) -> None:
    """Grant rights over a file, or a folder and all below it."""
    fd = place if isinstance(place, int) else os.open(place, os.O_PATH | os.O_CLOEXEC)
    try:
        if not stat.S_ISDIR(os.fstat(fd).st_mode):
            rights &= FILE_RIGHTS
        rule = PathBeneathAttr(rights, fd)
        if add_rule(SYS_ADD_RULE, ruleset, RULE_PATH_BENEATH, ctypes.byref(rule), 0) < 0:
            code = ctypes.get_errno()
            raise OSError(code, os.strerror(code), str(place))
    finally:
        if fd is not place:
            os.close(fd)
