"""Check an audit log, all its files, and name the first place where the chain is broken."""

from __future__ import annotations

import os
from dataclasses import asdict, field, replace
from hashlib import sha256
from pathlib import Path
from typing import Any, BinaryIO, Literal

from toolcrib.guard.audit.anchor import Anchored, read_anchor
from toolcrib.guard.audit.files import locked_files, open_part, rotated_name
from toolcrib.guard.audit.line import GENESIS, AuditEntry, Head, parse
from toolcrib.spec.record import record

ProblemKind = Literal["added", "altered", "cut", "gap", "missing", "reordered"]


@record
class BrokenChain:
    """The first place where the chain is broken; `line` counts from 1 in its file."""

    line: int
    kind: ProblemKind
    message: str
    file: str = ""
    """Name of the file, in the log's folder."""


@record
class Verdict:
    """The result of a check. `head` is the last valid line, `lines` the count in all files."""

    lines: int
    head: Head
    problem: BrokenChain | None = None
    notices: dict[str, int] = field(default_factory=dict)
    """The count of each event that the log itself recorded: AUDIT_RECOVERED, AUDIT_GAP and so on."""
    anchor: Head | None = None
    """The head the log was compared with; None if there was no anchor."""
    files: tuple[str, ...] = ()
    """Names of the log's files, oldest first."""
    skipped: tuple[str, ...] = ()
    """The checks that were not possible, with the reason."""
    running: tuple[AuditEntry, ...] = ()
    """The starts without an end whose process still runs."""
    interrupted: tuple[AuditEntry, ...] = ()
    """The starts without an end whose process has ended."""

    @property
    def ok(self) -> bool:
        """True if every line follows from the one before."""
        return self.problem is None

    def as_dict(self) -> dict[str, Any]:
        """Return the JSON form."""
        anchor, head = self.anchor, self.head
        return {
            "ok": self.ok,
            "lines": self.lines,
            "files": list(self.files),
            "head": {"seq": head.seq, "hash": head.hash},
            "anchor": None if anchor is None else {"seq": anchor.seq, "hash": anchor.hash},
            "problem": None if self.problem is None else asdict(self.problem),
            "notices": self.notices,
            "skipped": list(self.skipped),
            "running": [start.as_dict() for start in self.running],
            "interrupted": [start.as_dict() for start in self.interrupted],
        }


def verify(path: Path, head: Head | None = None, *, anchor: Path | None = None) -> Verdict:
    """Check a whole log, rotated files included; one that does not exist has no lines.

    `head` is a line known from elsewhere (`AuditLog.head`): the log must contain it unchanged. `anchor` is
    the file that keeps the last line: the log must end with that line. `Verdict.skipped` names what could
    not be checked. Raises OSError for a file that cannot be read, AuditUnavailable for a damaged anchor.
    """
    with locked_files(path) as (parts, current, size):
        # Read under the lock, so that it fits this size of the log. The check itself needs no lock: what is
        # before that size never changes.
        known = None if anchor is None else read_anchor(anchor)
    if known is None and head is not None:
        known = Anchored(head)
    scan = _Scan(known or Anchored(Head()))
    try:
        for part in parts:
            with open_part(part) as file:
                scan.check_file(file, os.fstat(file.fileno()).st_size, part.name)
        if current is not None:
            scan.check_file(current, size, path.name)
    finally:
        if current is not None:
            current.close()
    verdict = scan.finish(path.name)
    if head is not None and anchor is None:
        return replace(verdict, anchor=head)
    skipped: tuple[str, ...] = ()
    if known is None:
        skipped = (_NO_ANCHOR,)
    elif not known.keyed:
        skipped = (_NO_KEY,)
    anchored = None if known is None else known.head
    return replace(verdict, anchor=anchored, skipped=skipped if verdict.lines else ())


_NO_ANCHOR = "the end of the log: without an anchor, lines removed from or added to the end are not noticed"
_NO_KEY = "the keyed digest of the anchor: its key is missing"


