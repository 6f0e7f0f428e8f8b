"""The confinement of pid 1 of a sandbox once the command has started: it waits, kills, reports, and ends.

It shares the command's user and its pid namespace, so whoever took it over would outlive every limit. It can
open nothing any more and make only the calls below. The filter is built in the server.
"""

from __future__ import annotations

import errno

from toolcrib.sandbox.kernel import bpf, landlock

ALLOWED = {
    "brk": (12, 214),
    "close": (3, 57),
    "exit": (60, 93),
    "exit_group": (231, 94),
    "futex": (202, 98),
    "getpid": (39, 172),
    "getsockname": (51, 204),
    "getsockopt": (55, 209),
    "kill": (62, 129),
    "madvise": (28, 233),
    "munmap": (11, 215),
    "restart_syscall": (219, 128),
    "rt_sigaction": (13, 134),
    "rt_sigprocmask": (14, 135),
    "rt_sigreturn": (15, 139),
    "sendmsg": (46, 211),
    "wait4": (61, 260),
}
"""Name to number on x86_64 and on aarch64 (asm/unistd.h)."""
MMAP = (9, 222)
PROT_EXEC = 4


def program(arch: str) -> bytes:
    """Return the filter for a machine (`os.uname().machine`).

    Raises:
        ValueError: there is no table for this architecture.
    """
    from toolcrib.sandbox.kernel import syscalls

    column = syscalls.column(arch)
    refuse = bpf.refuse(errno.EPERM)
    return bpf.encode([
        bpf.load(bpf.DATA_ARCH),
        (bpf.EQUAL, 1, 0, syscalls.AUDIT_ARCH[arch]),
        refuse,
        bpf.load(bpf.DATA_NUMBER),
        *bpf.match((numbers[column] for numbers in ALLOWED.values()), bpf.ALLOW),
        (bpf.EQUAL, 1, 0, MMAP[column]),
        refuse,
        bpf.load_argument(2),
        (bpf.ANY_BIT, 0, 1, PROT_EXEC),
        refuse,
        bpf.ALLOW,
    ])  # fmt: skip


def ruleset() -> landlock.Ruleset:
    """Return rules without a single grant. Signals stay allowed: its children, which it must kill, are
    outside."""
    return landlock.Ruleset(scope=False, connect_ports=(), bind_ports=())
