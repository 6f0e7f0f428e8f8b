"""The audit log: one append-only file a project, one line an event, each with the digest of the line before.

Every process of a project appends to the same file under one lock, and nothing is ever removed from it. A
call that cannot be recorded is refused (`AuditUnavailable`): the line of its start is written before it runs.
A file that has grown large ends with an event of its own and is renamed; numbers and digests continue in the
next file. The head is kept in an anchor outside the project, so that lines removed from or added to the end
are noticed. `docs/audit.md` explains the events and what the chain proves.

A line is written in two steps, under the lock: the anchor announces the line, the line is appended. A writer
that is killed in between leaves a log without the announced line, which the next writer appends. Any other
difference between log and anchor is recorded as AUDIT_GAP. A writer knows from the length of the file if
others have written since; then it reads the end of the log again.
"""

from __future__ import annotations

import atexit
import errno
import os
import stat
import time
from collections.abc import Callable
from contextlib import suppress
from fcntl import LOCK_EX, LOCK_NB, LOCK_UN, flock
from hashlib import sha256
from os import SEEK_END, lseek, write
from pathlib import Path
from threading import Lock
from typing import Any
from weakref import WeakSet

from toolcrib.errors import AuditUnavailable
from toolcrib.guard.audit.anchor import Anchor, Anchored
from toolcrib.guard.audit.files import (
    LogEnd,
    contains,
    find_end,
    first_number,
    lock_file,
    newest_rotated,
    rotated_name,
)
from toolcrib.guard.audit.line import GENESIS, Head, encode_fields, known_events, require_event
from toolcrib.state import short_name
from toolcrib.state.private import make_private

MAX_BYTES = 64 * 1024 * 1024
"""Size at which a file is closed and the log continues in a new one."""

_FLAGS = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_TRY_LOCK = LOCK_EX | LOCK_NB


