"""Names of signals, and signals to a pidfd, also where a filter denies pidfd_send_signal(2).

Then the signal is sent by number, right after the kernel confirmed that the pidfd still refers to its
process: a number is not used again before the process was waited for, and then the kernel reports none.
"""

from __future__ import annotations

import errno
import os
import signal
from collections.abc import Callable
from functools import cache

FILTERED = (errno.ENOSYS, errno.EPERM)


def signal_name(number: int) -> str:
    """Return the name of a signal, or its number in words."""
    try:
        return signal.Signals(number).name
    except ValueError:  # Of the real-time signals, only the first and the last have names.
        return f"signal {number}"


@cache
def sender() -> Callable[[int, int], None]:
    """Return the function that sends a signal, by its number, to the process of a pidfd.

    It raises ProcessLookupError if the process has ended and was waited for.
    """
    return by_number if try_pidfd_signal() in FILTERED else signal.pidfd_send_signal


def by_number(pidfd: int, number: int) -> None:
    """Send a signal to the process that a pidfd refers to now (proc(5), /proc/PID/fdinfo)."""
    with open(f"/proc/self/fdinfo/{pidfd}", encoding="ascii") as file:
        fields = dict(line.split(":", 1) for line in file if ":" in line)
    pid = int(fields.get("Pid", 0))
    if pid <= 0:
        raise ProcessLookupError(errno.ESRCH, os.strerror(errno.ESRCH))
    os.kill(pid, number)


@cache
def try_pidfd_signal() -> int:
    """Try pidfd_send_signal(2) on this process, once; return its errno, 0 if it works."""
    try:
        pidfd = os.pidfd_open(os.getpid())
    except OSError as error:
        return error.errno or 0
    try:
        signal.pidfd_send_signal(pidfd, 0)
    except OSError as error:
        return error.errno or 0
    finally:
        os.close(pidfd)
    return 0
