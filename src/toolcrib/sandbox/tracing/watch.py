"""Watch, from outside, the system calls of a confined command that name paths, programs or the network.

The kernel stops the command at each watched call and notifies the server (seccomp_unotify(2)), which reads
the path from the command's memory and lets the call continue. Nothing is decided by what was read, because
another thread may change it meanwhile: the grants, Landlock and the other filter confine the command as
always. The only decision here is to refuse internet sockets, by the number of their family, which the kernel
has copied. When the server ends, the waiting calls fail.

Our own code rather than strace or ptrace(2): both must be permitted in the sandbox, which they are not, and
slow down every call.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import ipaddress
import os
import re
import select
import socket
import struct
from collections.abc import Callable
from typing import NamedTuple

from toolcrib.sandbox.tracing.watched_calls import ADDRESSED, SOCKET, Access, Act, calls, opened

# linux/seccomp.h: struct seccomp_notif (id, pid, flags, number, arch, instruction pointer, six arguments)
# and struct seccomp_notif_resp (id, value, error, flags).
_ASKED = struct.Struct("=QIIiIQ6Q")
_ANSWER = struct.Struct("=QqiI")
_RECV, _SEND, _ID_VALID = 0xC0502100, 0xC0182101, 0x40082102
_CONTINUE = 1
_PATH_MAX = 4096
_ADDRESS_MAX = 128
_OWN = re.compile(rb"(?s:(?:/proc/(?:thread-)?self|/dev(?=/fd/))/(cwd|fd/[0-9]+)(/.*)?)")
"""Paths through a process's own descriptors and working folder (proc(5))."""
_AT_FDCWD = -100
_INET = {2: (4, 4), 10: (8, 16)}
"""Family to the offset of the address in its sockaddr, and its length (ip(7), ipv6(7))."""


class Seen(NamedTuple):
    """One thing that a command was about to do."""

    call: str
    access: Access
    path: str
    """Absolute, as the command sees it; for `network` the address and port, if there is one."""


class _Gone(Exception):
    """The thread that made the call has ended, or was interrupted: no answer is needed."""


