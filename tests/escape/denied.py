"""Become a command to which the kernel denies what a strict container denies: `denied.py WHAT ARGV...`.

WHAT is `namespaces` (none can be made and nothing mounted) or `everything` (Landlock and filters as well).
The filter stays on all that comes from it, so the product stands as it would there.
"""

from __future__ import annotations

import ctypes
import errno
import os
import sys

from toolcrib.sandbox.kernel import seccomp, syscalls

__all__ = ["deny"]

PR_SET_NO_NEW_PRIVS = 38
CLONE_NAMESPACES = 0x7E020080
LANDLOCK_CREATE_RULESET = 444
PRCTL = {"x86_64": 157, "aarch64": 167}
EPERM = 0x00050000 | errno.EPERM
ENOSYS = 0x00050000 | errno.ENOSYS


def deny(everything: bool) -> None:
    """Put the filter on this process."""
    arch = os.uname().machine
    numbers = syscalls.numbers(arch)
    verdicts = [(numbers[name], "eperm") for name in ("mount", "open_tree", "fsopen", "setns")]
    verdicts += [(numbers["clone3"], "enosys"), (numbers["clone"], "flags"), (numbers["unshare"], "flags")]
    if everything:
        verdicts += [(LANDLOCK_CREATE_RULESET, "enosys"), (PRCTL[arch], "option")]
    code = seccomp.assemble([
        ("load", seccomp.DATA_NUMBER, None, None),
        *(("jeq", number, label, None) for number, label in verdicts),
        ("ja", 0, "allow", None),
        ("label", 0, "option", None),
        ("load", seccomp.DATA_ARGUMENT, None, None),
        ("jeq", seccomp.PR_SET_SECCOMP, "enosys", "allow"),
        ("label", 0, "flags", None),
        ("load", seccomp.DATA_ARGUMENT, None, None),
        ("jset", CLONE_NAMESPACES, "eperm", "allow"),
        ("label", 0, "eperm", None),
        ("return", EPERM, None, None),
        ("label", 0, "enosys", None),
        ("return", ENOSYS, None, None),
        ("label", 0, "allow", None),
        ("return", seccomp.RET_ALLOW, None, None),
    ])  # fmt: skip
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(PR_SET_NO_NEW_PRIVS, *(ctypes.c_ulong(value) for value in (1, 0, 0, 0))) < 0:
        raise OSError(ctypes.get_errno(), "no_new_privs")
    seccomp.install(code)


if __name__ == "__main__":
    _, what, *argv = sys.argv
    deny({"namespaces": False, "everything": True}[what])
    os.execvp(argv[0], argv)
