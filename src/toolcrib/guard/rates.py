"""How often and how many at a time: calls of one tool, counted over all processes of a project.

Times are those of the machine since it started, which no setting of the clock moves.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable
from types import TracebackType

from toolcrib.errors import RateLimited, StateUnavailable
from toolcrib.state import Database, Transaction, boot_id, is_alive, this_process, uptime

__all__ = ["Lease", "Rates"]

_WINDOW_S = 60.0
_BUSY_S = 1.0
"""When to come again where all places are taken: nobody knows when one gets free."""


class Rates:
    """The limits of one project's tools. `clock` gives seconds since the machine started.

    What is counted is void after a restart of the machine anyway, so `state` need not be durable: each
    limited call writes twice.
    """

    def __init__(self, state: Database, clock: Callable[[], float] = uptime) -> None:
        self._state = state
        self._clock = clock
        self._unreleased: list[str] = []

    def acquire(
        self,
        tool: str,
        *,
        per_minute: int | None = None,
        min_interval_ms: int | None = None,
        concurrency: int | None = None,
    ) -> Lease:
        """Leave to start one call now; release it when the call has ended.

        In any 60 seconds at most `per_minute` calls start, each `min_interval_ms` after the one before, and
        at most `concurrency` run at a time. A place held by a process that has died is free. Raises
        `RateLimited` with `details.retry_after_s`; a call refused so does not count.
        """
        if per_minute is None and not min_interval_ms and concurrency is None:
            return Lease(None, "")
        if self._unreleased:
            self._release()
        with self._state.write() as tx:
            now = self._clock()
            if per_minute is not None or min_interval_ms:
                self._start(tx, tool, now, per_minute, min_interval_ms or 0)
            id = "" if concurrency is None else self._take_place(tx, tool, now, concurrency)  # noqa: A001
        return Lease(self, id)

    def release(self, id: str) -> None:  # noqa: A002 - the field's name
        """Free a place. Where that cannot be written now, the next call does it."""
        self._unreleased.append(id)
        try:
            self._release()
        except StateUnavailable:
            return

    def _release(self) -> None:
        ended = tuple(self._unreleased)
        with self._state.write() as tx:
            for id in ended:  # noqa: A001 - the field's name
                tx.run("DELETE FROM leases WHERE id = ?", id)
        self._unreleased = [other for other in self._unreleased if other not in ended]

    @staticmethod
    def _start(tx: Transaction, tool: str, now: float, per_minute: int | None, min_interval_ms: int) -> None:
        """Count one start, if it may be now."""
        kept = now - max(_WINDOW_S, min_interval_ms / 1000)
        tx.run("DELETE FROM starts WHERE tool = ? AND (at <= ? OR boot <> ?)", tool, kept, boot_id())
        # Only where the clock was set back: what lies ahead of it counts from now on.
        tx.run("UPDATE starts SET at = ? WHERE tool = ? AND at > ?", now, tool, now)
        row = tx.one("SELECT MAX(at) FROM starts WHERE tool = ?", tool)
        if min_interval_ms and row is not None and row[0] is not None:
            wait = row[0] + min_interval_ms / 1000 - now
            if wait > 0:
                raise _limited(tool, f"may be called once in {min_interval_ms:,} ms", wait)
        if per_minute is not None:
            # The call that must have left the window before another one fits into it.
            oldest = "SELECT at FROM starts WHERE tool = ? ORDER BY at DESC LIMIT 1 OFFSET ?"
            row = tx.one(oldest, tool, per_minute - 1) if per_minute > 0 else (now,)
            if row is not None and row[0] + _WINDOW_S > now:
                raise _limited(tool, f"may be called {per_minute} times a minute", row[0] + _WINDOW_S - now)
        tx.run("INSERT INTO starts (tool, boot, at) VALUES (?, ?, ?)", tool, boot_id(), now)

    @staticmethod
    def _take_place(tx: Transaction, tool: str, now: float, concurrency: int) -> str:
        leases = tx.all("SELECT id, holder, at FROM leases WHERE tool = ?", tool)
        taken = len(leases)
        if taken >= concurrency:
            for id, holder, at in leases:  # noqa: A001 - the field's name
                if not is_alive(holder, at):
                    taken -= tx.run("DELETE FROM leases WHERE id = ?", id)
        if taken >= concurrency:
            raise _limited(tool, f"runs {taken} times already, as often as it may at a time", _BUSY_S)
        new = uuid.uuid4().hex
        tx.run(
            "INSERT INTO leases (id, tool, holder, at) VALUES (?, ?, ?, ?)", new, tool, this_process(), now
        )
        return new


class Lease:
    """A call that was let start. Releasing it again does nothing."""

    __slots__ = ("_id", "_rates")

    def __init__(self, rates: Rates | None, id: str) -> None:  # noqa: A002 - the field's name
        self._rates = rates
        self._id = id

    def release(self) -> None:
        """Say that the call has ended."""
        rates, self._rates = self._rates, None
        if rates is not None and self._id:
            rates.release(self._id)

    def __enter__(self) -> Lease:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()


def _limited(tool: str, why: str, wait: float) -> RateLimited:
    seconds = max(0.001, round(wait + 0.0005, 3))
    return RateLimited(
        f"{tool} {why}; try again in {seconds:g} s",
        hint=f"Wait {seconds:g} s and call again.",
        details={"retry_after_s": seconds},
    )
