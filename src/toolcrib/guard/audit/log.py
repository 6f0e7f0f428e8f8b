"""The audit log: one append-only file a project, one line an event, each with the digest of the one before.

Every process of a project appends to the same file under one lock, and nothing is ever taken out again. What
cannot be recorded is refused (`AuditUnavailable`): a tool whose call leaves no trace does not run.
`docs/audit.md` says what each event means and what the chain proves. A file that has grown large is closed
by an event of its own and renamed; number and digest go on in the next. The head is kept in an anchor outside
the project, so that lines cannot be taken from the end unseen.
"""

from __future__ import annotations

import errno
import os
import stat
import time
import weakref
from collections.abc import Callable
from fcntl import LOCK_EX, LOCK_NB, LOCK_UN, flock
from hashlib import sha256
from os import pwrite
from pathlib import Path
from threading import Lock
from types import TracebackType
from typing import Any

from toolcrib.errors import AuditUnavailable
from toolcrib.guard.audit.anchor import FORM, Anchor
from toolcrib.guard.audit.files import (
    Tail,
    first_number,
    holds,
    lock_file,
    look_at,
    newest_rotated,
    rotated_name,
)
from toolcrib.guard.audit.line import GENESIS, Head, encode_fields, known_events, require_event

__all__ = ["MAX_BYTES", "AuditLog"]

MAX_BYTES = 64 * 1024 * 1024
"""A file of this size is closed, and the log goes on in a new one."""

_FLAGS = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


