"""Counts of calls, written behind the calls: a call only adds to a number in memory."""

from __future__ import annotations

import math
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from toolcrib.errors import StateUnavailable
from toolcrib.state.drivers.sqlite import SqliteDatabase

_TABLES = (
    """
CREATE TABLE used (
    tool TEXT NOT NULL,
    hour INTEGER NOT NULL,
    calls INTEGER NOT NULL,
    failures INTEGER NOT NULL,
    last REAL NOT NULL,
    PRIMARY KEY (tool, hour)
) WITHOUT ROWID;
CREATE TABLE totals (
    tool TEXT PRIMARY KEY,
    calls INTEGER NOT NULL,
    failures INTEGER NOT NULL,
    last REAL NOT NULL
) WITHOUT ROWID;
""",
    """
CREATE TABLE lasted (
    tool TEXT NOT NULL,
    day INTEGER NOT NULL,
    step INTEGER NOT NULL,
    calls INTEGER NOT NULL,
    PRIMARY KEY (tool, day, step)
) WITHOUT ROWID;
CREATE INDEX lasted_day ON lasted (day);
CREATE INDEX used_hour ON used (hour);
""",
    "ALTER TABLE used ADD COLUMN answered INTEGER NOT NULL DEFAULT 0;",
)
_ADD = """
INSERT INTO used VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT (tool, hour) DO UPDATE SET
calls = calls + excluded.calls, failures = failures + excluded.failures, last = max(last, excluded.last),
answered = answered + excluded.answered
"""
_ADD_TOTAL = """
INSERT INTO totals VALUES (?, ?, ?, ?) ON CONFLICT (tool) DO UPDATE SET
calls = calls + excluded.calls, failures = failures + excluded.failures, last = max(last, excluded.last)
"""
"""Lists show and sort by these: to add up the hours of all tools would take long."""
_ADD_TIME = """
INSERT INTO lasted VALUES (?, ?, ?, ?) ON CONFLICT (tool, day, step)
DO UPDATE SET calls = calls + excluded.calls
"""
_HOUR_S = 3600
_DAY_S = 24 * _HOUR_S
_STEP = 1.1
"""Durations are counted in steps, each this much longer than the one before: none is off by more."""
_FLUSH_S = 0.5


@dataclass(slots=True)
class UsageOfTool:
    """The calls of one tool."""

    calls: int = 0
    failures: int = 0
    """The calls of these that failed."""
    last_called_at: float | None = None
    """Seconds since the epoch."""
    answered: int = 0
    """Bytes of their results as JSON; not known of all calls together."""


@dataclass(slots=True)
class HourOfUse:
    """The calls of one tool that ended in one hour."""

    begins: int
    """Seconds since the epoch."""
    calls: int
    failures: int


@dataclass(slots=True)
class DayOfUse:
    """The calls of one tool that ended on one day (UTC)."""

    tool: str
    begins: int
    """Seconds since the epoch."""
    calls: int
    failures: int
    p50_ms: float | None = None
    """Half of them took no longer; within a tenth."""
    p95_ms: float | None = None
    """95 of 100 took no longer."""
    answered: int = 0
    """Bytes of their results as JSON."""


class _Counted:
    """The calls of one tool in one hour that are not written yet."""

    __slots__ = ("answered", "failures", "last", "steps")

    def __init__(self) -> None:
        self.failures, self.last, self.answered = 0, 0.0, 0
        self.steps: Counter[int] = Counter()
        """Step of the duration to the number of calls that took so long."""

    def add(self, more: _Counted) -> None:
        self.failures += more.failures
        self.last = max(self.last, more.last)
        self.answered += more.answered
        self.steps.update(more.steps)


class UsageCounts:
    """Counts the calls of tools by id, for all processes that use one file.

    Counts reach the file within half a second. While it cannot be written they wait, and no call notices.
    """

    def __init__(
        self, path: Path, *, clock: Callable[[], float] = time.time, pause_s: float = _FLUSH_S
    ) -> None:
        # Not durable: counts that a power cut takes are not worth a wait for the disk.
        self._database = SqliteDatabase(path, _TABLES, durable=False)
        self._clock, self._pause_s = clock, pause_s
        self._lock, self._flushing = threading.Lock(), threading.Lock()
        self._pending: defaultdict[tuple[str, int], _Counted] = defaultdict(_Counted)
        """By tool and hour."""
        self._wake, self._ended = threading.Event(), threading.Event()
        self._writer: threading.Thread | None = None

    def count(self, tool: str, *, failed: bool, ms: float = 0.0, answered: int = 0) -> None:
        """Count a call that has ended after so many milliseconds, with so many bytes of a result."""
        now = self._clock()
        with self._lock:
            one = self._pending[tool, int(now) // _HOUR_S]
            one.failures += failed
            one.last = now
            one.answered += answered
            one.steps[math.ceil(math.log(max(ms, 0.01), _STEP))] += 1
            if self._writer is None and not self._ended.is_set():
                self._writer = threading.Thread(target=self._write, name="toolcrib-usage", daemon=True)
                self._writer.start()
        if not self._wake.is_set():  # To set it again takes longer than all else here.
            self._wake.set()

    def of(self, tool: str) -> UsageOfTool:
        """Return the counts of one tool."""
        return self.all([tool]).get(tool, UsageOfTool())

    def all(self, tools: Sequence[str] | None = None) -> Mapping[str, UsageOfTool]:
        """Return the counts of every tool that was called, or of at most 500. Raises StateUnavailable."""
        self.flush()
        which = "" if tools is None else f" WHERE tool IN ({', '.join('?' * len(tools))})"
        query = f"SELECT tool, calls, failures, last FROM totals{which}"
        rows = self._database.rows(query, *(tools or ()))
        return {tool: UsageOfTool(calls, failures, last) for tool, calls, failures, last in rows}

    def numbers(self, of: Literal["calls", "last"]) -> Mapping[str, float]:
        """Return one number of every tool that was called, by its id. Raises StateUnavailable."""
        self.flush()
        return dict(self._database.rows(f"SELECT tool, {of} * 1.0 FROM totals"))

    def series(self, tool: str, since: float) -> list[HourOfUse]:
        """Return the hours since a time in which a tool was called, the first one first."""
        self.flush()
        query = "SELECT hour, calls, failures FROM used WHERE tool = ? AND hour >= ? ORDER BY hour"
        with self._database.read() as tx:
            rows = tx.all(query, tool, int(since) // _HOUR_S)
        return [HourOfUse(hour * _HOUR_S, calls, failures) for hour, calls, failures in rows]

    def days(self, since: float) -> list[DayOfUse]:
        """Return each day since a time, and each tool that was called on it, the first day first."""
        self.flush()
        day = int(since) // _DAY_S
        with self._database.read() as tx:
            used = tx.all(
                "SELECT tool, hour / 24, SUM(calls), SUM(failures), SUM(answered) FROM used WHERE hour >= ?"
                " GROUP BY tool, hour / 24 ORDER BY hour / 24, tool",
                day * 24,
            )
            lasted = tx.all(
                "SELECT tool, day, step, calls FROM lasted WHERE day >= ? ORDER BY tool, day, step", day
            )
        steps: dict[tuple[str, int], list[tuple[int, int]]] = {}
        for tool, day, step, calls in lasted:
            steps.setdefault((tool, day), []).append((step, calls))
        found = []
        for tool, day, calls, failures, answered in used:
            of_day = steps.get((tool, day), [])
            p50, p95 = _percentile(of_day, 0.5), _percentile(of_day, 0.95)
            found.append(DayOfUse(tool, day * _DAY_S, calls, failures, p50, p95, answered))
        return found

    def flush(self) -> None:
        """Write what is counted. Raises StateUnavailable; nothing is lost by that."""
        with self._flushing:  # What another thread is writing can be read when this returns.
            self._flush()

    def _flush(self) -> None:
        with self._lock:
            pending, self._pending = self._pending, defaultdict(_Counted)
        if not pending:
            return
        try:
            with self._database.write() as tx:
                for (tool, hour), one in pending.items():
                    calls = one.steps.total()
                    tx.run(_ADD, tool, hour, calls, one.failures, one.last, one.answered)
                    tx.run(_ADD_TOTAL, tool, calls, one.failures, one.last)
                    for step, count in one.steps.items():
                        tx.run(_ADD_TIME, tool, hour // 24, step, count)
        except StateUnavailable:
            with self._lock:
                # Calls were counted in the meantime, so these are added, not put back.
                for key, one in pending.items():
                    self._pending[key].add(one)
            raise

    def close(self) -> None:
        """Write what is counted and end. Raises StateUnavailable if that is impossible."""
        self._ended.set()
        self._wake.set()
        if self._writer is not None:
            self._writer.join()
        try:
            self.flush()
        finally:
            self._database.close()

    def _write(self) -> None:
        # The end is looked at last: one that comes before the clearing is not announced again.
        while not self._ended.is_set():
            self._wake.wait()
            self._ended.wait(self._pause_s)  # All calls of this time go into one write.
            self._wake.clear()
            try:
                self.flush()
            except StateUnavailable:
                self._wake.set()  # another try


def _percentile(steps: Sequence[tuple[int, int]], share: float) -> float | None:
    """Return the milliseconds within which this share of the calls ended; None without calls."""
    left = share * sum(calls for _, calls in steps)
    for step, calls in steps:
        left -= calls
        if left <= 0:
            return float(round(_STEP**step, 3))
    return None
