"""Idempotency keys: every later call with a key gets the result of the first, and never runs again."""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import NotRequired, TypedDict, Unpack

from toolcrib.errors import IdempotencyConflict, InvalidInput, RateLimited
from toolcrib.guard.approvals.records import digest_of
from toolcrib.spec.moment import written
from toolcrib.state import Database, DatabaseWatch, Transaction, take

_DAY_S = 86_400.0
_MAX_KEY = 255
_SWEEP_S = 60.0
_ROW = "caller = ? AND name = ?"
_OWN = f"{_ROW} AND claim = ? AND state = 'running'"


class KeyedCall(TypedDict):
    """The call that a key is used for."""

    tool: str
    caller: str
    arguments: bytes
    """Canonical JSON of the checked arguments."""
    repeatable: NotRequired[bool]
    """True if the tool may run again after its process has died."""
    call: NotRequired[str | None]
    """The id of a durable call: its newest attempt takes the key over from an earlier one."""


class RecordedCalls:
    """The calls of one project that were made with an idempotency key. Each caller has its own keys.

    A result is kept for `keep_s` seconds after its call has ended, if it has at most `max_bytes`; at most
    `per_caller` keys of one caller are kept. Safe for threads and for other processes.
    """

    def __init__(
        self,
        state: Database,
        clock: Callable[[], float] = time.time,
        *,
        keep_s: float = _DAY_S,
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

    def begin(self, key: str, **call: Unpack[KeyedCall]) -> bytes | None:
        """Return the recorded result of this key; None for the first call, which must `finish` or `abandon`.

        Raises `IdempotencyConflict` if the key was used for another call; if the first call still runs
        (`retryable`, `details.running`); if its process died and the tool is not `repeatable`
        (`details.outcome` is `unknown`); and if its result was too long to keep. `RateLimited` if the caller
        has too many keys.
        """
        require_key(key)
        tool, caller = call["tool"], call["caller"]
        digest = digest_of(call["arguments"])
        self._sweep_if_due()
        holder = self._state.holder()
        with self._state.write(_scope(caller, key)) as tx:
            row = tx.one(
                "SELECT tool, arguments_digest, state, holder, result, size, begun_at, claim"
                f" FROM recorded WHERE {_ROW} AND (ended_at IS NULL OR ended_at > ?)",
                caller,
                key,
                self._clock() - self._keep_s,
            )
            if row is None:
                self._require_room(tx, caller)
            else:
                known_tool, known_digest, state, known_holder, result, size, since, claim = row
                if (known_tool, known_digest) != (tool, digest):
                    raise _used_otherwise(key, known_tool, tool)
                if state == "done" and result is not None:
                    return bytes(result)
                if state == "done":
                    raise _not_kept(key, size)
                # A new attempt of the same durable call takes the key over from the one before.
                if not claim.startswith(f"{call.get('call')}/"):
                    if tx.is_held(known_holder):
                        raise _still_running(key, tool, since)
                    if not call.get("repeatable"):
                        raise _unknown_outcome(key, tool, since)
            # It is too old, or may run again.
            tx.run(f"DELETE FROM recorded WHERE {_ROW}", caller, key)
            self._claim(tx, key, call, digest, holder)
            return None

    async def wait(
        self, key: str, *, timeout_s: float | None = None, **call: Unpack[KeyedCall]
    ) -> bytes | None:
        """Do what `begin` does, but wait while the first call runs, at most `timeout_s` seconds."""
        deadline = None if timeout_s is None else time.monotonic() + timeout_s

        def give_back(found: bytes | None) -> None:
            # A caller that was cancelled meanwhile makes no first call.
            if found is None:
                self.abandon(key, call["caller"])

        while True:
            try:
                return await take(self._state, partial(self.begin, key, **call), give_back)
            except IdempotencyConflict as conflict:
                left = None if deadline is None else deadline - time.monotonic()
                if "running" not in conflict.details or (left is not None and left <= 0):
                    raise
            await self._watch.wait(json.dumps([call["caller"], key]), left)

    def finish(self, key: str, caller: str, result: bytes) -> bool:
        """Record the result (JSON) of a call that was begun here; False if it no longer has the key."""
        claim = self._claims.pop((caller, key), "")
        kept = result if len(result) <= self._max_bytes else None
        done = f"UPDATE recorded SET state = 'done', result = ?, size = ?, ended_at = ? WHERE {_OWN}"
        with self._state.write(_scope(caller, key)) as tx:
            tx.notify()
            # By the claim: an attempt whose key was taken over meanwhile records nothing.
            count = tx.run(done, kept, len(result), self._clock(), caller, key, claim)
        self._watch.notify()
        return bool(count)

    def abandon(self, key: str, caller: str) -> None:
        """Release a key whose call never ran."""
        claim = self._claims.pop((caller, key), "")
        with self._state.write(_scope(caller, key)) as tx:
            tx.notify()
            tx.run(f"DELETE FROM recorded WHERE {_OWN}", caller, key, claim)
        self._watch.notify()

    def sweep(self) -> None:
        """Delete calls that are too old, and the oldest results beyond the limit in bytes."""
        self._swept = time.monotonic()
        stored = "FROM recorded WHERE result IS NOT NULL"
        with self._state.write() as tx:
            tx.run("DELETE FROM recorded WHERE ended_at <= ?", self._clock() - self._keep_s)
            (size,) = tx.one(f"SELECT CAST(COALESCE(SUM(size), 0) AS BIGINT) {stored}") or (0,)
            while size > self._bytes_in_all:
                row = tx.one(f"SELECT caller, name, size {stored} ORDER BY ended_at LIMIT 1")
                assert row is not None
                tx.run(f"UPDATE recorded SET result = NULL WHERE {_ROW}", *row[:2])
                size -= row[2]

    def _sweep_if_due(self) -> None:
        if time.monotonic() - self._swept > _SWEEP_S:
            self.sweep()

    def _require_room(self, tx: Transaction, caller: str) -> None:
        (count,) = tx.one("SELECT COUNT(*) FROM recorded WHERE caller = ?", caller) or (0,)
        if count >= self._per_caller:
            raise RateLimited(
                f"{caller} has used {count:,} idempotency keys, the most allowed",
                hint=f"A key is deleted {self._keep_s:g} s after its call; or call without a key.",
                details={"keys": count},
            )

    def _claim(self, tx: Transaction, key: str, call: KeyedCall, arguments_digest: str, holder: str) -> None:
        claim = f"{call.get('call') or ''}/{uuid.uuid4().hex}"
        tx.insert(
            "recorded",
            {
                "caller": call["caller"],
                "name": key,
                "tool": call["tool"],
                "arguments_digest": arguments_digest,
                "state": "running",
                "claim": claim,
                "holder": holder,
                "size": 0,
                "begun_at": self._clock(),
            },
        )
        self._claims[call["caller"], key] = claim

    def _ended(self, names: Sequence[str]) -> Mapping[str, bool]:
        """Return those whose first call no longer runs: it ended, was abandoned, or its process died."""
        found: dict[str, bool] = {}
        with self._state.read() as tx:
            for name in names:
                row = tx.one(f"SELECT state, holder FROM recorded WHERE {_ROW}", *json.loads(name))
                if row is None or row[0] != "running" or not tx.is_held(row[1]):
                    found[name] = True
        return found


def _scope(caller: str, key: str) -> str:
    return f"recorded {json.dumps([caller, key])}"


def require_key(key: str) -> None:
    """Raise InvalidInput unless a key has 1 to 255 printable characters."""
    if not 0 < len(key) <= _MAX_KEY or not key.isprintable():
        raise InvalidInput(
            f"an idempotency key must have 1 to {_MAX_KEY} printable characters; got {key[:40]!r}",
            hint="Use a random UUID for each call.",
        )


def _used_otherwise(key: str, known_tool: str, tool: str) -> IdempotencyConflict:
    other = f"of {known_tool}" if known_tool != tool else f"of {tool} with other arguments"
    return IdempotencyConflict(
        f"the idempotency key {key!r} was used for another call, {other}",
        hint="Use a new key for each call, and the same key only to repeat exactly the same call.",
        details={"tool": known_tool},
    )


def _not_kept(key: str, size: int) -> IdempotencyConflict:
    return IdempotencyConflict(
        f"the call with the key {key!r} was made, but its result of {size:,} bytes was not kept",
        hint="Check what it did before you call again with a new key.",
        details={"outcome": "done", "bytes": size},
    )


def _still_running(key: str, tool: str, since: float) -> IdempotencyConflict:
    return IdempotencyConflict(
        f"the call of {tool} with the key {key!r} has been running since {written(since)}",
        hint="Call again later with the same key to get its result.",
        details={"running": True, "since": written(since)},
        retryable=True,
    )


def _unknown_outcome(key: str, tool: str, since: float) -> IdempotencyConflict:
    return IdempotencyConflict(
        f"the process of the call of {tool} with the key {key!r}, begun {written(since)}, has died, so its"
        " outcome is unknown",
        hint="Check what it did; to repeat it, call again with a new key.",
        details={"outcome": "unknown", "since": written(since)},
    )
