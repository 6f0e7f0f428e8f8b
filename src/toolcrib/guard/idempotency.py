"""Calls made once: the result of the first call of an idempotency key, for every later one."""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from toolcrib.errors import IdempotencyConflict, InvalidError, RateLimited
from toolcrib.guard.approvals.approval import digest_of
from toolcrib.spec.moment import written
from toolcrib.state import Database, DatabaseWatch, Transaction, is_alive, this_process, uptime

__all__ = ["RecordedCalls"]

DAY_S = 86_400.0
_MAX_KEY = 255
_SWEEP_S = 60.0


class RecordedCalls:
    """The calls of one project that were made with an idempotency key. Keys are each caller's own.

    A result is kept for `keep_s` seconds after its call ended, if it is no longer than `max_bytes`; at most
    `per_caller` keys of one caller. Safe for threads and for other processes.
    """

    def __init__(
        self,
        state: Database,
        clock: Callable[[], float] = time.time,
        *,
        keep_s: float = DAY_S,
        max_bytes: int = 1_048_576,
        bytes_in_all: int = 268_435_456,
        per_caller: int = 100_000,
    ) -> None:
        self._state = state
        self._clock = clock
        self._keep_s = keep_s
        self._max_bytes = max_bytes
        self._bytes_in_all = bytes_in_all
        self._per_caller = per_caller
        self._claims: dict[tuple[str, str], str] = {}
        self._swept = float("-inf")
        self._watch: DatabaseWatch[bool] = DatabaseWatch(self._ended, state)

    def begin(
        self,
        key: str,
        *,
        tool: str,
        caller: str,
        tool_digest: str,
        arguments: bytes,
        repeatable: bool = False,
    ) -> bytes | None:
        """The recorded result of this key, or None: this is the first call, and must `finish` or `abandon`.

        Raises `IdempotencyConflict` where the key stands for another call; where the first one still runs
        (`retryable`, `details.running`); where its process died and the tool is not `repeatable`
        (`details.outcome` is `unknown`); and where its result was too long to be kept. `RateLimited` where
        the caller has too many keys.
        """
        _require_key(key)
        digest = digest_of(arguments)
        self._sweep_now_and_then()
        with self._state.write() as tx:
            row = tx.one(
                "SELECT tool, arguments_digest, state, holder, result, size, begun_at, ended_at, claim"
                " FROM recorded WHERE caller = ? AND name = ?",
                caller,
                key,
            )
            now = self._clock()
            if row is not None and row[7] is not None and row[7] + self._keep_s <= now:
                tx.run("DELETE FROM recorded WHERE caller = ? AND name = ?", caller, key)
                row = None
            if row is None:
                self._hold_back(tx, caller)
                self._claim(tx, key, tool, caller, tool_digest, digest, now)
                return None
            if (row[0], row[1]) != (tool, digest):
                raise IdempotencyConflict(
                    f"the idempotency key {key!r} was used for another call"
                    + (f", of {row[0]}" if row[0] != tool else f" of {tool}, with other arguments"),
                    hint="Use a new key for each call; the same key only to repeat the very same one.",
                    details={"tool": row[0]},
                )
            if row[2] == "done":
                return _result(key, row[4], row[5])
            if _holds(row[3]):
                raise _running(key, tool, row[6])
            if not repeatable:
                raise _unknown(key, tool, row[6])
            tx.run("DELETE FROM recorded WHERE caller = ? AND name = ?", caller, key)
            self._claim(tx, key, tool, caller, tool_digest, digest, now)
            return None

    async def wait(
        self,
        key: str,
        *,
        tool: str,
        caller: str,
        tool_digest: str,
        arguments: bytes,
        repeatable: bool = False,
        timeout_s: float | None = None,
    ) -> bytes | None:
        """As `begin`, but holds while the first call runs; when the time is up, its conflict is raised."""
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        while True:
            try:
                return self.begin(
                    key,
                    tool=tool,
                    caller=caller,
                    tool_digest=tool_digest,
                    arguments=arguments,
                    repeatable=repeatable,
                )
            except IdempotencyConflict as conflict:
                left = None if deadline is None else deadline - time.monotonic()
                if "running" not in conflict.details or (left is not None and left <= 0):
                    raise
            await self._watch.wait(_joined(caller, key), left)

    def finish(self, key: str, caller: str, result: bytes) -> bool:
        """Record the result (JSON) of a call that was begun here; False where its key is no longer held."""
        claim = self._claims.pop((caller, key), None)
        kept = result if len(result) <= self._max_bytes else None
        with self._state.write() as tx:
            done = tx.run(
                "UPDATE recorded SET state = 'done', result = ?, size = ?, ended_at = ?"
                " WHERE caller = ? AND name = ? AND claim = ? AND state = 'running'",
                kept,
                len(result),
                self._clock(),
                caller,
                key,
                claim or "",
            )
        self._watch.notify()
        return bool(done)

    def abandon(self, key: str, caller: str) -> None:
        """Let go of a key whose call was never run."""
        claim = self._claims.pop((caller, key), None)
        with self._state.write() as tx:
            tx.run(
                "DELETE FROM recorded WHERE caller = ? AND name = ? AND claim = ? AND state = 'running'",
                caller,
                key,
                claim or "",
            )
        self._watch.notify()

    def sweep(self) -> None:
        """Drop what is older than is kept, and the longest-kept results beyond what may be held."""
        self._swept = time.monotonic()
        with self._state.write() as tx:
            tx.run("DELETE FROM recorded WHERE ended_at <= ?", self._clock() - self._keep_s)
            held = (tx.one("SELECT COALESCE(SUM(size), 0) FROM recorded WHERE result IS NOT NULL") or (0,))[0]
            while held > self._bytes_in_all:
                rows = tx.all(
                    "SELECT caller, name, size FROM recorded WHERE result IS NOT NULL"
                    " ORDER BY ended_at LIMIT 100"
                )
                for caller, key, size in rows:
                    tx.run("UPDATE recorded SET result = NULL WHERE caller = ? AND name = ?", caller, key)
                    held -= size
                    if held <= self._bytes_in_all:
                        break

    def _sweep_now_and_then(self) -> None:
        if time.monotonic() - self._swept > _SWEEP_S:
            self.sweep()

    def _hold_back(self, tx: Transaction, caller: str) -> None:
        (count,) = tx.one("SELECT COUNT(*) FROM recorded WHERE caller = ?", caller) or (0,)
        if count >= self._per_caller:
            raise RateLimited(
                f"{caller} has used {count:,} idempotency keys, as many as are kept",
                hint=f"They are forgotten {self._keep_s:g} s after their calls; or call without a key.",
                details={"keys": count},
            )

    def _claim(
        self, tx: Transaction, key: str, tool: str, caller: str, tool_digest: str, digest: str, now: float
    ) -> None:
        claim = uuid.uuid4().hex
        tx.run(
            "INSERT INTO recorded (caller, name, tool, tool_digest, arguments_digest, state, claim, holder,"
            " size, begun_at) VALUES (?, ?, ?, ?, ?, 'running', ?, ?, 0, ?)",
            caller,
            key,
            tool,
            tool_digest,
            digest,
            claim,
            f"{uptime()} {this_process()}",
            now,
        )
        self._claims[caller, key] = claim

    def _ended(self, names: Sequence[str]) -> Mapping[str, bool]:
        """Those whose first call no longer runs: it has ended, was abandoned, or its process is dead."""
        found: dict[str, bool] = {}
        with self._state.read() as tx:
            for name in names:
                caller, key = json.loads(name)
                row = tx.one("SELECT state, holder FROM recorded WHERE caller = ? AND name = ?", caller, key)
                if row is None or row[0] != "running" or not _holds(row[1]):
                    found[name] = True
        return found


