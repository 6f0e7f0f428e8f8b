"""Find lines in an audit log, newest first and through all its files, in bounded memory."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from datetime import datetime
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from toolcrib.guard.audit.files import lines_backwards, open_files, open_part
from toolcrib.guard.audit.line import AuditEntry, encode_fields, parse
from toolcrib.spec.record import record

_SHOWN = 512


class AuditLine(NamedTuple):
    """One line of a log; `entry` is None if it is not an audit line, such as the remains of a crash."""

    file: str
    raw: bytes
    entry: AuditEntry | None

    def as_dict(self) -> dict[str, Any]:
        """Return the JSON form; of a line that is no audit line, its text as `stray`."""
        entry = self.entry
        if entry is None:
            return {"file": self.file, "stray": self.raw.decode(errors="replace")}
        return {
            "time": entry.time.strftime("%Y-%m-%dT%H:%M:%SZ"),
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
    """Reads one log: its newest lines, then new ones as they are written. A context manager."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: BinaryIO | None = None
        self._position = 0

    def newest(self, query: AuditQuery, limit: int) -> list[AuditLine]:
        """Return the newest matching lines, at most `limit`, the oldest of them first.

        Raises OSError if a file cannot be read, or a writer keeps the lock for seconds.
        """
        self.close()
        parts, self._file, self._position = open_files(self._path)
        lines = self._backwards(parts, query.marks())
        return list(islice(_matching(lines, query), limit))[::-1]

    def news(self, query: AuditQuery) -> Iterator[AuditLine]:
        """Yield matching lines written since the last call, also across a rotation."""
        yield from _matching(self._forwards(), query)

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            self._file.close()
        self._file = None

    def __enter__(self) -> AuditReader:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def _backwards(self, parts: list[Path], marks: list[bytes]) -> Iterator[tuple[str, bytes]]:
        if self._file is not None:
            for raw in lines_backwards(self._file.fileno(), self._position, marks):
                yield self._path.name, raw
        for part in reversed(parts):
            with open_part(part) as file:
                for raw in lines_backwards(file.fileno(), os.fstat(file.fileno()).st_size, marks):
                    yield part.name, raw

    def _forwards(self) -> Iterator[tuple[str, bytes]]:
        """Yield whole new lines of our file; if it was rotated, of the files after it as well."""
        moved = self._moved()  # Checked before reading: lines added in between are read by the next call.
        yield from self._rest()
        if not moved:
            return
        ours = self._file
        parts, self._file, _ = open_files(self._path)
        self._position = 0
        if ours is not None:
            with ours:
                held = os.fstat(ours.fileno())
            # Our file was renamed. Its inode finds it among the rotated ones; all files after it are new to
            # us.
            behind = [n for n, part in enumerate(parts, 1) if os.path.samestat(part.stat(), held)]
            parts = parts[behind[0] if behind else len(parts) :]
        for part in parts:
            with open_part(part) as file:
                for raw in file:
                    yield part.name, raw.rstrip(b"\n")
        yield from self._rest()

    def _rest(self) -> Iterator[tuple[str, bytes]]:
        if self._file is None:
            return
        self._file.seek(self._position)
        for raw in self._file:
            # A line that is still being written, or half a line of a dead writer: the next call reads it
            # again.
            if not raw.endswith(b"\n"):
                return
            self._position += len(raw)
            yield self._path.name, raw.rstrip(b"\n")

    def _moved(self) -> bool:
        try:
            found = self._path.stat()
        except FileNotFoundError:
            return False
        return self._file is None or not os.path.samestat(found, os.fstat(self._file.fileno()))


def _matching(lines: Iterator[tuple[str, bytes]], query: AuditQuery) -> Iterator[AuditLine]:
    marks = query.marks()
    for name, raw in lines:
        if all(mark in raw for mark in marks):
            try:
                line = AuditLine(name, raw, parse(raw))
            except ValueError:
                line = AuditLine(name, raw[:_SHOWN], None)
            if query.matches(line):
                yield line