class AuditLog:
    """Appends to one audit log. Safe for threads, for other processes on the same file, and across fork.

    Nothing is opened or created before the first record. `anchor` is a file outside the project that keeps
    the head, or gives that file when it is first needed; `max_bytes` is the size at which a file is closed
    and the next one begun. With `durable`, each record is on the disk before `record` returns; without, it is
    with the kernel: it outlives the process, not a power cut. `clock` gives seconds since the epoch;
    `lock_timeout` is how many seconds to wait for another process.
    """

    __slots__ = (
        "__weakref__",
        "_anchor",
        "_clock",
        "_device",
        "_durable",
        "_end",
        "_fd",
        "_hash",
        "_inode",
        "_lock_timeout",
        "_lost",
        "_max_bytes",
        "_mutex",
        "_name",
        "_second",
        "_seq",
        "_stamp",
        "_trouble",
    )

    def __init__(
        self,
        path: Path,
        anchor: Path | Callable[[], Path] | None = None,
        *,
        max_bytes: int = MAX_BYTES,
        durable: bool = False,
        clock: Callable[[], float] = time.time,
        lock_timeout: float = 5.0,
    ) -> None:
        self._name = os.path.abspath(path)  # noqa: PTH100 - a text is what lstat takes fastest, once a record
        self._anchor = None if anchor is None else Anchor(anchor)
        self._max_bytes = max_bytes
        self._durable = durable
        self._clock = clock
        self._lock_timeout = lock_timeout
        self._second = -1
        self._stamp = ""
        self._lost = 0
        self._trouble = ""
        self._fd, self._end, self._inode, self._device = -1, -1, 0, 0
        self._seq, self._hash = -1, GENESIS
        self._begin()
        _logs.add(self)

    @property
    def path(self) -> Path:
        """The file, absolute."""
        return Path(self._name)

    @property
    def head(self) -> Head:
        """The last line this object wrote or built on: what an anchor outside the project keeps."""
        return Head(max(self._seq, 0), self._hash)

    def record(self, event: str, /, **fields: Any) -> None:
        """Append one line. Secrets must be masked by the caller; values are JSON.

        Raises AuditUnavailable when the line cannot be written, and leaves no part of it; ValueError for an
        event or a field that is badly named.
        """
        self.append(event, encode_fields(fields))

    def append(self, event: str, body: str) -> None:
        """`record` for what `encode_fields` has made of the fields."""
        if event not in known_events:
            require_event(event)
        with self._mutex:
            try:
                self._append(f" {event}{body}")
            except (OSError, AuditUnavailable) as error:
                self._lost += 1
                raise self._unavailable(error) from error

    def ensure(self) -> None:
        """Raise AuditUnavailable unless a record could be written now: asked before a tool runs.

        After a failed record this writes the line that tells of the loss, which is the proof that writing
        works again.
        """
        if self._fd >= 0 and not self._lost:
            return
        with self._mutex:
            try:
                self._append(None)
            except (OSError, AuditUnavailable) as error:
                raise self._unavailable(error) from error

    def close(self) -> None:
        """Let go of the file; a later record opens it again."""
        with self._mutex:
            self._let_go()

    def __enter__(self) -> AuditLog:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # Below here the mutex is held.

    def _append(self, body: str | None) -> None:
        if self._fd < 0:
            self._open()
        try:
            try:
                flock(self._fd, _TRY)
            except BlockingIOError:
                lock_file(self._fd, LOCK_EX, self._lock_timeout)
            second = int(self._clock())
            # The length tells on every record whether somebody else has written. Whether the path still leads
            # to this file costs four times as much to ask, so that is asked once a second.
            if os.lseek(self._fd, 0, os.SEEK_END) != self._end or second != self._second or self._lost:
                self._stamp = time.strftime("[%Y-%m-%dT%H:%M:%S]", time.gmtime(second))
                self._settle()
                self._second = second
            if body is not None:
                if self._end >= self._max_bytes:
                    self._rotate()
                self._write(body)
        finally:
            if self._fd >= 0:
                flock(self._fd, LOCK_UN)
        if self._durable and body is not None:
            os.fdatasync(self._fd)

    def _write(self, body: str) -> None:
        seq = self._seq + 1
        line = f"{self._stamp}{body} seq={seq} prev={self._hash}\n".encode()
        size = len(line)
        written = 0
        try:
            written = os.write(self._fd, line)
            while written < size:
                written += os.write(self._fd, line[written:]) or _stuck()
            digest = sha256(line).hexdigest()
            if self._anchor is not None:
                pwrite(self._anchor.fd, FORM % (seq, digest.encode()), 0)
        except OSError:
            if written:
                self._take_back()
            raise
        self._seq = seq
        self._hash = digest
        self._end += size

    def _take_back(self) -> None:
        """Undo a short write. Where even that fails, the next writer finds the half line and says so."""
        end, self._end = self._end, -1
        try:
            os.ftruncate(self._fd, end)
        except OSError:
            return
        self._end = end

    def _settle(self) -> None:
        """See whether the log is as this process left it; write down whatever is not."""
        before = Head(self._seq, self._hash)
        try:
            reason = self._follow()
            kept = Head() if self._anchor is None else self._anchor.read()
            if reason or os.lseek(self._fd, 0, os.SEEK_END) != self._end or self._lost:
                self._take_up(max(before, kept, key=_number), reason)
        except BaseException:
            # What could not be written down now is found again at the next try.
            self._seq, self._hash, self._end = before.seq, before.hash, -1
            raise

    def _take_up(self, known: Head, reason: str) -> None:
        """Go on from where the log ends now; `known` is where it ended when that was last seen."""
        tail = self._tail()
        self._seq, self._hash = tail.head.seq, tail.head.hash
        if tail.open and self._end:
            self._end += os.write(self._fd, b"\n")
        reason = reason or self._difference(known, tail)
        if tail.strays:
            self._write(f" AUDIT_RECOVERED bytes={tail.strays}")
        if reason and known.seq > 0:
            self._write(f" AUDIT_GAP reason={reason} after_seq={known.seq} after={known.hash}")
        if self._lost:
            self._write(f" AUDIT_RESUMED lost={self._lost} error={self._trouble}")
            self._lost = 0

    def _difference(self, known: Head, tail: Tail) -> str:
        """How the log contradicts what was last known of it, if it does."""
        end = tail.head
        if end.seq < known.seq:
            return "cut"
        if end.seq == known.seq:
            return "altered" if not tail.strays and end.hash != known.hash else ""
        if self._anchor is None or known.seq <= 0:
            return ""
        # Lines that came after the anchor was set (a crash in between, say) must follow from its own.
        return "" if holds(self._name, known) else "altered"

    def _tail(self) -> Tail:
        """Where the log ends. A rotation that a crash cut short is carried on."""
        for _ in range(10):
            self._end = os.lseek(self._fd, 0, os.SEEK_END)
            tail = look_at(self._fd, self._end) if self._end else newest_rotated(self._name)
            if tail is None:
                raise AuditUnavailable(
                    f"{self._name} does not end like an audit log.",
                    hint="Move the file away to begin a new log.",
                )
            if not tail.closed or not self._end:
                return tail
            os.rename(self._name, self._rotated(tail.head.seq))  # noqa: PTH104 - as _name
            self._follow()
        raise OSError(errno.ESTALE, "the file is being rotated again and again")

    def _rotate(self) -> None:
        """Close the file and go on in a new one. Who waits for the lock finds it longer, and follows."""
        closed = os.path.basename(self._rotated(self._seq + 1))  # noqa: PTH119 - as _name
        self._write(f" AUDIT_ROTATED{encode_fields({'file': closed, 'next': self._seq + 2})}")
        if self._durable:
            os.fdatasync(self._fd)
        self._take_up(Head(self._seq, self._hash), "")

    def _rotated(self, last: int) -> str:
        """The name under which the file is kept from now on."""
        name = rotated_name(self._name, first_number(self._fd), last)
        if os.path.lexists(name):
            raise AuditUnavailable(
                f"The audit log {self._name} cannot be rotated: {name} exists.",
                hint="Move that file away; it was not written by this log.",
                details={"path": name, "error": "EEXIST"},
            )
        return name

    def _follow(self) -> str:
        """Where the path leads to another file than ours, open and lock that one; say what happened."""
        reason = ""
        ours = True
        deadline = time.monotonic() + self._lock_timeout
        while True:
            try:
                found = os.lstat(self._name)
            except (FileNotFoundError, NotADirectoryError):
                what = "removed"
            else:
                if found.st_ino == self._inode and found.st_dev == self._device:
                    return reason
                what = "replaced"
            if ours and not self._was_rotated():
                reason = what
            ours = False
            os.close(self._fd)
            self._fd = -1
            self._open()
            lock_file(self._fd, LOCK_EX, self._lock_timeout)
            if time.monotonic() > deadline:
                raise OSError(errno.ESTALE, "the file is being replaced again and again")

    def _was_rotated(self) -> bool:
        """Whether our file says itself that the log goes on in another."""
        tail = look_at(self._fd, os.lseek(self._fd, 0, os.SEEK_END))
        return tail is not None and tail.closed

    def _open(self) -> None:
        folder, name = os.path.split(self._name)
        os.makedirs(folder, mode=0o700, exist_ok=True)  # noqa: PTH103 - as _name
        # Neither the file nor its folder may be a link: a project is brought by others and could point
        # anywhere.
        parent = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            fd = os.open(name, _FLAGS, 0o600, dir_fd=parent)
            try:
                found = os.fstat(fd)
                if not stat.S_ISREG(found.st_mode):
                    raise OSError(errno.EINVAL, "not a regular file")
                if self._durable:
                    os.fsync(parent)
            except BaseException:
                os.close(fd)
                raise
        finally:
            os.close(parent)
        self._fd, self._inode, self._device = fd, found.st_ino, found.st_dev
        self._end = -1

    def _begin(self) -> None:
        """Begin anew: on the first day, and in a forked child (whose lock would be the parent's)."""
        self._mutex = Lock()
        self._let_go()

    def _let_go(self) -> None:
        if self._anchor is not None:
            self._anchor.close()
        if self._fd >= 0:
            os.close(self._fd)
        self._fd = self._seq = self._end = -1
        self._inode = self._device = 0
        self._hash = GENESIS

    def _unavailable(self, error: OSError | AuditUnavailable) -> AuditUnavailable:
        if isinstance(error, AuditUnavailable):
            self._trouble = "unreadable"
            return error
        self._trouble = errno.errorcode.get(error.errno or 0, "unknown")
        return AuditUnavailable(
            f"The audit log {self._name} cannot be written: {error.strerror or error}.",
            hint=_HINTS.get(self._trouble, "Mend the cause; until then no tool that is audited runs."),
            details={"path": self._name, "error": self._trouble},
            retryable=self._trouble in {"EAGAIN", "ENOSPC", "EDQUOT"},
        )


_HINTS = {
    "EACCES": "Give this user the right to write the file and its folder.",
    "EAGAIN": "Another process has held the log's lock too long; look for one that is stopped.",
    "EEXIST": "The log's folder must be a folder, not a symbolic link.",
    "EDQUOT": "Free some of this user's disk quota.",
    "EFBIG": "Raise the file size limit (ulimit -f).",
    "EINVAL": "The path must lead to a regular file.",
    "ELOOP": "The log must be a file, not a symbolic link.",
    "ENOSPC": "Free some disk space.",
    "ENOTDIR": "The log's folder must be a folder, not a symbolic link.",
    "EROFS": "The file system is read-only.",
}


_TRY = LOCK_EX | LOCK_NB


def _number(head: Head) -> int:
    return head.seq


def _stuck() -> int:
    raise OSError(errno.EIO, "nothing was written")


_logs: weakref.WeakSet[AuditLog] = weakref.WeakSet()


def _after_fork() -> None:
    for log in list(_logs):
        log._begin()  # noqa: SLF001 - the module's own class


os.register_at_fork(after_in_child=_after_fork)
