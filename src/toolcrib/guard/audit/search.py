"""Find lines in an audit log, newest first and through all its files, in bounded memory."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import nullcontext
from datetime import datetime
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from toolcrib.guard.audit.files import lines_backwards, locked_files, open_files, open_part
from toolcrib.guard.audit.line import AuditEntry, encode_fields, parse
from toolcrib.spec.moment import written
from toolcrib.spec.record import record

_SHOWN = 512


class AuditLine(NamedTuple):
    """One line of a log; `entry` is None if it is not an audit line, such as the remains of a crash."""

    file: str
    raw: bytes
    entry: AuditEntry | None

    def as_dict(self) -> dict[str, Any]:
        """Return the JSON form; of a line that is not an audit line, its text as `stray`."""
        entry = self.entry
        if entry is None:
            return {"file": self.file, "stray": self.raw.decode(errors="replace")}
        return {
            "time": written(entry.time.timestamp()),
            "event": entry.event,
            "seq": entry.seq,
            "prev": entry.prev,
            "file": self.file,
            "fields": entry.fields,
        }


@record
class AuditQuery:
    """Conditions on a line; None matches every line."""

    tool: str | None = None
    event: str | None = None
    caller: str | None = None
    status: str | None = None
    code: str | None = None
    since: datetime | None = None
    until: datetime | None = None
    text: str | None = None
    """A text anywhere in the line."""
    before: int | None = None
    """Only lines with a lower `seq`."""

    def fields(self) -> dict[str, str]:
        """Return the wanted fields by their names in a line."""
        wanted = {"name": self.tool, "caller": self.caller, "status": self.status, "code": self.code}
        return {key: value for key, value in wanted.items() if value is not None}

    def marks(self) -> list[bytes]:
        """Return bytes that every matching line contains: a quick check before a line is parsed."""
        marks = [] if self.event is None else [f"] {self.event} ".encode()]
        for key, value in self.fields().items():
            written = encode_fields({key: value})
            if written == f" {key}={value}":  # A plain word has one spelling only.
                marks.append(written.encode())
        # A text that JSON escapes has two spellings in a line, so it cannot be looked for as bytes.
        if self.text is not None and self.text.isascii() and json.dumps(self.text) == f'"{self.text}"':
            marks.append(self.text.encode())
        return marks

    def matches(self, line: AuditLine) -> bool:
        """Return True if the line meets every condition."""
        entry = line.entry
        if entry is None:
            # A stray line has no fields and no time, so it can only match by its text.
            return self == AuditQuery() or (self == AuditQuery(text=self.text) and self._has_text(line.raw))
        return (
            (self.event is None or entry.event == self.event)
            and (self.since is None or entry.time >= self.since)
            and (self.until is None or entry.time <= self.until)
            and (self.before is None or entry.seq < self.before)
            and all(entry.fields.get(key) == value for key, value in self.fields().items())
            and (self.text is None or self._has_text(line.raw))
        )

    def _has_text(self, raw: bytes) -> bool:
        text, line = self.text or "", raw.decode(errors="replace")
        return text in line or json.dumps(text, ensure_ascii=False)[1:-1] in line


class AuditReader:
    """Reads one log: its newest lines, then new ones as they are written."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._last = b""
        """The newest whole line that was read."""

    def newest(self, query: AuditQuery, limit: int) -> list[AuditLine]:
        """Return the newest matching lines, at most `limit`, the oldest of them first.

        Raises OSError if a file cannot be read, or a writer keeps the lock for seconds.
        """
        with locked_files(self._path) as (parts, file, size):
            pass  # From here on lines may be added beyond `size`.
        with file or nullcontext():
            self._last = next((raw for _, raw in self._whole(parts, file, size)), b"")
            lines = self._backwards(parts, file, size, query.marks())
            return list(islice(_matching(lines, query), limit))[::-1]

    def matching(self, query: AuditQuery) -> Iterator[AuditLine]:
        """Yield each matching line, the newest first, as it is read. Raises OSError."""
        with locked_files(self._path) as (parts, file, size):
            pass  # As in `newest`.
        with file or nullcontext():
            yield from _matching(self._backwards(parts, file, size, query.marks()), query)

    def back_to(self, since: datetime) -> Iterator[AuditLine]:
        """Yield each line, the newest first, up to the first that is older. Raises OSError."""
        for line in self.matching(AuditQuery()):
            if line.entry is not None and line.entry.time < since:
                return
            yield line

    def news(self, query: AuditQuery) -> Iterator[AuditLine]:
        """Yield matching lines written since the last call, also across a rotation."""
        # Without the lock: a reader that is stopped while it has it would stop every writer.
        parts, file, size = open_files(self._path)
        found, removed = list[tuple[str, bytes]](), bool(self._last)
        with file or nullcontext():
            for line in self._whole(parts, file, size):
                if line[1] == self._last:
                    removed = False
                    break
                found.append(line)
        if found:
            self._last = found[0][1]
        if removed:  # What rotated files contain is older.
            found = [line for line in found if line[0] == self._path.name]
        yield from _matching(reversed(found), query)

    def _backwards(
        self, parts: list[Path], file: BinaryIO | None, size: int, marks: Sequence[bytes] = ()
    ) -> Iterator[tuple[str, bytes]]:
        """Yield file name and line, the newest first; lines without one of the marks may be left out."""
        if file is not None:
            for raw in lines_backwards(file.fileno(), size, marks):
                yield self._path.name, raw
        for part in reversed(parts):
            with open_part(part) as rotated:
                for raw in lines_backwards(rotated.fileno(), os.fstat(rotated.fileno()).st_size, marks):
                    yield part.name, raw

    def _whole(self, parts: list[Path], file: BinaryIO | None, size: int) -> Iterator[tuple[str, bytes]]:
        """Yield each line as `_backwards`, without half a line of a dead writer at the end."""
        lines = self._backwards(parts, file, size)
        if file is not None and size and os.pread(file.fileno(), 1, size - 1) != b"\n":
            next(lines)
        return lines


def open_calls(newest: Iterable[AuditLine]) -> dict[int, str]:
    """Return the state of each call that begins in the newest lines of a log and does not end there.

    The key is the number of its start, the value is `running` or `interrupted`.
    """
    entries = [line.entry for line in newest if line.entry is not None]
    ended = {entry.ends for entry in entries}
    return {
        entry.seq: entry.state
        for entry in entries
        if entry.event == "TOOL_STARTED" and entry.seq not in ended
    }


def _matching(lines: Iterable[tuple[str, bytes]], query: AuditQuery) -> Iterator[AuditLine]:
    marks = query.marks()
    for name, raw in lines:
        if all(mark in raw for mark in marks):
            try:
                line = AuditLine(name, raw, parse(raw))
            except ValueError:
                line = AuditLine(name, raw[:_SHOWN], None)
            if query.matches(line):
                yield line
