"""The journal of a store: which records were changed, for processes that keep a copy of them.

Each change adds a line, `<bundle id> <file name>` or `<bundle id> -`, before the record itself is written,
and under the lock of the store. A reader that takes the lock alone therefore finds every change whose line it
read. The journal is no truth: when it is gone, readers look at every record. After a restart of the machine
its last lines may be lost; then the first reader compares the files with those that it knows.
"""

from __future__ import annotations

import os
import re
import secrets
import uuid
from collections.abc import Callable
from errno import ENOSPC
from pathlib import Path
from typing import NamedTuple

from toolcrib.bundles.files import StoreLock, create_file, encoded, replace_bytes
from toolcrib.errors import StateUnavailable
from toolcrib.state import boot_id
from toolcrib.state.private import unwritable

_MOST_BYTES = 16 * 1024 * 1024
"""A longer journal begins anew."""
_LINE = len(f"{uuid.UUID(int=0)} {uuid.UUID(int=0)}.json\n")
"""Bytes for a tool."""
_CONTINUES = re.compile(r" after (\w+) (\d+) (\d+)\"")
"""The end of a first line: the journal before this one, and the place behind which its changes are here too,
up to its end."""


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

    def add(self, bundle: str, file: str | None = None) -> None:
        """Add a line, before its change. The caller has the lock of the store."""
        # The end of the line before comes first: a full disk may have taken that line in part.
        line = f"\n{bundle} {file or '-'}".encode()
        try:
            # Of writers that share the lock one creates it: `create_file` leaves one that is there as it is.
            if not self._path.exists():
                create_file(self._path, _header())
            descriptor = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
            try:
                # One write with O_APPEND: lines of writers that share the lock do not mix. If a full disk
                # takes a part of the line only, the change is refused.
                if os.write(descriptor, line) != len(line):
                    raise OSError(ENOSPC, os.strerror(ENOSPC))
            finally:
                os.close(descriptor)
        except OSError as error:
            raise unwritable(self._path, error) from None

    def has_grown(self, since: Position) -> bool:
        """Return True if there are lines behind this position, or it is of before a restart."""
        return self.end != since or not _is_of_this_boot(since)

    def read(
        self, since: Position | None, differing: Callable[[], list[Change]] = list
    ) -> tuple[list[Change] | None, Position]:
        """Return the changes since a position, and the new one; None in place of changes to look at all.

        No writer is at work when the position is taken. `differing` returns the records that differ from
        those of the position: after a restart of the machine lines may be lost.
        """
        with self._lock.alone():
            end = self.end
            begin = None if since is None else _place(since, end)
            # Lines are not synced, so after a restart of the machine the last ones may be missing.
            if end.offset > _MOST_BYTES or not _is_of_this_boot(end):
                try:
                    begin = self._begin(begin, end, differing)
                except StateUnavailable:
                    begin = None  # Whoever may not write it looks at all records each time.
                end = self.end
        return (None if begin is None else self._between(begin, end.offset)), end

    def _begin(self, place: int | None, end: Position, differing: Callable[[], list[Change]]) -> int | None:
        """Begin a new journal, with the lines behind a place in this one; return where they begin."""
        if place is None:
            replace_bytes(self._path, encoded(_header()))
            return None
        changes = self._between(place, end.offset)
        if not _is_of_this_boot(end):
            changes += differing()
        # A reader whose place lies in this part of the old journal goes on here, and need not look at every
        # record. To read a change twice does no harm: it only says which record to look at.
        first = encoded(f"{_header()} after {_name(end)} {place} {end.offset}")
        lines = "".join(f"{bundle} {file or '-'}\n" for bundle, file in dict.fromkeys(changes))
        replace_bytes(self._path, first + lines.encode())
        return len(first)

    def _between(self, begin: int, end: int) -> list[Change]:
        with self._path.open("rb") as file:
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
            with self._path.open("rb") as file:
                found = os.fstat(file.fileno())
                end = Position(file.readline(200).decode(errors="replace"), found.st_size)
        except FileNotFoundError:
            return Position("", 0)
        self._last = _state(found), end
        return end


def _state(found: os.stat_result) -> object:
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns


def _is_of_this_boot(position: Position) -> bool:
    return not position.journal or boot_id() in position.journal


def _header() -> str:
    return f"{boot_id()} {secrets.token_hex(8)}"


def _name(position: Position) -> str:
    return position.journal.split()[1].strip('"')


def _place(since: Position, end: Position) -> int | None:
    """Return where the changes since a position begin in the journal that ends at `end`; None if nowhere."""
    if since.journal == end.journal:
        return since.offset if since.offset <= end.offset else None
    continued = _CONTINUES.search(end.journal)
    if not since.journal or continued is None or continued[1] != _name(since):
        return None
    first = len(end.journal.encode())
    return first if int(continued[2]) <= since.offset <= int(continued[3]) else None
