"""The journal of a store: which records were changed, for processes that keep a copy of them.

Each change adds a line, `<bundle id> <file name>` or `<bundle id> -`. It is on disk before the record itself,
and both are written under the lock of the store. A reader that takes the lock alone therefore finds
every change whose line it read. The journal is no truth: when it is gone, or begun anew, readers look at
every record.
"""

from __future__ import annotations

import os
import secrets
import uuid
from contextlib import suppress
from errno import ENOSPC
from pathlib import Path
from typing import NamedTuple

from toolcrib.bundles.files import StoreLock, create_file, replace_file
from toolcrib.errors import StateUnavailable
from toolcrib.state.private import open_plain, written

_LINE = len(f"{uuid.UUID(int=0)} {uuid.UUID(int=0)}.json\n")
"""Bytes for a tool."""
_LONGEST = 64 << 20
"""Bytes from which on a new journal is begun."""


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

    def most_changes(self, later: Position) -> int:
        """Return how many tools may have been changed between this place and a later one of the journal."""
        return (later.offset - self.offset) // _LINE


class Journal:
    """The journal of the store in one folder."""

    def __init__(self, data: Path, lock: StoreLock) -> None:
        self._path = data / "journal"
        self._lock = lock
        self._last: tuple[object, Position] | None = None
        """The end as it was last read, and the state of the file then."""

    def add(self, bundle: str, *files: str) -> None:
        """Add lines for these tools of a bundle (`-`: the bundle itself) before they are changed.

        The caller has the lock of the store.
        """
        # The end of the line before comes first: a full disk may have taken that line in part.
        lines = "".join(f"\n{bundle} {file}" for file in files).encode()
        with written(self._path):
            # Of writers that share the lock one creates it: `create_file` leaves one that is there as it is.
            if not self._path.exists():
                create_file(self._path, secrets.token_hex(8))
            descriptor = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_NONBLOCK | os.O_CLOEXEC)
            try:
                # One write with O_APPEND: lines of writers that share the lock do not mix. If a full disk
                # takes a part of the lines only, the change is refused.
                if os.write(descriptor, lines) != len(lines):
                    raise OSError(ENOSPC, os.strerror(ENOSPC))
                # Else a power cut could take the line and leave the change: nobody would look at it.
                os.fdatasync(descriptor)
            finally:
                os.close(descriptor)

    def has_grown(self, since: Position) -> bool:
        """Return True if there are lines behind this position."""
        return self.end != since

    def read(self, since: Position | None) -> tuple[list[Change] | None, Position]:
        """Return the changes since a position, and the new one; None in place of changes to look at all.

        No writer is at work when the position is taken.
        """
        with self._lock.alone():
            if self.end.offset > _LONGEST:
                with suppress(StateUnavailable):  # for a reader who may not write
                    replace_file(self._path, secrets.token_hex(8))
            end = self.end
        if since is None or since.journal != end.journal or since.offset > end.offset:
            return None, end
        return self._between(since.offset, end.offset), end

    def _between(self, begin: int, end: int) -> list[Change]:
        if begin == end:
            return []
        with open_plain(self._path) as file:
            file.seek(begin)
            lines = file.read(end - begin).decode(errors="replace").splitlines()
        changes: dict[Change, None] = {}
        for line in lines:
            bundle, _, name = line.partition(" ")
            if name:  # a line that a full disk cut off belongs to no change
                changes[Change(bundle, None if name == "-" else name)] = None
        return list(changes)

    @property
    def end(self) -> Position:
        """The place behind the last line."""
        try:
            if self._last is not None and _state(self._path.stat()) == self._last[0]:
                return self._last[1]  # Asked before each list and search
            with open_plain(self._path) as file:
                found = os.fstat(file.fileno())
                end = Position(file.readline(200).decode(errors="replace"), found.st_size)
        except FileNotFoundError:
            return Position("", 0)
        except OSError as error:
            raise StateUnavailable(f"{self._path} cannot be read: {error.strerror}") from None
        self._last = _state(found), end
        return end


def _state(found: os.stat_result) -> object:
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns
