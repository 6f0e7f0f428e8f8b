"""The calls that have started and not ended, of every process that writes to a log.

A process that dies during a call leaves the line of its start without one of its end. So that this is noticed
without reading the whole log, the anchor names each process with running calls, and its oldest start.
"""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import sha256
from itertools import count
from pathlib import Path
from typing import NamedTuple

from toolcrib.guard.audit.files import newest_first
from toolcrib.guard.audit.line import AuditEntry, parse
from toolcrib.state import is_alive, this_process, uptime

ROOM = 4096
"""Bytes reserved for the end of a call, beside those of its start: its end repeats the start's fields."""

_objects = count(1)


class RunningCalls(NamedTuple):
    """The running calls of one writer."""

    process: str
    """Its name, as `this_process` returns it, and a number of its own."""
    first: int
    """The number of the oldest start; 0 if none of its calls runs."""
    reserved: int
    """Bytes of the log's file that are kept free for the ends."""
    since: int
    """The `uptime` in seconds at which it was last known to run."""

    @property
    def label(self) -> str:
        """The short name in the lines of its starts; the digits at its end tell containers apart."""
        return f"{self.process.split('/')[2]}-{sha256(self.process.encode()).hexdigest()[:4]}"

    @property
    def is_alive(self) -> bool:
        """True if its process still runs, as far as can be seen from here."""
        return is_alive(self.process, self.since)


class CallTable:
    """The running calls that one `AuditLog` knows of: its own, and those of other writers."""

    def __init__(self) -> None:
        process = f"{this_process()}/{next(_objects)}"
        self.label = RunningCalls(process, 0, 0, 0).label
        """Names the process in the lines of its starts."""
        self.others: tuple[RunningCalls, ...] = ()
        self.reserved = 0
        """Bytes that are kept free for the ends of all running calls."""
        self._process = process
        self._own: dict[int, int] = {}
        self._kept = 0
        self._rest = ",0"

    def add(self, seq: int, size: int) -> None:
        """Add a call by the number and the size of its start."""
        self._own[seq] = size = size + ROOM
        self._kept += size
        self.reserved += size

    def remove(self, seq: int) -> None:
        """Remove a call that has ended; what was kept free for it is free."""
        size = self._own.pop(seq, 0)
        self._kept -= size
        self.reserved -= size

    def load(self, table: Iterable[RunningCalls]) -> None:
        """Take over what the anchor says of other writers."""
        self.others = tuple(calls for calls in table if calls.first and calls.process != self._process)
        self.reserved = self._kept + sum(calls.reserved for calls in self.others)
        since = int(uptime())
        self._rest = f",{since}" + "".join(" {},{},{},{}".format(*calls) for calls in self.others)

    def text(self) -> str:
        """Return what the anchor says of this writer, and then of every other with running calls."""
        # A dict keeps the order of its keys, and numbers only grow: the first key is the oldest start.
        first = next(iter(self._own)) if self._own else 0
        return f"{self._process},{first},{self._kept}{self._rest}"


def interrupted_calls(path: Path, table: Iterable[RunningCalls]) -> list[AuditEntry]:
    """Return the starts, oldest first, whose process has ended before it wrote the line of their end."""
    dead = {calls.label: calls.first for calls in table if calls.first and not calls.is_alive}
    oldest = min(dead.values(), default=0)
    ended: set[int] = set()
    found: list[AuditEntry] = []
    # The newest first, so the end of a call is read before its start.
    for raw in newest_first(path) if dead else ():
        try:
            entry = parse(raw)
        except ValueError:
            continue
        if entry.seq < oldest:
            break
        ended.add(call_ended(entry))
        first = dead.get(str(entry.fields.get("process")))
        if entry.event == "TOOL_STARTED" and first is not None and entry.seq not in ended:
            found.append(entry)
    return found[::-1]


def call_ended(entry: AuditEntry) -> int:
    """Return the number of the start whose end this line is; 0 if it ends no call."""
    start = entry.fields.get("start")
    return start if isinstance(start, int) else 0
