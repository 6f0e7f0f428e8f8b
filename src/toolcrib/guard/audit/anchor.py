"""The last line of an audit log, kept where only its user writes: lines removed or added at the end show.

A line is put here before it is written to the log. So the log ends with this line; any other end was made by
another program. Only a process that is killed between the two leaves a log without it, and then the next
writer writes it. A record is written over the one before it, and may leave bytes of a longer one behind it:

    DIGEST STATE KEYED-DIGEST PROCESS
    the line

The digest is that of the line. The keyed digest (BLAKE2b) covers the digest and the process that wrote the
line; the key is in a file beside the anchor. The state is `=` once that process has closed the log.
"""

from __future__ import annotations

import errno
import hmac
import os
import re
import stat
from collections.abc import Callable
from hashlib import blake2b, sha256
from os import pwrite
from pathlib import Path
from typing import NamedTuple

from toolcrib.errors import AuditUnavailable, StateUnavailable
from toolcrib.guard.audit.files import is_at
from toolcrib.guard.audit.line import Head, parse
from toolcrib.state import is_running, short_name
from toolcrib.state.private import make_private, open_plain, put_private

ANCHOR = "audit-head"
"""Name of the file in a user's own folder."""

_KEY = "audit-key"
"""Name of the file of the key, beside the anchor."""
# After the digest of 64 characters and a space.
_STATE_AT = 65
_LONGEST = 4 * 1024 * 1024
_FLAGS = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_shape = re.compile(rb"([0-9a-f]{64}) ([?=]) ([0-9a-f]{32}) ([0-9]+/[0-9]+)").fullmatch


class Anchored(NamedTuple):
    """The content of an anchor."""

    head: Head
    line: bytes = b""
    """The last line, with its newline; empty if only its number and digest are known."""
    writer: str = ""
    """The process that wrote it; empty once it has closed the log."""
    keyed: bool = False
    """True if the keyed digest was checked."""

    @property
    def exact(self) -> bool:
        """False if its line is not known: the log may then have more lines."""
        return bool(self.line)

    def lacks_last(self, end: Head) -> bool:
        """Return True if a log that ends so lacks only a line whose writer was killed before writing it."""
        # A line ends with its `prev` and a newline, so this is the digest of the line before it.
        before = Head(self.head.seq - 1, self.line[-65:-1].decode())
        # A process of another container cannot be seen; it may have been killed.
        return end == before and self.writer != "" and not is_running(self.writer)


class Anchor:
    """One small file, overwritten for every line by whoever has the log's lock."""

    def __init__(self, path: Path | Callable[[], Path]) -> None:
        self._where = path
        self._fd = -1
        self._key, self._keyed = "", blake2b(digest_size=16)
        self._record = self._before = b""

    def read(self) -> Anchored | None:
        """Return the content, None if there is none yet. OSError, AuditUnavailable."""
        path = self._path()
        if self._fd < 0 or not is_at(path, os.fstat(self._fd)):
            self.close()
            make_private(path.parent)
            fd = os.open(path, os.O_RDWR | os.O_CREAT | _FLAGS, 0o600)
            if not stat.S_ISREG(os.fstat(fd).st_mode):
                os.close(fd)
                raise OSError(22, "the anchor is not a regular file")
            self._fd = fd
            self._set_key(path)
        self._record = os.pread(self._fd, _LONGEST, 0)
        return _parse(self._record, path, self._key)

    def announce(self, digest: str, line: bytes) -> None:
        """Put a line here that is written to the log next."""
        process, keyed = short_name(), self._keyed.copy()
        keyed.update(f"{digest}{process}".encode())
        record = f"{digest} ? {keyed.hexdigest()} {process}\n".encode() + line
        written = pwrite(self._fd, record, 0)
        self._before, self._record = self._record, record
        if written != len(record):
            self.withdraw()
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def withdraw(self) -> None:
        """Undo the last `announce`: its line could not be written."""
        self._record = self._before
        os.pwrite(self._fd, self._record, 0)
        # Writing an empty record changes nothing, so the announced line would stay here.
        if not self._record:
            os.ftruncate(self._fd, 0)

    def confirm(self) -> None:
        """Record that the last line has been written and its writer leaves."""
        if self._record[_STATE_AT : _STATE_AT + 1] == b"?":
            os.pwrite(self._fd, b"=", _STATE_AT)

    def close(self) -> None:
        """Close the file; the next `read` opens it again."""
        if self._fd >= 0:
            os.close(self._fd)
        self._fd = -1

    def _set_key(self, path: Path) -> None:
        """Read the key. If it is missing, make another, and a record that fits it."""
        key = _read_key(path)
        if not key:
            try:
                put_private(path.with_name(_KEY), os.urandom(64).hex().encode())
            except StateUnavailable as error:
                raise _no_anchor(error) from None
            key = _read_key(path)
            # Without this, the record under the lost key would count as damaged, and no call could run.
            found = _shape(os.pread(self._fd, _LONGEST, 0).partition(b"\n")[0])
            if found is not None:
                os.pwrite(self._fd, _keyed(key, found), _STATE_AT + 2)
        self._key, self._keyed = key, blake2b(key.encode(), digest_size=16)

    def _path(self) -> Path:
        if not isinstance(self._where, Path):
            try:
                self._where = self._where()
            except StateUnavailable as error:
                raise _no_anchor(error) from None
        return self._where


def read_anchor(path: Path) -> Anchored | None:
    """Return the content of an anchor, None if there is none. AuditUnavailable if it is something else."""
    try:
        fd = os.open(path, os.O_RDONLY | _FLAGS)
    except FileNotFoundError:
        return None
    try:
        return _parse(os.pread(fd, _LONGEST, 0), path, _read_key(path))
    finally:
        os.close(fd)


def _read_key(anchor: Path) -> str:
    """Return the key beside the anchor: 128 characters, a whole block of BLAKE2b. Empty if there is none."""
    try:
        with open_plain(anchor.with_name(_KEY)) as file:
            return file.read(128).decode("ascii", errors="replace")
    except FileNotFoundError:
        return ""


def _no_anchor(error: StateUnavailable) -> AuditUnavailable:
    message = f"The audit log cannot be anchored: {error.message}"
    return AuditUnavailable(message, hint=error.hint, details=error.details)


def _parse(data: bytes, path: Path, key: str) -> Anchored | None:
    if not data.strip(b"\0"):  # A power cut can leave this of a file that was just created.
        return None
    first, _, rest = data.partition(b"\n")
    found, line = _shape(first), rest[: rest.find(b"\n") + 1]
    try:
        if found is None or sha256(line).hexdigest().encode() != found[1] or not _is_genuine(found, key):
            raise ValueError
        seq = parse(line).seq
    except ValueError:
        raise AuditUnavailable(
            f"The audit log's anchor {path} is damaged, so the log's true end is unknown.",
            hint="Find out what changed it. Remove it to start a new anchor; the chain stays checkable.",
            details={"path": str(path), "error": "anchor"},
        ) from None
    writer = found[4].decode() if found[2] == b"?" else ""
    return Anchored(Head(seq, found[1].decode()), line, writer, keyed=bool(key))


def _is_genuine(found: re.Match[bytes], key: str) -> bool:
    # Without the key the plain digest is all that can be checked; `verify` names the check that it skips.
    return not key or hmac.compare_digest(_keyed(key, found), found[3])


def _keyed(key: str, found: re.Match[bytes]) -> bytes:
    """Return the keyed digest of a record: the key fills the first block, as in BLAKE2's own keyed mode."""
    return blake2b(key.encode() + found[1] + found[4], digest_size=16).hexdigest().encode()
