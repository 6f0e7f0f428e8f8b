"""Check an audit log, all its files, and name the first place where the chain is broken."""

from __future__ import annotations

import os
from dataclasses import dataclass, field, replace
from hashlib import sha256
from pathlib import Path
from typing import BinaryIO, Literal

from toolcrib.guard.audit.anchor import read_anchor
from toolcrib.guard.audit.files import open_files, rotated_name
from toolcrib.guard.audit.line import GENESIS, AuditEntry, Head, parse

__all__ = ["Problem", "Verdict", "verify"]

ProblemKind = Literal["altered", "cut", "gap", "missing", "reordered"]


@dataclass(frozen=True, slots=True)
class Problem:
    """The first place where the chain is broken; `line` counts from 1 in its file."""

    line: int
    kind: ProblemKind
    message: str
    file: str = ""
    """Name of the file, in the log's folder."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """The result of a check. `head` is the last valid line, `lines` the count in all files."""

    lines: int
    head: Head
    problem: Problem | None = None
    notices: dict[str, int] = field(default_factory=dict)
    """The count of each event that the log itself recorded: AUDIT_RECOVERED, AUDIT_GAP and so on."""
    anchor: Head | None = None
    """The head the log was compared with; None if there was no anchor."""
    files: tuple[str, ...] = ()
    """Names of the log's files, oldest first."""

    @property
    def ok(self) -> bool:
        """True if every line follows from the one before."""
        return self.problem is None


def verify(path: Path, head: Head | None = None, *, anchor: Path | None = None) -> Verdict:
    """Check a whole log, rotated files included; one that does not exist has no lines.

    `head` is a line known from elsewhere (`AuditLog.head`), `anchor` the file that keeps the last one: the
    log must contain it unchanged. Without either, lines removed from the end and a log rewritten from the
    start are not noticed. Raises OSError for a file that cannot be read, AuditUnavailable for a damaged
    anchor.
    """
    # The anchor is written after each line. Read before the log, it can only be behind it.
    known = head if anchor is None else read_anchor(anchor)
    scan = _Scan(known or Head())
    parts, current, size = open_files(path)
    try:
        for part in parts:
            with part.open("rb") as file:
                scan.check_file(file, os.fstat(file.fileno()).st_size, part.name)
        if current is not None:
            scan.check_file(current, size, path.name)
    finally:
        if current is not None:
            current.close()
    return replace(scan.finish(path.name), anchor=known)


_UNSURE = "this line was altered, or the digest in the next (and last) line"


