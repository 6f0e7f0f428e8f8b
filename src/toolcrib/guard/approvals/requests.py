"""Requests that wait for a person: rows of the project's database, where no decision is ever trusted.

Decisions are in the user's own folder (`approvals.grants`). The `status` here only says which rows may be
open.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import fields
from typing import Any, NamedTuple

from toolcrib.errors import RateLimited
from toolcrib.guard.approvals.records import Approval, ApprovalStatus, Ask
from toolcrib.spec.identifier import new_id
from toolcrib.state import Database, Transaction
from toolcrib.state.database import ids, newest

_COLUMNS = (
    "id, tool, bundle, tool_digest, arguments, caller, owner, token, session_id, rule, reason,"
    " touches, call_id, asked_at, expires_at, status"
)
_SELECT = f"SELECT {_COLUMNS} FROM approvals"
_OPEN = f"{_SELECT} WHERE question = ? AND status = 'pending' AND expires_at > ?"
_STATUS = "SELECT id, status, expires_at FROM approvals"
_VOID = "UPDATE approvals SET status = 'void' WHERE status = 'pending' AND tool = ? AND bundle = ?"
_USAGE = "SELECT COUNT(*), CAST(COALESCE(SUM(size), 0) AS BIGINT) FROM approvals WHERE status = 'pending'"
_DONE = "wakes = 0 AND status IN ('denied', 'used', 'expired', 'void')"


class RequestStatus(NamedTuple):
    """The status of a row, as far as the project's database knows it."""

    id: str
    status: ApprovalStatus
    expires_at: float


