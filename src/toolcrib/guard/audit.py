"""The audit log: one append-only file a project, one line an event, each with the digest of the one before.

Every process of a project appends to the same file under one lock, and nothing is ever taken out again. What
cannot be recorded is refused (`AuditUnavailable`): a tool whose call leaves no trace does not run.
`docs/audit.md` says what each event means and what the chain proves. Rotation will close a file with its own
event and carry the number and digest on into the next; `AuditLog.head` is what an anchor outside the project
will keep.
"""

from __future__ import annotations

import errno
import fcntl
import os
import stat
import time
import weakref
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from threading import Lock
from types import TracebackType
from typing import Any, NamedTuple

from toolcrib.errors import AuditUnavailable
from toolcrib.guard.audit_line import GENESIS, Entry, Head, encode_fields, parse, require_event

__all__ = ["AuditLog", "lock_file"]

_TAIL_WINDOW = 8_192
_MAX_TAIL = 4 * 1024 * 1024
"""Bytes searched backwards for the last whole line before the file is taken to be something else."""

_FLAGS = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


class _Tail(NamedTuple):
    """Where a file ends."""

    head: Head
    """The last whole line; its digest covers whatever stands behind it as well."""
    strays: int = 0
    """Bytes behind it that are no audit line."""
    open: bool = False
    """Whether the file's last newline is missing."""


class AuditLog:
    """Appends to one audit log. Safe for threads, for other processes on the same file, and across fork.

    Nothing is opened or created before the first record. With `durable`, each record is on the disk before
    `record` returns; without, it is with the kernel: it outlives the process, not a power cut. `clock` gives
    seconds since the epoch; `lock_timeout` is how many seconds to wait for another process.
    """

    __slots__ = (
        "__weakref__",
        "_clock",
        "_device",
        "_durable",
        "_end",
        "_fd",
        "_hash",
        "_inode",
        "_lock_timeout",
        "_lost",
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
        *,
        durable: bool = False,
        clock: Callable[[], float] = time.time,
        lock_timeout: float = 5.0,
    ) -> None:
        self._name = os.path.abspath(path)  # noqa: PTH100 - a text is what lstat takes fastest, once a record
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
        require_event(event)
        body = f" {event}{encode_fields(fields)}"
        with self._mutex:
            try:
                self._append(body)
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
            lock_file(self._fd, fcntl.LOCK_EX, self._lock_timeout)
            second = int(self._clock())
            # The length tells on every record whether somebody else has written. Whether the path still leads
            # to this file costs four times as much to ask, so that is asked once a second.
            if os.lseek(self._fd, 0, os.SEEK_END) != self._end or second != self._second or self._lost:
                self._stamp = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(second))
                self._settle()
                self._second = second
            if body is not None:
                self._write(body)
        finally:
            if self._fd >= 0:
                fcntl.flock(self._fd, fcntl.LOCK_UN)
        if self._durable and body is not None:
            os.fdatasync(self._fd)

    def _write(self, body: str) -> None:
        line = f"[{self._stamp}]{body} seq={self._seq + 1} prev={self._hash}\n".encode()
        size = len(line)
        done = 0
        try:
            while done < size:
                done += os.write(self._fd, line[done:] if done else line) or _stuck()
        except OSError:
            if done:
                self._take_back()
            raise
        self._seq += 1
        self._hash = sha256(line).hexdigest()
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
        """See whether the file is as this process left it; write down whatever is not."""
        before = Head(self._seq, self._hash)
        try:
            reason = self._follow()
            size = os.lseek(self._fd, 0, os.SEEK_END)
            if reason or size != self._end or self._lost:
                tail = self._read_tail(size)
                self._seq, self._hash, self._end = tail.head.seq, tail.head.hash, size
                if tail.open:
                    self._end += os.write(self._fd, b"\n")
                if tail.strays:
                    self._write(f" AUDIT_RECOVERED bytes={tail.strays}")
                if before.seq >= 0 and (reason := reason or _difference(before, tail)):
                    self._write(f" AUDIT_GAP reason={reason} after_seq={before.seq} after={before.hash}")
                if self._lost:
                    self._write(f" AUDIT_RESUMED lost={self._lost} error={self._trouble}")
                    self._lost = 0
        except BaseException:
            # What could not be written down now is found again at the next try.
            self._seq, self._hash, self._end = before.seq, before.hash, -1
            raise

    def _follow(self) -> str:
        """Where the path leads to another file than ours, open and lock that one; say what happened."""
        reason = ""
        for _ in range(10):
            try:
                found = os.lstat(self._name)
            except (FileNotFoundError, NotADirectoryError):
                reason = "removed"
            else:
                if found.st_ino == self._inode and found.st_dev == self._device:
                    return reason
                reason = reason or "replaced"
            os.close(self._fd)
            self._fd = -1
            self._open()
            lock_file(self._fd, fcntl.LOCK_EX, self._lock_timeout)
        raise OSError(errno.ESTALE, "the file is being replaced again and again")

    def _read_tail(self, size: int) -> _Tail:
        """Search backwards for the last whole line."""
        window = _TAIL_WINDOW
        while True:
            start = max(0, size - window)
            data = os.pread(self._fd, size - start, start)
            tail = _find_tail(data, whole=start == 0)
            if tail is not None:
                return tail
            if window >= _MAX_TAIL:
                raise AuditUnavailable(
                    f"{self._name} does not end like an audit log.",
                    hint="Move the file away to begin a new log.",
                )
            window = min(window * 8, _MAX_TAIL)

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


