"""Become a command to which the kernel denies what a strict container denies: `denied.py WHAT ARGV...`.

WHAT is `namespaces` (none can be made and nothing mounted) or `everything` (Landlock and filters as well).
The filter stays on all that comes from it, so the product stands as it would there.
"""

from __future__ import annotations

import ctypes
import errno
import os
import sys

from toolcrib.sandbox.kernel import bpf, seccomp, syscalls

__all__ = ["deny"]

PR_SET_NO_NEW_PRIVS = 38
CLONE_NAMESPACES = 0x7E020080
LANDLOCK_CREATE_RULESET = 444
PRCTL = {"x86_64": 157, "aarch64": 167}


def deny(everything: bool) -> None:
    """Put the filter on this process."""
    arch = os.uname().machine
    numbers = syscalls.numbers(arch)
    eperm, enosys = bpf.refuse(errno.EPERM), bpf.refuse(errno.ENOSYS)
    by_flags = [bpf.load_argument(0), (bpf.ANY_BIT, 0, 1, CLONE_NAMESPACES), eperm, bpf.ALLOW]
    code = [
        bpf.load(bpf.DATA_NUMBER),
        *bpf.match((numbers[name] for name in ("mount", "open_tree", "fsopen", "setns")), eperm),
        *bpf.match((numbers["clone3"],), enosys),
    ]
    if everything:
        by_option = [bpf.load_argument(0), (bpf.EQUAL, 0, 1, seccomp.PR_SET_SECCOMP), enosys, bpf.ALLOW]
        code += bpf.match((LANDLOCK_CREATE_RULESET,), enosys)
        code += [(bpf.EQUAL, 0, len(by_option), PRCTL[arch]), *by_option]
    for name in ("clone", "unshare"):
        code += [(bpf.EQUAL, 0, len(by_flags), numbers[name]), *by_flags]
    code.append(bpf.ALLOW)
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(PR_SET_NO_NEW_PRIVS, *(ctypes.c_ulong(value) for value in (1, 0, 0, 0))) < 0:
        raise OSError(ctypes.get_errno(), "no_new_privs")
    seccomp.install(bpf.encode(code))


if __name__ == "__main__":
    _, what, *argv = sys.argv
    deny({"namespaces": False, "everything": True}[what])
    os.execvp(argv[0], argv)