class _Scan:
    """The state of one check: the last valid line, and later lines that do not follow from it (yet)."""

    def __init__(self, anchor: Head) -> None:
        self.anchor = anchor
        self.number = 0
        self.begins: list[tuple[int, str]] = []
        """For each file, the number of lines before it and its name."""
        self.seq = 0
        self.chain = GENESIS
        self.raw = b""
        self.lost: tuple[int, int] | None = None
        """The numbers of the lines that are missing, first and last."""
        self.notices: dict[str, int] = {}
        self.problem: Problem | None = None
        self.strays: _Strays | None = None

    def check_file(self, file: BinaryIO, size: int, name: str) -> None:
        """Check the first `size` bytes of the next file."""
        self.begins.append((self.number, name))
        while size > 0 and (raw := file.readline(size)):
            size -= len(raw)
            self.check_line(raw)

    def check_line(self, raw: bytes) -> None:
        """Check the next line, including its newline if there is one."""
        self.number += 1
        if self.problem is not None:
            return
        whole = raw.endswith(b"\n")
        if not whole:
            raw += b"\n"  # The next record will end it like this.
        try:
            entry: AuditEntry | None = parse(raw)
        except ValueError:
            entry = None
        if self.strays is not None:
            if entry is None or not self.strays.closed_by(entry, self.seq + 1):
                self.strays.add(raw, entry, self.seq + 1)
                return
        elif entry is None or (entry.seq, entry.prev) != (self.seq + 1, self.chain):
            kind, message = self._diagnose(entry, whole)
            self.strays = _Strays(self.raw, raw, entry, self.number, kind, message)
            return
        assert entry is not None
        self._accept(entry, raw)

    def _accept(self, entry: AuditEntry, raw: bytes) -> None:
        self.strays = None
        self.seq, self.chain, self.raw = entry.seq, sha256(raw).hexdigest(), raw
        if entry.event.startswith("AUDIT_"):
            self.notices[entry.event] = self.notices.get(entry.event, 0) + 1
        if entry.event == "AUDIT_GAP":
            known = f"its last line was seq {entry.fields.get('after_seq')}, {entry.fields.get('after')}"
            self._fail(self.number, "gap", f"the log was {entry.fields.get('reason')} while in use; {known}")
        if entry.seq == self.anchor.seq and self.chain != self.anchor.hash:
            self._fail(self.number, "altered", f"seq {entry.seq} is not the line in the anchor")

    def _diagnose(self, entry: AuditEntry | None, whole: bool) -> tuple[ProblemKind, str]:
        expected = self.seq + 1
        if entry is None:
            if not whole:
                return "cut", "the line is incomplete (after a crash, the next record ends it)"
            return "altered", "this is not an audit line"
        if entry.seq > expected:
            self.lost = (expected, entry.seq - 1)
            lost = f"seq {expected}" if entry.seq == expected + 1 else f"seq {expected} to {entry.seq - 1}"
            return "missing", f"{lost} is missing here; the line is seq {entry.seq}"
        if entry.seq < expected:
            return "reordered", f"seq {entry.seq} comes after seq {self.seq}"
        return "altered", _UNSURE

    def finish(self, name: str) -> Verdict:
        """Return the verdict after the last line; `name` is that of the current file."""
        if self.strays is not None:
            unsure = self.strays.message == _UNSURE and self.strays.line > 1
            self._fail(self.strays.line - unsure, self.strays.kind, self.strays.message)
        if self.problem is None and self.seq < self.anchor.seq:
            lost = f"the log ends at seq {self.seq}, but the anchor is at seq {self.anchor.seq}"
            self._fail(self.number + 1, "cut", lost)
        problem = None if self.problem is None else self._placed(self.problem, name)
        files = tuple(name for _, name in self.begins)
        return Verdict(self.number, Head(self.seq, self.chain), problem, self.notices, None, files)

    def _fail(self, line: int, kind: ProblemKind, message: str) -> None:
        self.problem = self.problem or Problem(line, kind, message)

    def _placed(self, problem: Problem, name: str) -> Problem:
        """Return the problem with its file, its line in that file, and any rotated file missing before it."""
        begin, file = next(((b, f) for b, f in reversed(self.begins) if b < problem.line), (0, name))
        message = problem.message
        if problem.kind == "missing" and problem.line == begin + 1 and self.lost is not None:
            message += f"; a rotated file is missing, such as {rotated_name(Path(name), *self.lost)}"
        return Problem(problem.line - begin, problem.kind, message, file)


class _Strays:
    """Lines that do not follow from the last valid one: remains of a crash, or traces of tampering.

    They end with an AUDIT_RECOVERED line whose digest covers the last valid line and every byte since.
    Until then each following line makes the diagnosis more exact.
    """

    def __init__(
        self, before: bytes, raw: bytes, entry: AuditEntry | None, line: int, kind: ProblemKind, message: str
    ) -> None:
        self.digest = sha256(before + raw)
        self.size = len(raw)
        self.first = raw
        self.entry = entry
        self.line, self.kind, self.message = line, kind, message
        self.diagnosed = False

    def closed_by(self, entry: AuditEntry, expected: int) -> bool:
        """Return True if this line records the recovery from exactly these bytes."""
        return (
            entry.event == "AUDIT_RECOVERED"
            and entry.seq == expected
            and entry.fields.get("bytes") == self.size
            and entry.prev == self.digest.hexdigest()
        )

    def add(self, raw: bytes, entry: AuditEntry | None, expected: int) -> None:
        """Add one more line that does not follow."""
        self.digest.update(raw)
        self.size += len(raw)
        if self.entry is None or entry is None:
            return
        if self.entry.seq > expected and entry.seq == expected:
            self.kind = "reordered"
            self.message = f"seq {expected} comes later; seq {self.entry.seq} is in its place"
        if self.diagnosed:
            return
        self.diagnosed = True
        if self.entry.seq == expected:
            # If the next line contains this line's digest, the altered one is the line before.
            if entry.prev == sha256(self.first).hexdigest() and self.line > 1:
                self.line -= 1
                self.message = "this line was altered: the next line has another digest for it"
            else:
                self.message = "this line was altered"
        elif entry.seq == expected + 1:
            self.kind = "altered"
            self.message = f"the number should be seq {expected}, but is seq {self.entry.seq}"
