"""Finds lines in an audit log, newest first and through all its files, in bounded memory."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import BinaryIO, NamedTuple

from toolcrib.guard.audit.files import lines_backwards, open_files
from toolcrib.guard.audit.line import Entry, encode_fields, parse

__all__ = ["AuditReader", "Line", "Query"]

_SHOWN = 512


class Line(NamedTuple):
    """One line of a log; `entry` is None for what is no audit line: what a crash or somebody left."""

    file: str
    raw: bytes
    entry: Entry | None


@dataclass(frozen=True, slots=True)
class Query:
    """What a line must be. What is None is not asked."""

    tool: str | None = None
    event: str | None = None
    caller: str | None = None
    status: str | None = None
    code: str | None = None
    since: datetime | None = None
    until: datetime | None = None
    text: str | None = None
    """Stands anywhere in the line."""

    def fields(self) -> dict[str, str]:
        """The fields that are asked for, by their names in a line."""
        asked = {"name": self.tool, "caller": self.caller, "status": self.status, "code": self.code}
        return {key: value for key, value in asked.items() if value is not None}

    def marks(self) -> list[bytes]:
        """Bytes that every line that fits contains: a quick look before a line is taken apart."""
        marks = [] if self.event is None else [f"] {self.event} ".encode()]
        for key, value in self.fields().items():
            written = encode_fields({key: value})
            if written == f" {key}={value}":  # A plain word is written in one way only.
                marks.append(written.encode())
        if self.text is not None and self.text.isascii() and json.dumps(self.text) == f'"{self.text}"':
            marks.append(self.text.encode())
        return marks

    def fits(self, line: Line) -> bool:
        """Whether the line is one that is looked for."""
        entry = line.entry
        if entry is None:
            return self == Query() or (self == Query(text=self.text) and self._says(line.raw))
        return (
            (self.event is None or entry.event == self.event)
            and (self.since is None or entry.time >= self.since)
            and (self.until is None or entry.time <= self.until)
            and all(entry.fields.get(key) == value for key, value in self.fields().items())
            and (self.text is None or self._says(line.raw))
        )

    def _says(self, raw: bytes) -> bool:
        text, line = self.text or "", raw.decode(errors="replace")
        return text in line or json.dumps(text, ensure_ascii=False)[1:-1] in line


class AuditReader:
    """Reads one log: first its newest lines, then what comes. Use it as a context manager."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: BinaryIO | None = None
        self._position = 0

    def newest(self, query: Query, limit: int) -> list[Line]:
        """The newest lines that fit, at most `limit`, the oldest of them first.

        Raises OSError when a file cannot be read, or when a writer holds the lock for seconds.
        """
        self.close()
        parts, self._file, self._position = open_files(self._path)
        found: list[Line] = []
        marks = query.marks()
        for name, raw in self._backwards(parts):
            if len(found) >= limit:
                break
            if all(mark in raw for mark in marks):
                line = _read(name, raw)
                if query.fits(line):
                    found.append(line)
        return found[::-1]

    def news(self, query: Query) -> Iterator[Line]:
        """The lines that fit and have come since the last look, through a rotation as well."""
        marks = query.marks()
        for name, raw in self._forwards():
            if all(mark in raw for mark in marks):
                line = _read(name, raw)
                if query.fits(line):
                    yield line

    def close(self) -> None:
        """Let go of the file."""
        if self._file is not None:
            self._file.close()
        self._file = None

    def __enter__(self) -> AuditReader:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def _backwards(self, parts: list[Path]) -> Iterator[tuple[str, bytes]]:
        if self._file is not None:
            for raw in lines_backwards(self._file.fileno(), self._position):
                yield self._path.name, raw
        for part in reversed(parts):
            with part.open("rb") as file:
                for raw in lines_backwards(file.fileno(), os.fstat(file.fileno()).st_size):
                    yield part.name, raw

    def _forwards(self) -> Iterator[tuple[str, bytes]]:
        """Whole new lines of our file; where the path leads to another by now, of those after it as well."""
        moved = self._moved()  # Asked before reading: what is added in between is read at the next look.
        yield from self._rest()
        if not moved:
            return
        ours = self._file
        parts, self._file, _ = open_files(self._path)
        self._position = 0
        if ours is not None:
            with ours:
                held = os.fstat(ours.fileno())
            behind = [n for n, part in enumerate(parts, 1) if os.path.samestat(part.stat(), held)]
            parts = parts[behind[0] if behind else len(parts) :]
        for part in parts:
            with part.open("rb") as file:
                for raw in file:
                    yield part.name, raw.rstrip(b"\n")
        yield from self._rest()

    def _rest(self) -> Iterator[tuple[str, bytes]]:
        if self._file is None:
            return
        self._file.seek(self._position)
        for raw in self._file:
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


def _read(name: str, raw: bytes) -> Line:
    try:
        return Line(name, raw, parse(raw))
    except ValueError:
        return Line(name, raw[:_SHOWN], None)