class Requests:
    """The table `approvals` of one project."""

    def __init__(self, state: Database, *, per_caller: int, in_all: int, bytes_in_all: int) -> None:
        self._state = state
        self._per_caller = per_caller
        self._in_all = in_all
        self._bytes_in_all = bytes_in_all

    def waiting(self, ask: Ask, now: float, ttl_s: float) -> Approval:
        """Return the open row for this call, added if there is none. `RateLimited` if too many wait."""
        question = ask.question
        with self._state.read() as tx:
            row = tx.one(_OPEN, question, now)
        # Most often it waits already, which is seen without the write lock.
        if row is None or _approval(row).session_id != ask.session_id:
            with self._state.write() as tx:
                row = tx.one(_OPEN, question, now)
                if row is not None:  # The same call from another session: the later one gets the answer.
                    tx.run("UPDATE approvals SET session_id = ? WHERE id = ?", ask.session_id, row[0])
                else:
                    # Nobody has added it since the look above.
                    self._add(tx, ask, now, now + ttl_s)
                row = tx.one(_OPEN, question, now)
        assert row is not None
        return _approval(row)

    def _add(self, tx: Transaction, ask: Ask, now: float, expires_at: float) -> None:
        tx.run("UPDATE approvals SET status = 'expired' WHERE status = 'pending' AND expires_at <= ?", now)
        for sign in "<>":  # Each uses the index, which `<>` and OR do not.
            tx.run(f"{_VOID} AND tool_digest {sign} ?", ask.tool, ask.bundle, ask.tool_digest)
        size = len(ask.arguments) + len(ask.reason) + sum(map(len, ask.touches))
        self._require_room(tx, ask, size)
        tx.insert(
            "approvals",
            {
                **{one.name: getattr(ask, one.name) for one in fields(Ask) if one.name != "durable"},
                "touches": json.dumps(ask.touches),
                "id": new_id(now),
                "question": ask.question,
                "status": "pending",
                "asker": ask.asker,
                "asked_at": now,
                "expires_at": expires_at,
                "size": size,
            },
        )

    def _require_room(self, tx: Transaction, ask: Ask, size: int) -> None:
        """Refuse a flood: the requests that wait are limited in number and in bytes."""
        rows, used = tx.one(_USAGE) or (0, 0)
        own_rows, own_used = tx.one(f"{_USAGE} AND asker = ?", ask.asker) or (0, 0)
        if own_rows >= self._per_caller or own_used + size > self._bytes_in_all // 2:
            who = f"{own_rows:,} calls of {ask.caller} ({own_used:,} bytes)"
        elif rows >= self._in_all or used + size > self._bytes_in_all:
            who = f"{rows:,} calls ({used:,} bytes)"
        else:
            return
        raise RateLimited(
            f"{who} already wait for approval, the most allowed; this call of {ask.tool} was not added",
            hint="A person must decide on some of them first.",
            details={"waiting": rows, "waitingOfCaller": own_rows},
        )

    def room(self, asker: str, now: float) -> int:
        """Return how many further requests of this asker may wait, by their number."""
        count = "SELECT COUNT(*) FROM approvals WHERE status = 'pending' AND expires_at > ?"
        with self._state.read() as tx:
            (own,) = tx.one(f"{count} AND asker = ?", now, asker) or (0,)
            if own >= self._per_caller:
                return 0
            (rows,) = tx.one(count, now) or (0,)
        return int(min(self._per_caller - own, self._in_all - rows))

    def mark(self) -> tuple[Any, ...]:
        """Return values of which one differs once a row is added or its status changes."""
        newest = "(SELECT MAX(id) FROM approvals)"
        query = f"SELECT {newest}, COUNT(*), MAX(id) FROM approvals WHERE status = 'pending'"
        return self._state.rows(query)[0]

    def find(self, id: str) -> Approval | None:
        """Return one row as it is here."""
        with self._state.read() as tx:
            row = tx.one(f"{_SELECT} WHERE id = ?", id)
        return None if row is None else _approval(row)

    def ids(self, beginning: str) -> list[str]:
        """Return two ids at most that begin so."""
        return ids(self._state, "approvals", beginning)

    def page(self, statuses: Sequence[str] | None, before: str | None, count: int) -> list[Approval]:
        """Return rows, the newest first, starting after the row `before`."""
        filters = {"status": None if statuses is None else list(statuses)}
        rows = newest(self._state, "approvals", _COLUMNS, filters, count, before=before)
        return [_approval(row) for row in rows]

    def statuses(self, ids: Sequence[str]) -> list[RequestStatus]:
        """Return the statuses of at most 500 rows."""
        with self._state.read() as tx:
            rows = tx.all(f"{_STATUS} WHERE id IN ({', '.join('?' * len(ids))})", *ids)
        return [RequestStatus(*row) for row in rows]

    def unsettled(self, after: str, count: int) -> list[RequestStatus]:
        """Return rows whose status may still change, in the order of their ids."""
        where = "WHERE status IN ('pending', 'approved') AND id > ? ORDER BY id LIMIT ?"
        with self._state.read() as tx:
            rows = tx.all(f"{_STATUS} {where}", after, count)
        return [RequestStatus(*row) for row in rows]

    def settle(self, statuses: Sequence[tuple[str, ApprovalStatus]]) -> None:
        """Store new statuses of open rows; a final status stays as it is."""
        update = "UPDATE approvals SET status = ? WHERE id = ? AND status IN ('pending', 'approved')"
        with self._state.write() as tx:
            tx.notify()
            for id, status in statuses:
                tx.run(update, status, id)

    def forget(self, keep: int) -> None:
        """Delete the oldest rows with a final status, until `keep` are left."""
        with self._state.write() as tx:
            last = tx.one(f"SELECT id FROM approvals WHERE {_DONE} ORDER BY id DESC LIMIT 1 OFFSET ?", keep)
            if last is not None:
                tx.run(f"DELETE FROM approvals WHERE id <= ? AND {_DONE}", last[0])


def _approval(row: tuple[Any, ...]) -> Approval:
    arguments = row[4] if isinstance(row[4], bytes) else str(row[4]).encode()
    values: list[Any] = [*row[:4], arguments, *row[5:11], _touches(row[11]), *row[12:]]
    return Approval(*values)


def _touches(text: str) -> tuple[str, ...]:
    """Read a list of texts; a damaged row must not hide the others."""
    try:
        return tuple(map(str, json.loads(text)))
    except (TypeError, ValueError):
        return ("(cannot be read)",)
