"""The head of an audit log, kept where only its user writes: what shows that lines are gone from the end."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Callable
from pathlib import Path

from toolcrib.errors import AuditUnavailable, StateUnavailable
from toolcrib.guard.audit.line import Head

__all__ = ["ANCHOR", "FORM", "Anchor", "read_anchor"]

ANCHOR = "audit-head"
"""Name of the file in a user's own folder."""

FORM = b"%020d %b\n"
"""How a head is written, over the one before: its number and its digest."""

_SIZE = 86
_shape = re.compile(rb"([0-9]{20}) ([0-9a-f]{64})\n").fullmatch


class Anchor:
    """One small file, written in place after every line. Whoever uses it holds the log's lock.

    After the first `read` the file is open as `fd`: the log writes there by itself, since a call more for
    every line would be felt.
    """

    __slots__ = ("_device", "_inode", "_where", "fd")

    def __init__(self, path: Path | Callable[[], Path]) -> None:
        self._where = path
        self.fd = -1
        """The open file, -1 before the first `read`."""
        self._inode = self._device = 0

    def read(self) -> Head:
        """The head that was written last; number 0 where there is none yet. OSError, AuditUnavailable."""
        path = self._place()
        self._follow(path)
        return _head_of(os.pread(self.fd, _SIZE + 1, 0), path) or Head()

    def close(self) -> None:
        """Let go of the file."""
        if self.fd >= 0:
            os.close(self.fd)
        self.fd = -1

    def _place(self) -> Path:
        if isinstance(self._where, Path):
            return self._where
        try:
            self._where = self._where()
        except StateUnavailable as error:
            raise AuditUnavailable(
                f"The audit log cannot be anchored: {error.message}", hint=error.hint, details=error.details
            ) from None
        return self._where

    def _follow(self, path: Path) -> None:
        """Have the file open that the path leads to."""
        if self.fd >= 0:
            try:
                found = os.lstat(path)
            except OSError:
                found = None
            if found is not None and (found.st_ino, found.st_dev) == (self._inode, self._device):
                return
            self.close()
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        fd = os.open(path, flags, 0o600)
        held = os.fstat(fd)
        if not stat.S_ISREG(held.st_mode):
            os.close(fd)
            raise OSError(22, "the anchor is not a regular file")
        self.fd, self._inode, self._device = fd, held.st_ino, held.st_dev


def read_anchor(path: Path) -> Head | None:
    """The head an anchor holds, None where there is none. AuditUnavailable when it holds something else."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    try:
        return _head_of(os.pread(fd, _SIZE + 1, 0), path)
    finally:
        os.close(fd)


def _head_of(data: bytes, path: Path) -> Head | None:
    if not data.strip(b"\0"):  # What a power cut can leave of a file that was just made.
        return None
    found = _shape(data)
    if found is None:
        raise AuditUnavailable(
            f"The audit log's anchor {path} is damaged, so nothing says where the log should end.",
            hint="Find out what wrote it; `toolcrib audit verify` still works. Remove it to begin anew.",
            details={"path": str(path), "error": "anchor"},
        )
    return Head(int(found[1]), found[2].decode())
