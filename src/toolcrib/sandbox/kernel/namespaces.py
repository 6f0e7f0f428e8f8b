"""Namespaces of the kernel: start a process in new ones, and find out which one the kernel refused.

Our own code, because Python has no clone(2): `os.unshare` (3.12) changes the caller, and for a new pid
namespace a second fork would be needed, which costs as much as all the rest. See namespaces(7).
"""

from __future__ import annotations

import ctypes
import errno
import os

from toolcrib.sandbox.kernel.libc import SetupFailure, check, gil_libc, libc, read_all

# linux/sched.h
NEWUSER, NEWNS, NEWCGROUP, NEWNET = 0x10000000, 0x20000, 0x2000000, 0x40000000
NAMESPACES = (
    ("user namespace", NEWUSER),
    ("mount namespace", NEWNS),
    ("pid namespace", 0x20000000),
    ("net namespace", NEWNET),
    ("ipc namespace", 0x8000000),
    ("uts namespace", 0x4000000),
    ("cgroup namespace", NEWCGROUP),
)
SYS_CLONE = {"x86_64": 56, "aarch64": 220}
SIGCHLD = 17


def clone(flags: int) -> int:
    """Fork a process of one thread into new namespaces; -1 with `errno` set where the kernel refuses.

    The child must fork once more before it runs foreign code: the C library keeps the parent's thread id in
    it, and the functions of os.register_at_fork are not called.
    """
    number = SYS_CLONE[os.uname().machine]
    zero = ctypes.c_long(0)
    return int(
        gil_libc.syscall(ctypes.c_long(number), ctypes.c_long(flags | SIGCHLD), zero, zero, zero, zero)
    )


def fork_into_namespaces(*, own_network: bool) -> tuple[int, bool]:
    """Fork pid 1 of a sandbox; in it the pid returned is 0.

    The flag returned is True if the process is in a new user namespace, whose id maps it must write. Root
    needs none to make the others, and enters one later. Root without that right, as in most containers, takes
    the way of an ordinary user. The cgroup namespace comes later, once the process has joined its group.

    Raises:
        SetupFailure: the kernel refuses; it names the namespace.
    """
    flags = sum(flag for _, flag in NAMESPACES) & ~NEWCGROUP
    if not own_network:
        flags &= ~NEWNET
    in_user_namespace = os.geteuid() != 0
    pid = clone(flags if in_user_namespace else flags & ~NEWUSER)
    if pid < 0 and not in_user_namespace and ctypes.get_errno() == errno.EPERM:
        in_user_namespace = True
        pid = clone(flags)
    if pid < 0:
        raise refused_namespace(in_user_namespace, ctypes.get_errno())
    return pid, in_user_namespace


def refused_namespace(in_user_namespace: bool, number: int) -> SetupFailure:
    """Find out which namespace the kernel refused, by asking for one after the other in a process of its
    own."""
    wanted = NAMESPACES if in_user_namespace else NAMESPACES[1:]
    source, target = os.pipe2(os.O_CLOEXEC)
    pid = os.fork()
    if pid == 0:
        try:
            for index, (name, flag) in enumerate(wanted):
                try:
                    check(name, libc.unshare(flag))
                except SetupFailure as failure:
                    os.write(target, bytes((index, failure.number)))
                    break
        finally:
            os._exit(0)
    os.close(target)
    found = read_all(source)
    os.waitpid(pid, 0)
    return SetupFailure(wanted[found[0]][0], found[1]) if found else SetupFailure("fork", number)
