"""Messages between the server, the launcher and the processes of a sandbox, with descriptors attached.

Every socket is a SOCK_SEQPACKET pair (unix(7)), which keeps the bounds of a message and reports when the
other end is gone. Standard library only, and without `socket`, whose import costs more than all of this.
"""

from __future__ import annotations

import _socket
import errno
import os
import sys
import time

from toolcrib.sandbox.kernel.libc import SetupFailure

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

MAX_MESSAGE = 65_536
MAX_DESCRIPTORS = 8
RETRY_S = 0.003


class RunScript(BaseException):
    """Raised in a forked process to leave the launcher's code: the rest of the process is the script's
    `main`."""

    def __init__(self, main: Callable[[], None]) -> None:
        super().__init__()
        self.main = main


def send(fd: int, data: bytes, fds: Iterable[int] = ()) -> None:
    """Send one message, with copies of descriptors; it waits while this user has too many under way."""
    sock = _socket.socket(fileno=fd)
    try:
        rights = b"".join(one.to_bytes(4, sys.byteorder) for one in fds)
        more = [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, rights)] if rights else []
        while True:
            try:
                sock.sendmsg([data], more)
                return
            except OSError as error:
                if error.errno != errno.ETOOMANYREFS:
                    raise
                time.sleep(RETRY_S)
    finally:
        sock.detach()


def receive(fd: int) -> tuple[bytes, list[int]]:
    """Wait for one message and its descriptors; empty when the other end is gone."""
    sock = _socket.socket(fileno=fd)
    try:
        space = _socket.CMSG_SPACE(4 * MAX_DESCRIPTORS)
        data, rights, _, _ = sock.recvmsg(MAX_MESSAGE, space, _socket.MSG_CMSG_CLOEXEC)
    except ConnectionResetError:
        return b"", []
    finally:
        sock.detach()
    raw = b"".join(part for _, _, part in rights)
    return data, [int.from_bytes(raw[n : n + 4], sys.byteorder) for n in range(0, len(raw), 4)]


def report(control: int, message: str) -> None:
    """Send a message to the server, if it still lives."""
    try:
        send(control, message.encode("utf-8", "surrogateescape"))
    except OSError:
        pass


def run_child(control: int, body: Callable[[], None]) -> None:
    """Run the rest of a forked process: an error is reported to the server, and the process ends."""
    try:
        body()
    except SetupFailure as failure:
        report(control, failure.message)
    except Exception as error:
        number = error.errno or 0 if isinstance(error, OSError) else 0
        report(control, SetupFailure("set-up", number, text=repr(error)).message)
    os._exit(126)