def lock_file(fd: int, operation: int, timeout: float) -> None:
    """`flock`, but a stopped process must not stop this one: after `timeout` seconds OSError (EAGAIN)."""
    pause, deadline = 20e-6, None
    while True:
        try:
            fcntl.flock(fd, operation | fcntl.LOCK_NB)
        except BlockingIOError:
            now = time.monotonic()
            deadline = deadline or now + timeout
            if now >= deadline:
                raise OSError(errno.EAGAIN, "another process holds its lock") from None
            time.sleep(pause)
            pause = min(pause * 2, 0.002)
        else:
            return


def _difference(before: Head, tail: _Tail) -> str:
    """How the file's last line contradicts what this process last knew, if it does."""
    if tail.head.seq < before.seq:
        return "cut"
    if tail.head.seq == before.seq and not tail.strays and tail.head.hash != before.hash:
        return "altered"
    return ""


def _find_tail(data: bytes, *, whole: bool) -> _Tail | None:
    """The end of a file, from its last bytes or the `whole`; None if the last whole line begins earlier."""
    cut = bool(data) and not data.endswith(b"\n")
    if cut:
        data += b"\n"
    end = len(data)
    while end:
        start = data.rfind(b"\n", 0, end - 1) + 1
        if not start and not whole:
            return None
        entry = _parse(data[start:end])
        if entry is not None and cut and end == len(data):
            # A crash may have lost the newline alone: the line counts, if it continues what is before it.
            before = _find_tail(data[:start], whole=whole)
            if before is None:
                return None
            entry = entry if _follows(entry, before) else None
        if entry is not None:
            return _Tail(Head(entry.seq, sha256(data[start:]).hexdigest()), len(data) - end, cut)
        end = start
    if not data:
        return _Tail(Head())
    return _Tail(Head(0, sha256(data).hexdigest()), len(data), cut) if whole else None


def _follows(entry: Entry, before: _Tail) -> bool:
    if (entry.seq, entry.prev) != (before.head.seq + 1, before.head.hash):
        return False
    return not before.strays or (
        entry.event == "AUDIT_RECOVERED" and entry.fields.get("bytes") == before.strays
    )


def _parse(line: bytes) -> Entry | None:
    if not line.startswith(b"["):
        return None
    try:
        return parse(line)
    except ValueError:
        return None


def _stuck() -> int:
    raise OSError(errno.EIO, "nothing was written")


_logs: weakref.WeakSet[AuditLog] = weakref.WeakSet()


def _after_fork() -> None:
    for log in list(_logs):
        log._begin()  # noqa: SLF001 - the module's own class


os.register_at_fork(after_in_child=_after_fork)
