"""The files of one audit log: the current one, and the rotated ones in their order."""

from __future__ import annotations

import errno
import os
import re
import stat
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from fcntl import LOCK_NB, LOCK_SH, LOCK_UN, flock
from hashlib import sha256
from pathlib import Path
from typing import BinaryIO, NamedTuple

from toolcrib.guard.audit.line import GENESIS, AuditEntry, Head, parse

_READ_WAIT_S = 5.0
"""Seconds a reader waits for a writer's lock."""
_FIRST_BYTES = 4 * 1024 * 1024
"""Bytes at the beginning of a file in which its first line is searched."""
_END_BYTES = (8 * 1024, 64 * 1024, 512 * 1024, 4 * 1024 * 1024)
"""Bytes searched backwards, in turn, for the last whole line; beyond that the file is something else."""
_BLOCK = 256 * 1024
# No link, because an untrusted project could point anywhere; and no waiting if a FIFO has the file's name.
_READ_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_number = re.compile(rb"\[[^\n]* seq=([1-9][0-9]{0,17}) prev=[0-9a-f]{64}\Z").match


class LogEnd(NamedTuple):
    """The end of a file."""

    head: Head
    """The last whole line."""
    chain: str
    """Its digest, that of any stray bytes after it included: the `prev` of the next line."""
    strays: int = 0
    """Bytes after it that belong to no audit line."""
    unterminated: bool = False
    """True if the file's last newline is missing."""
    closed: bool = False
    """True if the last line says that the log continues in another file."""


def rotated_name(path: Path, first: int, last: int) -> Path:
    """Return the name of a rotated file: `tools.log` with the lines 1 to 900 becomes `tools.1-900.log`."""
    return path.with_name(f"{path.stem}.{first}-{last}{path.suffix}")


def rotated_files(path: Path) -> list[tuple[int, int, Path]]:
    """Return the rotated files of a log, oldest first: first and last line number by name, and the file."""
    number = "([1-9][0-9]{0,17})"
    shape = re.compile(rf"{re.escape(path.stem)}\.{number}-{number}{re.escape(path.suffix)}")
    try:
        names = os.listdir(path.parent)
    except (FileNotFoundError, NotADirectoryError):
        return []
    found = [(int(m[1]), int(m[2]), path.parent / name) for name in names if (m := shape.fullmatch(name))]
    return sorted(found)


def open_files(path: Path) -> tuple[list[Path], BinaryIO | None, int]:
    """Return the rotated files, the current file (open), and its size; its last line may be under way."""
    for _ in range(100):
        try:
            file = open_part(path)
        except FileNotFoundError:
            return [part for _, _, part in rotated_files(path)], None, 0
        parts, found = [part for _, _, part in rotated_files(path)], os.fstat(file.fileno())
        if is_at(path, found):
            return parts, file, found.st_size
        file.close()  # It was rotated meanwhile.
    raise OSError(errno.ESTALE, "the file is being replaced again and again")


@contextmanager
def locked_files(path: Path) -> Iterator[tuple[list[Path], BinaryIO | None, int]]:
    """Yield what `open_files` returns while no process writes to the log."""
    for _ in range(100):
        parts, file, _ = open_files(path)
        if file is None:
            yield parts, None, 0
            return
        try:
            lock_file(file.fileno(), LOCK_SH, _READ_WAIT_S)
            found = os.fstat(file.fileno())
            if is_at(path, found):
                yield parts, file, found.st_size
                # The caller may have closed it, which unlocks it as well.
                if not file.closed:
                    flock(file.fileno(), LOCK_UN)
                return
        except BaseException:
            file.close()
            raise
        file.close()  # It was rotated between opening and locking.
    raise OSError(errno.ESTALE, "the file is being replaced again and again")


def is_at(path: Path, found: os.stat_result) -> bool:
    """Return True if the path leads to this file, through no link."""
    try:
        return os.path.samestat(found, os.lstat(path))
    except OSError:
        return False


def open_part(path: Path) -> BinaryIO:
    """Open a file of a log to read it. Never waits; OSError for a link and for what is not a regular file."""
    fd = os.open(path, _READ_FLAGS)
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise OSError(errno.EINVAL, "it is not a regular file", str(path))
    return os.fdopen(fd, "rb")


def lock_file(fd: int, operation: int, timeout: float) -> None:
    """Lock a file (`flock`); OSError (EAGAIN) after `timeout` seconds, as another process may be stopped."""
    # flock(2) has no time limit, so it is tried again and again. A record takes a few microseconds, so the
    # first pauses are short.
    pause, deadline = 20e-6, 0.0
    while True:
        try:
            flock(fd, operation | LOCK_NB)
        except BlockingIOError:
            deadline = deadline or time.monotonic() + timeout
            if time.monotonic() >= deadline:
                raise OSError(errno.EAGAIN, "another process has locked it for too long") from None
            time.sleep(pause)
            pause = min(pause * 2, 0.002)
        else:
            return