class Watcher:
    """Serves one command's notifications.

    Arguments:
        listener: the descriptor that they come by; `close` closes it.
        see: called with each thing, while the command waits.
        sockets: allow internet sockets; otherwise each is refused with EACCES.
    """

    def __init__(self, listener: int, see: Callable[[Seen], None], *, sockets: bool) -> None:
        self.listener = listener
        self._see = see
        self._sockets = sockets
        self._calls = calls(os.uname().machine)
        self._poll = select.poll()
        self._poll.register(listener, select.POLLIN)

    def serve(self) -> bool:
        """Answer one waiting call, if there is one; return False when none will come any more.

        Raises:
            OSError: the arguments of the call cannot be read. It is refused then.
        """
        ready = self._poll.poll(0)
        if not ready:
            return True
        if not ready[0][1] & select.POLLIN:
            return False
        asked = bytearray(_ASKED.size)
        try:
            fcntl.ioctl(self.listener, _RECV, asked)
        except OSError as error:
            if error.errno in (errno.ENOENT, errno.EINTR):  # Killed before it could be read.
                return True
            raise
        cookie, pid, _, number, _, _, *arguments = _ASKED.unpack(asked)
        refusal = errno.EPERM
        try:
            refusal = self._report(cookie, pid, number, tuple(arguments))
        except _Gone:
            return True
        finally:
            self._answer(cookie, refusal)
        return True

    def close(self) -> None:
        """Stop watching; processes that still run are refused every watched call."""
        if self.listener >= 0:
            os.close(self.listener)
            self.listener = -1

    def _report(self, cookie: int, pid: int, number: int, arguments: tuple[int, ...]) -> int:
        """Report the things a call names; return the errno to refuse it with, 0 to let it continue."""
        name, acts = self._calls[number]
        found: list[Seen] = []
        if name == SOCKET:
            found.append(Seen(name, "network", ""))
        elif name in ADDRESSED:
            place, length = (arguments[index] for index in ADDRESSED[name])
            raw = self._memory(cookie, pid, place, min(length, _ADDRESS_MAX)) if place else None
            if address := internet_address(raw or b""):
                found.append(Seen(name, "network", address))
            elif path := self._absolute(cookie, pid, unix_path(raw or b""), _AT_FDCWD):
                found.append(Seen(name, "make" if name == "bind" else "write", path))
        for act in acts:
            path = self._path(cookie, pid, act, arguments)
            if path is not None:
                access = opened(name, arguments) if act.access == "open" else act.access
                found.append(Seen(name, access, path))
        for seen in found:
            self._see(seen)
        return errno.EACCES if name == SOCKET and not self._sockets else 0

    def _path(self, cookie: int, pid: int, act: Act, arguments: tuple[int, ...]) -> str | None:
        """Return the absolute path of a call; None if it is empty or not readable as a path."""
        written = self._memory(cookie, pid, arguments[act.path], _PATH_MAX)
        if written is None:
            return None
        text, end, _ = written.partition(b"\0")
        if not end or not text:  # Too long, or the descriptor itself is meant.
            return None
        folder = _AT_FDCWD if act.folder is None else ctypes.c_int32(arguments[act.folder] & 0xFFFFFFFF).value
        return self._absolute(cookie, pid, text, folder)

    def _absolute(self, cookie: int, pid: int, text: bytes, folder: int) -> str | None:
        """Return a path, starting from a folder of the command; None for none."""
        if not text:
            return None
        own = _OWN.fullmatch(text)
        if own is not None:
            link, text = os.fsdecode(own.group(1)), own.group(2)
        elif text.startswith(b"/"):
            return os.fsdecode(text)
        else:
            link = "cwd" if folder == _AT_FDCWD else f"fd/{folder}"
        try:
            start = os.readlink(f"/proc/{pid}/{link}")
        except FileNotFoundError:  # The process has no such descriptor, or is gone.
            return None
        except OSError as error:
            raise self._trouble(cookie, error) from None
        if not start.startswith("/"):
            return None
        return os.path.join(start, os.fsdecode(text).lstrip("/")) if text else start

    def _memory(self, cookie: int, pid: int, place: int, length: int) -> bytes | None:
        """Return bytes of the command's memory, fewer if it ends before; None for a bad pointer."""
        try:
            memory = os.open(f"/proc/{pid}/mem", os.O_RDONLY | os.O_CLOEXEC)
            try:
                # The process opened is the one that made the call, unless that has ended meanwhile.
                if not self._waits(cookie):
                    raise _Gone
                return os.pread(memory, length, place) if 0 < place < 1 << 63 else None
            finally:
                os.close(memory)
        except OSError as error:
            if error.errno in (errno.EIO, errno.EFAULT, errno.EINVAL, errno.EOVERFLOW):
                return None
            raise self._trouble(cookie, error) from None

    def _trouble(self, cookie: int, error: OSError) -> Exception:
        """Return the error if the call still waits, so we may not read its process; else that it is gone."""
        return error if self._waits(cookie) else _Gone()

    def _waits(self, cookie: int) -> bool:
        """Return True if a call still waits for its answer."""
        try:
            fcntl.ioctl(self.listener, _ID_VALID, struct.pack("=Q", cookie))
        except OSError:
            return False
        return True

    def _answer(self, cookie: int, refusal: int) -> None:
        """Let a call continue, or refuse it."""
        answer = bytearray(_ANSWER.pack(cookie, 0, -refusal, 0 if refusal else _CONTINUE))
        try:
            fcntl.ioctl(self.listener, _SEND, answer)
        except OSError as error:
            if error.errno not in (errno.ENOENT, errno.EINPROGRESS):
                raise


def internet_address(raw: bytes) -> str | None:
    """Return the internet address and port of a sockaddr; None for other families."""
    family = int.from_bytes(raw[:2], "little")
    if family not in _INET:
        return None
    start, size = _INET[family]
    if len(raw) < start + size:
        return None
    address = ipaddress.ip_address(raw[start : start + size])
    port = int.from_bytes(raw[2:4], "big")
    return f"[{address}]:{port}" if family != 2 else f"{address}:{port}"


def unix_path(raw: bytes) -> bytes:
    """Return the path name of a unix socket's sockaddr; nothing for other families."""
    return raw[2:].partition(b"\0")[0] if int.from_bytes(raw[:2], "little") == socket.AF_UNIX else b""