def _joined(caller: str, key: str) -> str:
    return json.dumps([caller, key])


def _holds(holder: str) -> bool:
    since, _, process = holder.partition(" ")
    return is_alive(process, float(since))


def _require_key(key: str) -> None:
    if not 0 < len(key) <= _MAX_KEY or not key.isprintable():
        raise InvalidError(
            f"an idempotency key is a text of 1 to {_MAX_KEY} printable characters; got {key[:40]!r}",
            hint="A random UUID for each call will do.",
        )


def _result(key: str, result: Any, size: int) -> bytes:
    if result is not None:
        return bytes(result)
    raise IdempotencyConflict(
        f"the call of the key {key!r} was made, but its result of {size:,} bytes was not kept",
        hint="Look at what it did before you call again, with a new key.",
        details={"outcome": "done", "bytes": size},
    )


def _running(key: str, tool: str, since: float) -> IdempotencyConflict:
    return IdempotencyConflict(
        f"the call of {tool} with the key {key!r} still runs, since {written(since)}",
        hint="Ask again with the same key later: you get its result.",
        details={"running": True, "since": written(since)},
        retryable=True,
    )


def _unknown(key: str, tool: str, since: float) -> IdempotencyConflict:
    return IdempotencyConflict(
        f"the call of {tool} with the key {key!r}, begun {written(since)}, never ended: its process is gone,"
        " and nobody knows how much it did",
        hint="Look at what it did; call again with a new key if it shall be repeated.",
        details={"outcome": "unknown", "since": written(since)},
    )
