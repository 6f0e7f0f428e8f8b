"""What pid 1 of a sandbox is held to once the command has started: it waits, kills, tells, and ends.

It shares the command's user and its pid namespace, so whoever took it over would outlive every limit. It can
open nothing any more and make only the calls below. The filter is built in the server.
"""

from __future__ import annotations

import errno

from toolcrib.sandbox.kernel import landlock, seccomp

TYPE_CHECKING = False
if TYPE_CHECKING:
    from toolcrib.sandbox.kernel.seccomp import Item

__all__ = ["program", "rules"]

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
    """The filter for a machine (`os.uname().machine`).

    Raises:
        ValueError: there is no table for this architecture.
    """
    from toolcrib.sandbox.kernel import syscalls

    if arch not in syscalls.ARCHITECTURES:
        raise ValueError(f"no system call table for {arch}")
    column = syscalls.ARCHITECTURES.index(arch)
    allowed: list[Item] = [("jeq", numbers[column], "allow", None) for numbers in ALLOWED.values()]
    return seccomp.assemble([
        ("load", seccomp.DATA_ARCH, None, None),
        ("jeq", syscalls.AUDIT_ARCH[arch], None, "refuse"),
        ("load", seccomp.DATA_NUMBER, None, None),
        *allowed,
        ("jeq", MMAP[column], None, "refuse"),
        ("load", seccomp.DATA_ARGUMENT + 8 * 2, None, None),
        ("jset", PROT_EXEC, "refuse", "allow"),
        ("label", 0, "refuse", None),
        ("return", seccomp.RET_ERRNO | errno.EPERM, None, None),
        ("label", 0, "allow", None),
        ("return", seccomp.RET_ALLOW, None, None),
    ])  # fmt: skip


def rules() -> landlock.Rules:
    """Not a single grant. No scope for signals: its children are not in its domain, and it must kill them."""
    return landlock.Rules(scope=False, connect_ports=(), bind_ports=())