class AuditLog:
    """Appends to one audit log. Safe for threads, for other processes on the same file, and across fork.

    Nothing is opened or created before the first record. `anchor` is a file outside the project that keeps
    the head, or a function that returns its path when it is first needed. `max_bytes` is the size at which a
    file is closed and the next one begun. With `durable`, each record is on the disk before `record` returns;
    without, it is with the kernel: it survives the process, not a power cut. `clock` returns seconds since
    the epoch; `lock_timeout` is how many seconds to wait for another process.
    """

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
        self.path = path.absolute()
        self._anchor = None if anchor is None else Anchor(anchor)
        self._max_bytes = max_bytes
        self._durable = durable
        self._clock = clock
        self._lock_timeout = lock_timeout
        self._second = -1
        self._stamp = ""
        self._lost = 0
        self._trouble = ""
        # The length of the file at our last look; -1: not known.
        self._fd, self._end = -1, -1
        self._seq, self._hash = 0, GENESIS
        self._start()
        _logs.add(self)

    def _start(self) -> None:
        """Start afresh: a new object, or a forked child, whose file lock would be the parent's."""
        # Another thread may have locked the old one at the fork, and nobody would unlock it here.
        self._mutex = Lock()
        self._close()

    @property
    def head(self) -> Head:
        """The last line this object wrote or continued from."""
        return Head(self._seq, self._hash)

    def record(self, event: str, /, **fields: Any) -> None:
        """Append one line. The caller masks secrets; values are JSON.

        Raises AuditUnavailable if the line cannot be written, and leaves no part of it; ValueError for a
        badly named event or field.
        """
        self.append(event, encode_fields(fields))

    def append(self, event: str, body: str) -> None:
        """Do what `record` does, for fields that `encode_fields` has encoded."""
        if event not in known_events:
            require_event(event)
        self._guarded(f" {event}{body}")

    def start(self, body: str) -> int:
        """Append the TOOL_STARTED line of a call that runs next; return its number."""
        return self._guarded(f" TOOL_STARTED{body} process={short_name()}", opens=True)

    def ensure(self) -> None:
        """Raise AuditUnavailable unless a record could be written now; called before a tool runs.

        After a failed record this writes the line that reports the loss, which proves that writing works.
        """
        if self._fd < 0 or self._lost:
            self._guarded(None)

    def close(self) -> None:
        """Close the file; a later record opens it again."""
        with self._mutex:
            self._confirm()
            self._close()

    def __enter__(self) -> AuditLog:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def _guarded(self, body: str | None, *, opens: bool = False) -> int:
        """Write one line under both locks and return its number; with None only check the log."""
        with self._mutex:
            try:
                if self._fd < 0:
                    self._open()
                lock_file(self._fd, LOCK_EX, self._lock_timeout)
                try:
                    now = self._clock()
                    # The file's length shows on every record if another process has written. Checking that
                    # the path still leads to this file costs four times as much, so once a second is enough.
                    if (
                        lseek(self._fd, 0, SEEK_END) != self._end
                        or not self._second <= now < self._second + 1
                        or self._lost
                    ):
                        second = int(now)
                        self._stamp = time.strftime("[%Y-%m-%dT%H:%M:%S]", time.gmtime(second))
                        self._synchronise()
                        self._second = second
                    if body is not None:
                        if self._end >= self._max_bytes:
                            self._rotate()
                        self._write(body)
                finally:
                    if self._fd >= 0:
                        flock(self._fd, LOCK_UN)
                # Without the lock, so that others can write while the disk works.
                if self._durable and body is not None:
                    os.fdatasync(self._fd)
            except (OSError, AuditUnavailable) as error:
                # Without the line of its start a call does not run, so there is no record to lose.
                self._lost += body is not None and not opens
                raise self._unavailable(error) from error
            return self._seq

    # Every method from here on is called with the mutex locked.

    def _write(self, body: str) -> None:
        line = f"{self._stamp}{body} seq={self._seq + 1} prev={self._hash}\n".encode()
        digest = sha256(line).hexdigest()
        if self._anchor is not None:
            # First: a log that ends without this line was cut, or its writer was killed right here.
            self._anchor.announce(digest, line)
        self._put(line)
        self._seq += 1
        self._hash = digest

    def _put(self, line: bytes) -> None:
        """Append a line that was announced. If that fails, leave no part of it, and no announcement."""
        try:
            written = write(self._fd, line)
            if written != len(line):
                self._put_rest(line, written)
        except OSError:
            if self._anchor is not None:
                self._anchor.withdraw()
            raise
        self._end += len(line)

    def _put_rest(self, line: bytes, written: int) -> None:
        """Append the rest of a partly written line, or remove it. If even that fails, the next writer finds
        and records it.
        """
        try:
            while written < len(line):
                more = write(self._fd, line[written:])
                if not more:
                    raise OSError(errno.EIO, "nothing was written")
                written += more
        except OSError:
            # -1 is the length of no file, so the next record looks for the end again.
            end, self._end = self._end, -1
            with suppress(OSError):
                os.ftruncate(self._fd, end)
                self._end = end
            raise

    def _synchronise(self) -> None:
        """Continue from where the log ends now, and record whatever contradicts what was known of it."""
        known = Head(self._seq, self._hash)
        try:
            reason = self._follow()
            if reason or lseek(self._fd, 0, SEEK_END) != self._end or self._lost:
                self._continue_from(known, reason)
            elif self._anchor is not None:
                self._anchor.read()
        except BaseException:
            # What could not be recorded now is found again at the next attempt.
            self._seq, self._hash, self._end = known.seq, known.hash, -1
            raise

    def _continue_from(self, known: Head, reason: str) -> None:
        """Find the end of the log, and record how it differs from its last `known` line."""
        end = self._find_end()
        # Not before: where a rotation had to be completed, others may have written between the two files.
        anchored = None if self._anchor is None else self._anchor.read()
        # Half a line is never removed, so that no evidence is lost; AUDIT_RECOVERED then covers its bytes.
        if end.unterminated and self._end:
            self._end += write(self._fd, b"\n")
        killed = anchored is not None and known.seq <= end.head.seq and anchored.lacks_last(end.head)
        self._seq, self._hash = end.head.seq, end.chain
        # The line that the dead writer announced; its `prev` does not cover stray bytes.
        if anchored is not None and killed and not end.strays:
            self._put(anchored.line)
            self._seq, self._hash = anchored.head.seq, anchored.head.hash
        latest = known if anchored is None else max(known, anchored.head, key=lambda head: head.seq)
        reason = reason or ("" if killed else self._contradiction(latest, anchored, end.head))
        if end.strays:
            self._write(f" AUDIT_RECOVERED bytes={end.strays}")
        if reason and latest.seq > 0:
            self._write(f" AUDIT_GAP reason={reason} after_seq={latest.seq} after={latest.hash}")
        if self._lost:
            self._write(f" AUDIT_RESUMED lost={self._lost} error={self._trouble}")
            self._lost = 0

    def _contradiction(self, latest: Head, anchored: Anchored | None, end: Head) -> str:
        """Name how the log's end contradicts the last line known of it; empty if it does not."""
        if end == latest:
            return ""
        if end.seq <= latest.seq:
            return "cut" if end.seq < latest.seq else "altered"
        if anchored is None or latest.seq <= 0:
            return ""
        return "added" if contains(self.path, latest) else "altered"

    def _find_end(self) -> LogEnd:
        """Return the end of the log. A rotation that was interrupted by a crash is completed first."""
        for _ in range(10):
            self._end = lseek(self._fd, 0, SEEK_END)
            end = find_end(self._fd) if self._end else newest_rotated(self.path)
            if end is None:
                raise AuditUnavailable(
                    f"{self.path} does not end like an audit log.",
                    hint="Move the file away to start a new log.",
                )
            if not end.closed or not self._end:
                return end
            self.path.rename(self._rotated(end.head.seq))
            self._follow()
        raise OSError(errno.ESTALE, "the file is being rotated again and again")

    def _rotate(self) -> None:
        """Close the file and continue in a new one. Writers waiting for the lock see it grow, and follow."""
        closed = self._rotated(self._seq + 1).name
        # Before the rename: if this process dies in between, the next writer finds it and renames the file.
        self._write(f" AUDIT_ROTATED{encode_fields({'file': closed, 'next': self._seq + 2})}")
        if self._durable:
            os.fdatasync(self._fd)
        self._continue_from(self.head, "")

    def _rotated(self, last: int) -> Path:
        """Return the name that the current file gets when it is closed; AuditUnavailable if it is taken."""
        name = rotated_name(self.path, first_number(self._fd), last)
        if os.path.lexists(name):
            raise AuditUnavailable(
                f"The audit log {self.path} cannot be rotated: {name} exists.",
                hint="Move that file away; it was not written by this log.",
                details={"path": str(name), "error": "EEXIST"},
            )
        return name

    def _follow(self) -> str:
        """Open and lock the file that the path leads to, if it is not ours; return what happened to ours."""
        change = self._change()
        if not change:
            return ""
        ours = find_end(self._fd)
        # A file that says that it is closed was renamed by a writer, not replaced by somebody else.
        reason = "" if ours is not None and ours.closed else change
        deadline = time.monotonic() + self._lock_timeout
        while change:
            os.close(self._fd)
            self._fd = -1
            self._open()
            lock_file(self._fd, LOCK_EX, self._lock_timeout)
            # Between the opening and the lock, another process may have rotated the log once more.
            change = self._change()
            if change and time.monotonic() > deadline:
                raise OSError(errno.ESTALE, "the file is being replaced again and again")
        return reason

    def _change(self) -> str:
        """Return what happened to the file at the path; empty if it is still ours."""
        try:
            found = os.lstat(self.path)
        except (FileNotFoundError, NotADirectoryError):
            return "removed"
        return "" if os.path.samestat(found, self._found) else "replaced"

    def _open(self) -> None:
        make_private(self.path.parent)
        # Neither the file nor its folder may be a link: an untrusted project could point anywhere.
        folder = os.open(self.path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            fd = os.open(self.path.name, _FLAGS, 0o600, dir_fd=folder)
            try:
                self._found = os.fstat(fd)
                if not stat.S_ISREG(self._found.st_mode):
                    raise OSError(errno.EINVAL, "not a regular file")
                if self._durable:
                    os.fsync(folder)
            except OSError:
                os.close(fd)
                raise
            self._fd, self._end = fd, -1
        finally:
            os.close(folder)

    def _confirm(self) -> None:
        """Record that this process leaves the log as it is: it was not killed while it wrote."""
        if self._anchor is None or self._fd < 0:
            return
        with suppress(OSError):
            flock(self._fd, _TRY_LOCK)
            if lseek(self._fd, 0, SEEK_END) == self._end:
                self._anchor.confirm()

    def _close(self) -> None:
        if self._anchor is not None:
            self._anchor.close()
        if self._fd >= 0:
            os.close(self._fd)
        self._fd = self._end = -1
        self._seq, self._hash = 0, GENESIS

    def _unavailable(self, error: OSError | AuditUnavailable) -> AuditUnavailable:
        if isinstance(error, AuditUnavailable):
            self._trouble = "unreadable"
            return error
        self._trouble = errno.errorcode.get(error.errno or 0, "unknown")
        # It may be another file, such as the anchor in the user's own folder.
        where = "" if error.filename in (None, str(self.path)) else f"{error.filename}: "
        return AuditUnavailable(
            f"The audit log {self.path} cannot be written: {where}{error.strerror or error}.",
            hint=_HINTS.get(self._trouble, "Fix the cause; until then no audited tool runs."),
            details={"path": str(self.path), "error": self._trouble},
            retryable=self._trouble in {"EAGAIN", "ENOSPC", "EDQUOT"},
        )


_logs: WeakSet[AuditLog] = WeakSet()


def _close_all() -> None:
    for log in list(_logs):
        log.close()


def _start_all() -> None:
    for log in list(_logs):
        log._start()  # noqa: SLF001 - another process from here on


atexit.register(_close_all)
os.register_at_fork(after_in_child=_start_all)

_HINTS = {
    "EACCES": "Give this user the right to write the file and its folder.",
    "EAGAIN": "Another process has locked the log for too long; look for one that is stopped.",
    "EEXIST": "The log's folder must be a folder, not a symbolic link.",
    "EDQUOT": "Free some of this user's disk quota.",
    "EFBIG": "Raise the file size limit (ulimit -f).",
    "EINVAL": "The path must lead to a regular file.",
    "ELOOP": "The log must be a file, not a symbolic link.",
    "ENOSPC": "Free some disk space.",
    "ENOTDIR": "The log's folder must be a folder, not a symbolic link.",
    "EROFS": "The file system is read-only.",
}
