"""The files of one audit log: the one that is written, and those it was rotated out to, in their order."""

from __future__ import annotations

import errno
import os
import re
import time
from collections.abc import Iterator
from fcntl import LOCK_NB, LOCK_SH, LOCK_UN, flock
from hashlib import sha256
from pathlib import Path
from typing import BinaryIO, NamedTuple

from toolcrib.guard.audit.line import Entry, Head, parse

__all__ = [
    "Tail",
    "find_tail",
    "first_number",
    "holds",
    "lines_backwards",
    "lock_file",
    "look_at",
    "newest_rotated",
    "open_files",
    "rotated_files",
    "rotated_name",
]

_PATIENCE = 5.0
"""Seconds that a reader waits for a writer's lock."""

_LOOK = 4 * 1024 * 1024
"""Bytes at the beginning of a file among which its first line is looked for."""


class Tail(NamedTuple):
    """Where a file ends."""

    head: Head
    """The last whole line; its digest covers whatever stands behind it as well."""
    strays: int = 0
    """Bytes behind it that are no audit line."""
    open: bool = False
    """Whether the file's last newline is missing."""
    closed: bool = False
    """Whether the last line says that the log goes on in another file."""


def rotated_name(name: str, first: int, last: int) -> str:
    """`tools.log` with the lines 1 to 900 becomes `tools.1-900.log`."""
    stem, suffix = os.path.splitext(name)  # noqa: PTH122 - a text on the way to rename
    return f"{stem}.{first}-{last}{suffix}"


def rotated_files(path: Path) -> list[tuple[int, int, Path]]:
    """What was rotated out of this log: first and last number by name, and the file; the oldest first."""
    stem, suffix = os.path.splitext(path.name)  # noqa: PTH122 - as rotated_name
    shape = re.compile(rf"{re.escape(stem)}\.([1-9][0-9]{{0,17}})-([1-9][0-9]{{0,17}}){re.escape(suffix)}")
    try:
        names = os.listdir(path.parent)  # noqa: PTH208 - names alone are needed
    except (FileNotFoundError, NotADirectoryError):
        return []
    found = [(int(m[1]), int(m[2]), path.parent / name) for name in names if (m := shape.fullmatch(name))]
    return sorted(found)


def open_files(path: Path) -> tuple[list[Path], BinaryIO | None, int]:
    """The rotated files; the file that is written, open; and how much of it holds whole lines now."""
    for _ in range(100):
        try:
            file = path.open("rb")
        except FileNotFoundError:
            return [part for _, _, part in rotated_files(path)], None, 0
        # Writers append while we read: what is in the file now is whole, what comes later is not looked at.
        lock_file(file.fileno(), LOCK_SH, _PATIENCE)
        found = os.fstat(file.fileno())
        parts = [part for _, _, part in rotated_files(path)]
        try:
            same = os.path.samestat(found, path.stat())
        except FileNotFoundError:
            same = False
        flock(file.fileno(), LOCK_UN)
        if same:
            return parts, file, found.st_size
        file.close()  # It was rotated between the opening and the lock.
    raise OSError(errno.ESTALE, "the file is being replaced again and again")


def lock_file(fd: int, operation: int, timeout: float) -> None:
    """`flock`, but a stopped process must not stop this one: after `timeout` seconds OSError (EAGAIN)."""
    pause, deadline = 20e-6, None
    while True:
        try:
            flock(fd, operation | LOCK_NB)
        except BlockingIOError:
            now = time.monotonic()
            deadline = deadline or now + timeout
            if now >= deadline:
                raise OSError(errno.EAGAIN, "another process holds its lock") from None
            time.sleep(pause)
            pause = min(pause * 2, 0.002)
        else:
            return


def newest_rotated(name: str) -> Tail | None:
    """Where the newest rotated file ends: what an empty log goes on from. None as of `look_at`."""
    files = rotated_files(Path(name))
    if not files:
        return Tail(Head())
    fd = os.open(files[-1][2], os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        return look_at(fd, os.fstat(fd).st_size)
    finally:
        os.close(fd)


def first_number(fd: int) -> int:
    """The number of a file's first line, 1 where there is none; what is no audit line is passed over."""
    for raw in os.pread(fd, _LOOK, 0).splitlines(keepends=True):
        entry = _parse(raw)
        if entry is not None:
            return entry.seq
    return 1


def holds(name: str, head: Head) -> bool:
    """Whether the log contains this line, unchanged. Looks into the file that should have it alone."""
    files = [path for first, last, path in rotated_files(Path(name)) if first <= head.seq <= last]
    return any(_contains(path, head) for path in (*files, Path(name)))


def _contains(path: Path, head: Head) -> bool:
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        for raw in lines_backwards(fd, os.fstat(fd).st_size):
            number = _number(raw)
            if number is not None and int(number[1]) <= head.seq:
                same = sha256(raw + b"\n").hexdigest() == head.hash
                if same or int(number[1]) < head.seq:
                    return same
    finally:
        os.close(fd)
    return False


def lines_backwards(fd: int, size: int) -> Iterator[bytes]:
    """The lines in the first `size` bytes of a file, the last one first, without their newlines.

    Of a line that is far too long for an audit line only the beginning is given.
    """
    rest, position = b"", size
    while position > 0:
        length = min(_BLOCK, position)
        position -= length
        first, *lines = (os.pread(fd, length, position) + rest).split(b"\n")
        for raw in reversed(lines):
            if raw:
                yield raw
        rest = first if len(first) <= _MAX_TAIL else first[:512]
    if rest:
        yield rest


_BLOCK = 256 * 1024
_number = re.compile(rb"\[[^\n]* seq=([1-9][0-9]{0,17}) prev=[0-9a-f]{64}\Z").match
_TAIL_WINDOW = 8_192
_MAX_TAIL = 4 * 1024 * 1024
"""Bytes searched backwards for the last whole line before the file is taken to be something else."""


def look_at(fd: int, size: int) -> Tail | None:
    """Search a file of `size` bytes backwards for its last whole line; None where it has no such end."""
    for window in _windows():
        start = max(0, size - window)
        tail = find_tail(os.pread(fd, size - start, start), whole=start == 0)
        if tail is not None:
            return tail
    return None


def _windows() -> Iterator[int]:
    window = _TAIL_WINDOW
    while window < _MAX_TAIL:
        yield window
        window *= 8
    yield _MAX_TAIL


def find_tail(data: bytes, *, whole: bool) -> Tail | None:
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
            before = find_tail(data[:start], whole=whole)
            if before is None:
                return None
            entry = entry if _follows(entry, before) else None
        if entry is not None:
            strays = len(data) - end
            closed = entry.event == "AUDIT_ROTATED" and not strays
            return Tail(Head(entry.seq, sha256(data[start:]).hexdigest()), strays, cut, closed)
        end = start
    if not data:
        return Tail(Head())
    return Tail(Head(0, sha256(data).hexdigest()), len(data), cut) if whole else None


def _follows(entry: Entry, before: Tail) -> bool:
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
