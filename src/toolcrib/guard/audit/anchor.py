"""The head of an audit log, kept where only its user writes: it shows that lines are missing at the end."""

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
"""The format of a head, written over the previous one: number and digest."""

_SIZE = 86
_FLAGS = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_shape = re.compile(rb"([0-9]{20}) ([0-9a-f]{64})\n").fullmatch


class Anchor:
    """One small file, overwritten after every line by whoever has the log's lock.

    The log writes to `fd` directly: one more call for every line would be felt.
    """

    def __init__(self, path: Path | Callable[[], Path]) -> None:
        self._where = path
        self.fd = -1
        """The open file; -1 before the first `read`."""

    def read(self) -> Head:
        """Return the head, `Head()` if there is none yet. OSError, AuditUnavailable."""
        path = self._path()
        if self.fd < 0 or not _leads_to(path, self.fd):
            self.close()
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            fd = os.open(path, os.O_RDWR | os.O_CREAT | _FLAGS, 0o600)
            if not stat.S_ISREG(os.fstat(fd).st_mode):
                os.close(fd)
                raise OSError(22, "the anchor is not a regular file")
            self.fd = fd
        return _parse(os.pread(self.fd, _SIZE + 1, 0), path) or Head()

    def close(self) -> None:
        """Close the file; the next `read` opens it again."""
        if self.fd >= 0:
            os.close(self.fd)
        self.fd = -1

    def _path(self) -> Path:
        if not isinstance(self._where, Path):
            try:
                self._where = self._where()
            except StateUnavailable as error:
                message = f"The audit log cannot be anchored: {error.message}"
                raise AuditUnavailable(message, hint=error.hint, details=error.details) from None
        return self._where


def read_anchor(path: Path) -> Head | None:
    """Return the head in an anchor, None if there is none. AuditUnavailable if it contains something else."""
    try:
        fd = os.open(path, os.O_RDONLY | _FLAGS)
    except FileNotFoundError:
        return None
    try:
        return _parse(os.pread(fd, _SIZE + 1, 0), path)
    finally:
        os.close(fd)


def _leads_to(path: Path, fd: int) -> bool:
    try:
        return os.path.samestat(os.lstat(path), os.fstat(fd))
    except OSError:
        return False


def _parse(data: bytes, path: Path) -> Head | None:
    if not data.strip(b"\0"):  # A power cut can leave this of a file that was just created.
        return None
    found = _shape(data)
    if found is None:
        raise AuditUnavailable(
            f"The audit log's anchor {path} is damaged, so the log's true end is unknown.",
            hint="Find out what changed it. Remove it to start a new anchor; the chain stays checkable.",
            details={"path": str(path), "error": "anchor"},
        )
    return Head(int(found[1]), found[2].decode())