def newest_rotated(path: Path) -> LogEnd | None:
    """Return the end of the newest rotated file, after which an empty log continues. None as `find_end`."""
    files = rotated_files(path)
    if not files:
        return LogEnd(Head(), GENESIS)
    fd = os.open(files[-1][2], _READ_FLAGS)
    try:
        return find_end(fd)
    finally:
        os.close(fd)


def first_number(fd: int) -> int:
    """Return the number of a file's first audit line, 1 if it has none."""
    for raw in os.pread(fd, _FIRST_BYTES, 0).splitlines(keepends=True):
        entry = _parse(raw)
        if entry is not None:
            return entry.seq
    return 1


def contains(path: Path, head: Head) -> bool:
    """Return True if the log contains this line unchanged."""
    for raw in newest_first(path):
        number = _number(raw)
        if number is not None and int(number[1]) <= head.seq:
            # Stray bytes can look like a line with this number, so only a lower number ends the search.
            same = sha256(raw + b"\n").hexdigest() == head.hash
            if same or int(number[1]) < head.seq:
                return same
    return False


def lines_backwards(fd: int, size: int, marks: Sequence[bytes] = ()) -> Iterator[bytes]:
    """Yield the lines in the first `size` bytes of a file, the last one first, without their newlines.

    Of a line that is far too long for an audit line only the beginning is given. Lines without one of the
    marks may be left out.
    """
    rest, position = b"", size
    while position > 0:
        length = min(_BLOCK, position)
        position -= length
        block, lines = os.pread(fd, length, position) + rest, list[bytes]()
        # To take a block apart takes many times longer than to see that no line of it has a mark.
        if all(mark in block for mark in marks):
            first, *lines = block.split(b"\n")
        else:
            first = block.partition(b"\n")[0]
        for raw in reversed(lines):
            if raw:
                yield raw
        rest = first if len(first) <= _END_BYTES[-1] else first[:512]
    if rest:
        yield rest


def newest_first(path: Path) -> Iterator[bytes]:
    """Yield the lines of a log through all its files, the newest first, without their newlines."""
    for part in (path, *(part for _, _, part in reversed(rotated_files(path)))):
        try:
            fd = os.open(part, _READ_FLAGS)
        except FileNotFoundError:
            continue
        try:
            yield from lines_backwards(fd, os.fstat(fd).st_size)
        finally:
            os.close(fd)


def find_end(fd: int) -> LogEnd | None:
    """Search a file backwards for its last whole line; None if it does not end like an audit log."""
    size = os.fstat(fd).st_size
    for window in _END_BYTES:
        start = max(0, size - window)
        end = _end_of(os.pread(fd, size - start, start), whole=start == 0)
        if end is not None:
            return end
    return None


def _end_of(data: bytes, *, whole: bool) -> LogEnd | None:
    """Find the end in a file's last bytes, or in the `whole` file; None if its last line begins earlier."""
    unterminated = bool(data) and not data.endswith(b"\n")
    if unterminated:
        data += b"\n"
    end = len(data)
    while end:
        start = data.rfind(b"\n", 0, end - 1) + 1
        if not start and not whole:
            return None
        entry = _parse(data[start:end])
        if entry is not None and unterminated and end == len(data):
            # A crash may have lost only the newline: the line counts if it continues the one before it.
            before = _end_of(data[:start], whole=whole)
            if before is None:
                return None
            entry = entry if _follows(entry, before) else None
        if entry is not None:
            strays = len(data) - end
            closed = entry.event == "AUDIT_ROTATED" and not strays
            head = Head(entry.seq, sha256(data[start:end]).hexdigest())
            return LogEnd(head, sha256(data[start:]).hexdigest(), strays, unterminated, closed)
        end = start
    if not data:
        return LogEnd(Head(), GENESIS)
    return LogEnd(Head(), sha256(data).hexdigest(), len(data), unterminated) if whole else None


def _follows(entry: AuditEntry, before: LogEnd) -> bool:
    if (entry.seq, entry.prev) != (before.head.seq + 1, before.chain):
        return False
    # Stray bytes count only once a line records exactly their number and continues their digest.
    return not before.strays or (
        entry.event == "AUDIT_RECOVERED" and entry.fields.get("bytes") == before.strays
    )


def _parse(line: bytes) -> AuditEntry | None:
    if not line.startswith(b"["):
        return None
    try:
        return parse(line)
    except ValueError:
        return None