class _Scan:
    """The state of one check: the last valid line, and later lines that do not follow from it (yet)."""

    def __init__(self, anchored: Anchored) -> None:
        self.anchored = anchored
        self.anchor = anchored.head
        self.open: dict[int, AuditEntry] = {}
        """The starts without an end so far, by number."""
        self.number = 0
        self.begins: list[tuple[int, str]] = []
        """For each file, the number of lines before it and its name."""
        self.seq = 0
        self.chain = GENESIS
        self.raw = b""
        self.notices: dict[str, int] = {}
        self.problem: BrokenChain | None = None
        self.strays: _Strays | None = None
        self.strays_at = 0
        """The number of the first line that does not follow."""

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
            self.strays = _Strays(self.raw, raw, entry, whole)
            self.strays_at = self.number
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
        # Toolcrib writes the anchor before the line, so no line of its own can be behind the anchor's.
        if entry.seq > self.anchor.seq and self.anchored.exact:
            ends = f"the anchor ends at seq {self.anchor.seq}"
            self._fail(self.number, "added", f"Toolcrib did not write seq {entry.seq}: {ends}")
        if entry.event == "TOOL_STARTED":
            self.open[entry.seq] = entry
        self.open.pop(entry.ends, None)

    def finish(self, name: str) -> Verdict:
        """Return the verdict after the last line; `name` is that of the current file."""
        if self.strays is not None:
            before, kind, message = self.strays.diagnosis(self.seq + 1)
            self._fail(max(1, self.strays_at - before), kind, message)
        ended = Head(self.seq, self.chain)
        if self.problem is None and self.seq < self.anchor.seq and not self.anchored.lacks_last(ended):
            lost = f"the log ends at seq {self.seq}, but the anchor is at seq {self.anchor.seq}"
            self._fail(self.number + 1, "cut", lost)
        problem = None if self.problem is None else self._placed(self.problem, name)
        files = tuple(name for _, name in self.begins)
        if self.problem is not None:
            self.open = {}  # Their ends may be in the part that was not checked.
        running = tuple(start for start in self.open.values() if start.state == "running")
        return Verdict(
            self.number,
            ended,
            problem,
            self.notices,
            files=files,
            running=running,
            interrupted=tuple(start for start in self.open.values() if start not in running),
        )

    def _fail(self, line: int, kind: ProblemKind, message: str) -> None:
        self.problem = self.problem or BrokenChain(line, kind, message)

    def _placed(self, problem: BrokenChain, name: str) -> BrokenChain:
        """Return the problem with its file, its line in that file, and any rotated file missing before it."""
        begin, file = next(((b, f) for b, f in reversed(self.begins) if b < problem.line), (0, name))
        message = problem.message
        if problem.kind == "missing" and problem.line == begin + 1 and self.strays and self.strays.first:
            lost = rotated_name(Path(name), self.seq + 1, self.strays.first.seq - 1)
            message += f"; a rotated file is missing, such as {lost}"
        return BrokenChain(problem.line - begin, problem.kind, message, file)


class _Strays:
    """Lines that do not follow from the last valid one: remains of a crash, or traces of tampering.

    They end with an AUDIT_RECOVERED line whose digest covers the last valid line and every byte since.
    """

    def __init__(self, before: bytes, raw: bytes, entry: AuditEntry | None, whole: bool) -> None:
        self.digest = sha256(before + raw)
        self.size = len(raw)
        self.first, self.first_hash = entry, sha256(raw).hexdigest()
        self.whole = whole
        self.second: AuditEntry | None = None
        """The first audit line after that."""
        self.has_expected = False
        """True if a later line has the number that the first one should have."""

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
        self.second = self.second or entry
        self.has_expected = self.has_expected or (entry is not None and entry.seq == expected)

    def diagnosis(self, expected: int) -> tuple[int, ProblemKind, str]:
        """Return what is wrong with the first line, which should have this number.

        The number returned with it is 1 if the line before it is the one that was altered.
        """
        first, second = self.first, self.second
        if first is None and self.whole:
            return 0, "altered", "this is not an audit line"
        if first is None:
            return 0, "cut", "the line is incomplete (after a crash, the next record ends it)"
        if first.seq > expected and self.has_expected:
            return 0, "reordered", f"seq {expected} comes later; seq {first.seq} is in its place"
        if first.seq != expected and second is not None and second.seq == expected + 1:
            return 0, "altered", f"the number should be seq {expected}, but is seq {first.seq}"
        if first.seq < expected:
            return 0, "reordered", f"seq {first.seq} comes after seq {expected - 1}"
        if first.seq > expected:
            lost = f"seq {expected}" if first.seq == expected + 1 else f"seq {expected} to {first.seq - 1}"
            return 0, "missing", f"{lost} is missing here; the line is seq {first.seq}"
        # If the next line contains this line's digest, the altered one is the line before.
        if second is None:
            return 1, "altered", "this line was altered, or the digest in the next (and last) line"
        if second.prev == self.first_hash and expected > 1:
            return 1, "altered", "this line was altered: the next line has another digest for it"
        return 0, "altered", "this line was altered"
