"""Reads an audit log from first line to last and names the first place where the chain does not hold."""

from __future__ import annotations

import fcntl
import os
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Literal

from toolcrib.guard.audit import lock_file
from toolcrib.guard.audit_line import GENESIS, Entry, Head, parse

__all__ = ["Problem", "Verdict", "verify"]

ProblemKind = Literal["altered", "cut", "gap", "missing", "reordered"]


@dataclass(frozen=True, slots=True)
class Problem:
    """The first place where a log does not hold; `line` counts from 1."""

    line: int
    kind: ProblemKind
    message: str


@dataclass(frozen=True, slots=True)
class Verdict:
    """What the check found. `head` is the last line that holds."""

    lines: int
    head: Head
    problem: Problem | None = None
    notices: dict[str, int] = field(default_factory=dict)
    """How often the log itself recorded something: AUDIT_RECOVERED, AUDIT_RESUMED, AUDIT_GAP."""

    @property
    def ok(self) -> bool:
        """Whether every line follows from the one before."""
        return self.problem is None


def verify(path: Path, head: Head | None = None) -> Verdict:
    """Check a whole log; one that does not exist has no lines. Raises OSError when it cannot be read.

    `head` is a line known from elsewhere (`AuditLog.head`, kept outside the project): the log must contain it
    unchanged. Without it, lines removed from the end and a log written anew from the start are not noticed.
    """
    scan = _Scan(head or Head())
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return scan.finish()
    with os.fdopen(fd, "rb") as file:
        # Writers append while we read: what is in the file now is whole, what comes later is not looked at.
        lock_file(fd, fcntl.LOCK_SH, 5.0)
        left = os.fstat(fd).st_size
        fcntl.flock(fd, fcntl.LOCK_UN)
        while left > 0 and (raw := file.readline(left)):
            left -= len(raw)
            scan.take(raw)
    return scan.finish()


_UNSURE = "this line was altered, or the digest that the next (and last) line carries"


class _Scan:
    """The state of one check: the last line that holds, and the lines behind it that do not (yet)."""

    def __init__(self, anchor: Head) -> None:
        self.anchor = anchor
        self.number = 0
        self.seq = 0
        self.chain = GENESIS
        self.raw = b""
        self.notices: dict[str, int] = {}
        self.problem: Problem | None = None
        self.strays: _Strays | None = None

    def take(self, raw: bytes) -> None:
        """Look at the next line, its newline included where there is one."""
        self.number += 1
        if self.problem is not None:
            return
        whole = raw.endswith(b"\n")
        if not whole:
            raw += b"\n"  # As the next record will close it.
        try:
            entry: Entry | None = parse(raw)
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

    def _accept(self, entry: Entry, raw: bytes) -> None:
        self.strays = None
        self.seq, self.chain, self.raw = entry.seq, sha256(raw).hexdigest(), raw
        if entry.event.startswith("AUDIT_"):
            self.notices[entry.event] = self.notices.get(entry.event, 0) + 1
        if entry.event == "AUDIT_GAP":
            known = f"it had got to seq {entry.fields.get('after_seq')}, {entry.fields.get('after')}"
            self._fail(self.number, "gap", f"the log was {entry.fields.get('reason')} while in use: {known}")
        if entry.seq == self.anchor.seq and self.chain != self.anchor.hash:
            self._fail(self.number, "altered", f"seq {entry.seq} is not the line that the anchor knows")

    def _diagnose(self, entry: Entry | None, whole: bool) -> tuple[ProblemKind, str]:
        expected = self.seq + 1
        if entry is None:
            if not whole:
                return "cut", "the line breaks off (the next record will close it, if this was a crash)"
            return "altered", "this is no audit line"
        if entry.seq > expected:
            lost = f"seq {expected}" if entry.seq == expected + 1 else f"seq {expected} to {entry.seq - 1}"
            return "missing", f"{lost} should stand here, seq {entry.seq} does"
        if entry.seq < expected:
            return "reordered", f"seq {entry.seq} stands after seq {self.seq}"
        return "altered", _UNSURE

    def finish(self) -> Verdict:
        """The verdict, after the last line."""
        if self.strays is not None:
            unsure = self.strays.message == _UNSURE and self.strays.line > 1
            self._fail(self.strays.line - unsure, self.strays.kind, self.strays.message)
        if self.problem is None and self.seq < self.anchor.seq:
            lost = f"the log ends at seq {self.seq}; the anchor knows seq {self.anchor.seq}"
            self._fail(self.number + 1, "missing", lost)
        return Verdict(self.number, Head(self.seq, self.chain), self.problem, self.notices)

    def _fail(self, line: int, kind: ProblemKind, message: str) -> None:
        self.problem = self.problem or Problem(line, kind, message)


class _Strays:
    """Lines that do not follow from the last one that holds: what a crash left, or the traces of tampering.

    An AUDIT_RECOVERED line whose digest covers the last line that holds and every byte since closes them.
    Until then the lines that follow make the diagnosis more exact.
    """

    def __init__(
        self, before: bytes, raw: bytes, entry: Entry | None, line: int, kind: ProblemKind, message: str
    ) -> None:
        self.digest = sha256(before + raw)
        self.size = len(raw)
        self.first = raw
        self.entry = entry
        self.line, self.kind, self.message = line, kind, message
        self.looked = False

    def closed_by(self, entry: Entry, expected: int) -> bool:
        """Whether this line records the recovery from exactly these strays."""
        return (
            entry.event == "AUDIT_RECOVERED"
            and entry.seq == expected
            and entry.fields.get("bytes") == self.size
            and entry.prev == self.digest.hexdigest()
        )

    def add(self, raw: bytes, entry: Entry | None, expected: int) -> None:
        """One more line that does not follow."""
        self.digest.update(raw)
        self.size += len(raw)
        if self.entry is None or entry is None:
            return
        if self.entry.seq > expected and entry.seq == expected:
            self.kind = "reordered"
            self.message = f"seq {expected} stands further down; seq {self.entry.seq} is in its place"
        if self.looked:
            return
        self.looked = True
        if self.entry.seq == expected:
            # The line after vouches for this one, or it does not: that tells which of two was altered.
            if entry.prev == sha256(self.first).hexdigest() and self.line > 1:
                self.line -= 1
                self.message = "the digest that the next line carries is not this line's: it was altered"
            else:
                self.message = "this line was altered"
        elif entry.seq == expected + 1:
            self.kind = "altered"
            self.message = f"seq {expected} should stand here, seq {self.entry.seq} does"
