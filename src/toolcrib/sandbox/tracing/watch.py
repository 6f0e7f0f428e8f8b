"""Watch what a confined command asks of the kernel, from outside: paths, programs, network.

The kernel holds the command at each watched call and tells the server (seccomp_unotify(2)), which reads the
path from the command's memory and lets the call go on. Nothing is decided by what was read there, since
another thread may change it meanwhile: the grants, Landlock and the other filter hold the command as ever.
The one answer that is given here is the refusal of internet sockets, by the number of their family, which
the kernel has copied. When the server goes, the calls that wait fail.
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

from toolcrib.sandbox.tracing.watched import ADDRESSED, SOCKET, Access, Act, calls, opened

__all__ = ["Seen", "Watcher", "needs_folder"]

# linux/seccomp.h: struct seccomp_notif (id, pid, flags, number, arch, instruction pointer, six arguments)
# and struct seccomp_notif_resp (id, value, error, flags).
_ASKED = struct.Struct("=QIIiIQ6Q")
_ANSWER = struct.Struct("=QqiI")
_RECV, _SEND, _ID_VALID = 0xC0502100, 0xC0182101, 0x40082102
_CONTINUE = 1
_PATH_MAX = 4096
_ADDRESS_MAX = 128
_OWN = re.compile(rb"(?s:(?:/proc/(?:thread-)?self|/dev(?=/fd/))/(cwd|fd/[0-9]+)(/.*)?)")
"""What a process reaches through its own descriptors and working folder (proc(5))."""
_AT_FDCWD = -100
_INET = {2: (4, 4), 10: (8, 16)}
"""Of each family: where the address begins in its sockaddr, and its length (ip(7), ipv6(7))."""


class Seen(NamedTuple):
    """One thing a command was about to do."""

    call: str
    access: Access
    path: str
    """Absolute, as the command sees it; of `network` the address and port, or nothing where there is none."""


class _Gone(Exception):
    """The thread that asked has ended, or was interrupted: there is nobody to answer."""


class Watcher:
    """Serves one command's notifications.

    Arguments:
        listener: the descriptor that they come by; it is closed with this.
        see: told each thing, while the command waits.
        sockets: whether internet sockets may be made; else each is refused with EACCES.
    """

    def __init__(self, listener: int, see: Callable[[Seen], None], *, sockets: bool) -> None:
        self.listener = listener
        self.count = 0
        """Calls served."""
        self._see = see
        self._sockets = sockets
        self._calls = calls(os.uname().machine)
        self._poll = select.poll()
        self._poll.register(listener, select.POLLIN)

    def serve(self) -> bool:
        """Answer one call that waits; False when none will come any more.

        Raises:
            OSError: what the command asks cannot be read. The call is refused then: what is not seen must
                not happen unseen.
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
            if error.errno in (errno.ENOENT, errno.EINTR):  # Killed before it could be told.
                return True
            raise
        cookie, pid, _, number, _, _, *arguments = _ASKED.unpack(asked)
        refusal = errno.EPERM
        try:
            refusal = self._tell(cookie, pid, number, tuple(arguments))
        except _Gone:
            return True
        finally:
            self._answer(cookie, refusal)
        self.count += 1
        return True

    def close(self) -> None:
        """Watch no longer; what still runs then is refused every watched call."""
        if self.listener >= 0:
            os.close(self.listener)
            self.listener = -1

    def _tell(self, cookie: int, pid: int, number: int, arguments: tuple[int, ...]) -> int:
        """Tell what a call is about; the errno it is refused with, 0 to let it go on."""
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
        """The path of a call, absolute; None for one that is empty or no path at all."""
        written = self._memory(cookie, pid, arguments[act.path], _PATH_MAX)
        if written is None:
            return None
        text, end, _ = written.partition(b"\0")
        if not end or not text:  # Too long, or the descriptor itself is meant.
            return None
        folder = _AT_FDCWD if act.folder is None else ctypes.c_int32(arguments[act.folder] & 0xFFFFFFFF).value
        return self._absolute(cookie, pid, text, folder)

    def _absolute(self, cookie: int, pid: int, text: bytes, folder: int) -> str | None:
        """A path from a folder of the command's; None for none."""
        if not text:
            return None
        own = _OWN.fullmatch(text)
        if own is not None:
            link, text = os.fsdecode(own.group(1)), own.group(2)
        elif not needs_folder(text):
            return os.fsdecode(text)
        else:
            link = "cwd" if folder == _AT_FDCWD else f"fd/{folder}"
        try:
            start = os.readlink(f"/proc/{pid}/{link}")
        except FileNotFoundError:  # It has no such descriptor, or is gone.
            return None
        except OSError as error:
            raise self._trouble(cookie, error) from None
        if not start.startswith("/"):
            return None
        return os.path.join(start, os.fsdecode(text).lstrip("/")) if text else start

    def _memory(self, cookie: int, pid: int, place: int, length: int) -> bytes | None:
        """Bytes of the command's memory, fewer where they end before; None for a bad pointer."""
        try:
            memory = os.open(f"/proc/{pid}/mem", os.O_RDONLY | os.O_CLOEXEC)
            try:
                # The process that was opened is the one that asks, unless it has gone meanwhile.
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
        """What an error means: that nobody is there any more, or that we may not look."""
        return error if self._waits(cookie) else _Gone()

    def _waits(self, cookie: int) -> bool:
        try:
            fcntl.ioctl(self.listener, _ID_VALID, struct.pack("=Q", cookie))
        except OSError:
            return False
        return True

    def _answer(self, cookie: int, refusal: int) -> None:
        answer = bytearray(_ANSWER.pack(cookie, 0, -refusal, 0 if refusal else _CONTINUE))
        try:
            fcntl.ioctl(self.listener, _SEND, answer)
        except OSError as error:
            if error.errno not in (errno.ENOENT, errno.EINPROGRESS):
                raise


def internet_address(raw: bytes) -> str | None:
    """The internet address and port of a sockaddr; None for any other."""
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
    """The path name of a unix socket's sockaddr; nothing for any other."""
    return raw[2:].partition(b"\0")[0] if int.from_bytes(raw[:2], "little") == socket.AF_UNIX else b""


def needs_folder(path: bytes) -> bool:
    """Whether a path starts from somewhere."""
    return not path.startswith(b"/")
