"""Rate limits: how often, and how many at a time, calls of one tool run in all processes of a project.

Times are on the database's own clock. That of a file is the machine's uptime, which nobody can set.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable

from toolcrib.errors import RateLimited, StateUnavailable
from toolcrib.state import Database, Transaction

_WINDOW_S = 60.0
_RETRY_S = 1.0
"""Seconds until a retry if too many calls run: nobody knows when one ends."""


class Rates:
    """The rate limits of one project's tools. `clock` returns seconds; without it, the database's clock does.

    In a file the counts are void after a restart of the machine, so `state` need not be durable: each limited
    call writes twice.
    """

    def __init__(self, state: Database, clock: Callable[[], float] | None = None) -> None:
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
    ) -> RateLease:
        """Let one call start now; release the lease when the call has ended.

        In any 60 seconds at most `per_minute` calls start, each at least `min_interval_ms` after the one
        before, and at most `concurrency` run at a time. The lease of a process that has died does not count.
        Raises `RateLimited` with `details.retryAfterS`; a refused call does not count.
        """
        if per_minute is None and not min_interval_ms and concurrency is None:
            return RateLease(None, "")
        if self._unreleased:
            self._release()
        holder = "" if concurrency is None else self._state.holder()
        with self._state.write(f"rate {tool}") as tx:
            boot, now = tx.clock() if self._clock is None else ("", self._clock())
            if per_minute is not None or min_interval_ms:
                self._start(tx, tool, (boot, now), per_minute, min_interval_ms or 0)
            id = "" if concurrency is None else self._lease(tx, tool, holder, now, concurrency)
        return RateLease(self, id)

    def release(self, id: str) -> None:
        """End a lease. If that cannot be stored now, the next call does it."""
        self._unreleased.append(id)
        try:
            self._release()
        except StateUnavailable:
            return

    def _release(self) -> None:
        ended = tuple(self._unreleased)
        with self._state.write("rate released") as tx:
            for id in ended:
                tx.run("DELETE FROM leases WHERE id = ?", id)
        self._unreleased = [other for other in self._unreleased if other not in ended]

    @staticmethod
    def _start(
        tx: Transaction, tool: str, clock: tuple[str, float], per_minute: int | None, min_interval_ms: int
    ) -> None:
        """Count one start, or raise RateLimited."""
        boot, now = clock
        oldest = now - max(_WINDOW_S, min_interval_ms / 1000)
        # Times of another boot are on another clock.
        tx.run("DELETE FROM starts WHERE tool = ? AND (at <= ? OR boot <> ?)", tool, oldest, boot)
        latest = "SELECT at FROM starts WHERE tool = ? ORDER BY at DESC LIMIT 1 OFFSET ?"
        if min_interval_ms and (row := tx.one(latest, tool, 0)) is not None:
            wait = row[0] + min_interval_ms / 1000 - now
            if wait > 0:
                raise RateLimited.of(tool, f"may be called once in {min_interval_ms:,} ms", wait)
        if per_minute is not None:
            # The call that must have left the window before another one is allowed.
            row = tx.one(latest, tool, per_minute - 1) if per_minute > 0 else (now,)
            if row is not None and row[0] + _WINDOW_S > now:
                raise RateLimited.of(
                    tool, f"may be called {per_minute} times a minute", row[0] + _WINDOW_S - now
                )
        tx.insert("starts", {"tool": tool, "boot": boot, "at": now})

    @staticmethod
    def _lease(tx: Transaction, tool: str, holder: str, now: float, concurrency: int) -> str:
        leases = tx.all("SELECT id, holder FROM leases WHERE tool = ?", tool)
        running = len(leases)
        if running >= concurrency:
            # Only where it matters: each look at a process costs a read of /proc, or a query.
            for id, other in leases:
                if not tx.is_held(other):
                    running -= tx.run("DELETE FROM leases WHERE id = ?", id)
        if running >= concurrency:
            raise RateLimited.of(tool, f"has reached its limit of calls at a time: {running}", _RETRY_S)
        new = uuid.uuid4().hex
        tx.insert("leases", {"id": new, "tool": tool, "holder": holder, "at": now})
        return new


class RateLease:
    """A call that was allowed to start. Releasing it again does nothing."""

    __slots__ = ("_id", "_rates")

    def __init__(self, rates: Rates | None, id: str) -> None:
        self._rates = rates
        self._id = id

    def release(self) -> None:
        """Report that the call has ended."""
        rates, self._rates = self._rates, None
        if rates is not None and self._id:
            rates.release(self._id)

    def __enter__(self) -> RateLease:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.release()
