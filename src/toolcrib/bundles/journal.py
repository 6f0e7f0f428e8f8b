"""The journal of a store: which records were changed, for processes that keep a copy of them.

Each change adds a line, `<bundle id> <file name>` or `<bundle id> -`, before the record itself is written,
and under the lock of the store. A reader that takes the lock alone therefore finds every change whose line it
read. The journal is no truth: when it is gone, or the machine was restarted, readers look at every record.
"""

from __future__ import annotations

import os
import secrets
from errno import ENOSPC
from pathlib import Path
from typing import NamedTuple

from toolcrib.bundles.files import StoreLock, create_file, replace_file, unavailable
from toolcrib.state import boot_id

_MOST_BYTES = 16 * 1024 * 1024
"""A longer journal begins anew."""


class Change(NamedTuple):
    """A record that has changed, is new or is gone."""

    bundle: str
    file: str | None
    """Name of a tool's file; None for the bundle itself."""


class Position(NamedTuple):
    """A place in a journal up to which it was read."""

    journal: str
    """Names the file: another one begins at its start."""
    offset: int


class Journal:
    """The journal of the store in one folder."""

    def __init__(self, data: Path, lock: StoreLock) -> None:
        self._path = data / "journal"
        self._lock = lock
        self._last: tuple[object, Position] | None = None
        """The end as it was last read, and the state of the file then."""

    def add(self, bundle: str, file: str | None = None) -> None:
        """Add a line, before its change. The caller has the lock of the store."""
        line = f"{bundle} {file or '-'}\n".encode()
        try:
            if not self._path.exists():
                create_file(self._path, _header())
            descriptor = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
            try:
                if os.write(descriptor, line) != len(line):
                    raise OSError(ENOSPC, os.strerror(ENOSPC))
            finally:
                os.close(descriptor)
        except OSError as error:
            raise unavailable(self._path, error) from None

    def has_grown(self, since: Position) -> bool:
        """Return True if there are lines behind this position, or it is of before a restart."""
        return self._end() != since or not _is_of_this_boot(since)

    def read(self, since: Position | None) -> tuple[list[Change] | None, Position]:
        """Return the changes since a position, and the new one; None in place of changes to look at all.

        No writer is at work when the position is taken.
        """
        with self._lock.alone():
            end = self._end()
            if end.offset > _MOST_BYTES or not _is_of_this_boot(end):
                replace_file(self._path, _header())
                end = self._end()
        if since is None or since.journal != end.journal or since.offset > end.offset:
            return None, end
        with self._path.open("rb") as file:
            file.seek(since.offset)
            lines = file.read(end.offset - since.offset).decode(errors="replace").splitlines()
        changes: dict[Change, None] = {}
        for line in lines:
            bundle, _, name = line.partition(" ")
            if name:  # a line that a full disk cut off belongs to no change
                changes[Change(bundle, None if name == "-" else name)] = None
        return list(changes), end

    def _end(self) -> Position:
        try:
            if self._last is not None and _state(self._path.stat()) == self._last[0]:
                return self._last[1]  # Asked before each list and search
            with self._path.open("rb") as file:
                found = os.fstat(file.fileno())
                end = Position(file.readline(100).decode(errors="replace"), found.st_size)
        except FileNotFoundError:
            return Position("", 0)
        self._last = _state(found), end
        return end


def _state(found: os.stat_result) -> object:
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns


def _is_of_this_boot(position: Position) -> bool:
    return not position.journal or boot_id() in position.journal


def _header() -> str:
    """Return the first line of a new journal. After a restart of the machine its last lines may be lost."""
    return f"{boot_id()} {secrets.token_hex(8)}"
