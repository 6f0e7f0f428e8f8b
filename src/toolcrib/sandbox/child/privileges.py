"""The privileges and limits of a confined process at any level: capabilities, keyring, signals, limits.

Our own calls, because they are made between fork and exec, where only the standard library may be loaded.
See capabilities(7), prctl(2), keyrings(7).
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]  # `signal` without `enum`, which is most of its import time
import ctypes
import errno
import os
import resource

from toolcrib.sandbox.kernel import landlock, seccomp
from toolcrib.sandbox.kernel.libc import (
    PR_SET_NO_NEW_PRIVS,
    PR_SET_PDEATHSIG,
    SIGKILL,
    SetupFailure,
    check,
    libc,
    prctl,
    readable,
    syscall,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

# linux/prctl.h
PR_CAPBSET_DROP, PR_SET_SECUREBITS = 24, 28
PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL = 47, 4
# noroot, no_setuid_fixup, no_cap_ambient_raise, each of them and keep_caps locked (linux/securebits.h)
SECUREBITS = 0xEF
CAPABILITY_VERSION_3 = 0x20080522
SYS_KEYCTL = {"x86_64": 250, "aarch64": 219}
KEYCTL_JOIN_SESSION_KEYRING = 1
SYS_RT_SIGACTION = {"x86_64": 13, "aarch64": 134}
RESERVED_SIGNALS = (32, 33)
"""Signals of the C library, which it refuses to set itself. A parent that does without it can ignore them."""


def join_cgroup(files: Iterable[int]) -> None:
    """Join a control group, with all that comes from this process.

    Arguments:
        files: its open `tasks` or `cgroup.procs` files.
    """
    try:
        for fd in files:
            os.write(fd, b"0")
    except OSError as error:
        raise SetupFailure("cgroup", error.errno or 0) from None


def die_with(launcher: int) -> None:
    """Have the kernel kill this process when its launcher, given as a pidfd, dies; end if it is dead
    already."""
    prctl("parent death signal", PR_SET_PDEATHSIG, SIGKILL)
    if readable(launcher):
        os._exit(0)


def leave_keyring() -> None:
    """Take a fresh session keyring: the inherited one gives access to its keys."""
    joined = syscall(SYS_KEYCTL[os.uname().machine], KEYCTL_JOIN_SESSION_KEYRING, 0)
    # Where this process may not make the call, the command may not either.
    if joined < 0 and ctypes.get_errno() not in (errno.ENOSYS, errno.EPERM, errno.EACCES):
        raise SetupFailure("session keyring", ctypes.get_errno())


def drop_privileges() -> None:
    """Give up every capability for good: none can be gained by exec, or raised again."""
    stage = "capabilities"
    prctl(stage, PR_SET_SECUREBITS, SECUREBITS)
    prctl(stage, PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL)
    # The bounding set limits what exec could ever give back, whatever a file's capabilities say.
    for capability in range(64):
        if libc.prctl(PR_CAPBSET_DROP, ctypes.c_ulong(capability), 0, 0, 0) < 0:
            if ctypes.get_errno() == errno.EINVAL:  # beyond the last capability of this kernel
                break
            raise SetupFailure(stage, ctypes.get_errno())
    clear_capabilities()


def clear_capabilities() -> None:
    """Clear the capability sets, and gain none by exec (no_new_privs)."""
    header = (ctypes.c_uint32 * 2)(CAPABILITY_VERSION_3, 0)
    check("capabilities", libc.capset(header, (ctypes.c_uint32 * 6)()))
    prctl("no_new_privs", PR_SET_NO_NEW_PRIVS, 1)


def reset_process(cwd: str) -> None:
    """Set signals, streams and working folder as every command gets them.

    The server may ignore signals, as under nohup; that would be inherited.
    """
    for number in _signal.valid_signals():
        if number not in (_signal.SIGKILL, _signal.SIGSTOP):
            _signal.signal(number, _signal.SIG_DFL)
    # A signal that is ignored stays so after exec; the C library needs these two for its threads.
    for number in RESERVED_SIGNALS:
        syscall(SYS_RT_SIGACTION[os.uname().machine], number, bytes(32), 0, 8)
    _signal.pthread_sigmask(_signal.SIG_SETMASK, ())
    for target, mode in ((0, os.O_RDONLY), (1, os.O_WRONLY), (2, os.O_WRONLY)):
        null = os.open("/dev/null", mode)
        os.dup2(null, target)
        if null != target:
            os.close(null)
    try:
        os.chdir(cwd)
    except OSError as error:
        raise SetupFailure("cwd", error.errno or 0, cwd) from None


def set_limits(limits: Iterable[tuple[int, int]]) -> None:
    """Set resource limits, as number and value, never above the present ones."""
    try:
        for which, value in limits:
            _, hard = resource.getrlimit(which)
            soft = value if hard == resource.RLIM_INFINITY else min(value, hard)
            # At the soft limit of processor time comes SIGXCPU, at the hard one SIGKILL: a second to react.
            end = soft + 1 if which == resource.RLIMIT_CPU and soft != hard else soft
            resource.setrlimit(which, (soft, end))
    except (OSError, ValueError) as error:  # setrlimit raises ValueError for EPERM.
        raise SetupFailure("prlimit64", getattr(error, "errno", None) or errno.EPERM) from None


def enforce(ruleset: landlock.Ruleset, code: bytes) -> None:
    """Limit this process by Landlock, which forbids mounting, and then by a filter, which forbids most
    else."""
    stage = "landlock"
    try:
        ruleset.enforce()
        stage = "seccomp"
        seccomp.install(code)
    except OSError as error:
        raise SetupFailure(stage, error.errno or 0) from None
