"""What waits for a person: rows of the project's database. No decision is ever believed from here.

Which of them were decided, and how, stands in the user's own folder (`guard.grants`); the `status` column
only says which rows may still be open.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, NamedTuple

from toolcrib.errors import RateLimited
from toolcrib.guard.approvals.approval import Approval, Ask, Status
from toolcrib.spec.identifier import new_id
from toolcrib.state import Database, Transaction

__all__ = ["Requests", "Standing"]

_ASKERS = 1_000
"""Whose room is remembered."""


_CHANGED = "status = 'pending' AND tool = ? AND bundle = ? AND tool_digest"
_VOID = [f"UPDATE approvals SET status = 'void' WHERE {_CHANGED} {sign} ?" for sign in "<>"]  # noqa: S608 - our own words
"""Each by an index, which `<>` and OR are not."""


class Standing(NamedTuple):
    """How a row stands, as far as the project's database can tell."""

    id: str
    status: Status
    expires_at: float


_COLUMNS = (
    "id, tool, bundle, tool_digest, arguments, caller, owner, token, session_id, rule, reason, touches,"
    " call_id, asked_at, expires_at, status"
)


class Requests:
    """The table `approvals` of one project."""

    def __init__(self, state: Database, *, per_caller: int, in_all: int, bytes_in_all: int) -> None:
        self._state = state
        self._per_caller = per_caller
        self._in_all = in_all
        self._bytes_in_all = bytes_in_all
        self._room: dict[str, tuple[int, int]] = {}

    def waiting(self, ask: Ask, now: float, ttl_s: float) -> Approval:
        """The row of this question, made if need be. `RateLimited` where too many wait already."""
        question = ask.question
        with self._state.read() as tx:
            row = self._open_row(tx, question, now)
        if row is not None and row[8] == ask.session_id:
            return _approval(row)
        with self._state.write() as tx:
            row = self._open_row(tx, question, now)
            if row is not None:  # The same call, by now from another session: that one is answered.
                tx.run("UPDATE approvals SET session_id = ? WHERE id = ?", ask.session_id, row[0])
            else:
                self._make(tx, ask, question, now, ttl_s)
            row = self._open_row(tx, question, now)
        assert row is not None
        return _approval(row)

    @staticmethod
    def _open_row(tx: Transaction, question: str, now: float) -> tuple[Any, ...] | None:
        return tx.one(
            f"SELECT {_COLUMNS} FROM approvals"  # noqa: S608 - our own list of columns
            " WHERE question = ? AND status = 'pending' AND expires_at > ?",
            question,
            now,
        )

    def _make(self, tx: Transaction, ask: Ask, question: str, now: float, ttl_s: float) -> None:
        tx.run("UPDATE approvals SET status = 'expired' WHERE status = 'pending' AND expires_at <= ?", now)
        for void in _VOID:
            tx.run(void, ask.tool, ask.bundle, ask.tool_digest)
        size = len(ask.arguments) + len(ask.reason) + sum(map(len, ask.touches))
        self._hold_back(tx, ask, size)
        tx.run(
            "INSERT INTO approvals (id, question, status, tool, bundle, tool_digest, arguments, asker,"
            " caller, owner, token, session_id, rule, reason, touches, call_id, asked_at, expires_at, size)"
            " VALUES (?, ?, 'pending', ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            new_id(now),
            question,
            ask.tool,
            ask.bundle,
            ask.tool_digest,
            ask.arguments,
            ask.asker,
            ask.caller,
            ask.owner,
            ask.token,
            ask.session_id,
            ask.rule,
            ask.reason,
            json.dumps(ask.touches),
            ask.call_id,
            now,
            now + ttl_s,
            size,
        )

    def _hold_back(self, tx: Transaction, ask: Ask, size: int) -> None:
        """Refuse one who floods: what waits is bounded in number and in bytes.

        Counting takes as long as there are rows, so an eighth of the room that was found is filled before
        they are counted again: it takes eight processes at once to go over the bound, and then by a little.
        """
        rows_left, bytes_left = self._room.get(ask.asker, (0, 0))
        if rows_left > 0 and size <= bytes_left:
            self._room[ask.asker] = (rows_left - 1, bytes_left - size)
            return
        open_rows = "SELECT COUNT(*), COALESCE(SUM(size), 0) FROM approvals WHERE status = 'pending'"
        rows, held = tx.one(open_rows) or (0, 0)
        theirs, theirs_held = tx.one(f"{open_rows} AND asker = ?", ask.asker) or (0, 0)
        if theirs >= self._per_caller or theirs_held + size > self._bytes_in_all // 2:
            who = f"{theirs:,} calls of {ask.caller} ({theirs_held:,} bytes)"
        elif rows >= self._in_all or held + size > self._bytes_in_all:
            who = f"{rows:,} calls ({held:,} bytes)"
        else:
            rows_left = min(self._per_caller - theirs, self._in_all - rows) // 8
            bytes_left = min(self._bytes_in_all // 2 - theirs_held, self._bytes_in_all - held) // 8
            if len(self._room) > _ASKERS:
                self._room.clear()
            self._room[ask.asker] = (rows_left, bytes_left)
            return
        raise RateLimited(
            f"{who} wait for approval already, as many as may; this one of {ask.tool} was not added",
            hint="A person has to decide on some of them first: toolcrib approvals list",
            details={"waiting": rows, "waiting_of_caller": theirs},
        )

    def find(self, id: str) -> Approval | None:  # noqa: A002 - the field's name
        """One row, as it stands here."""
        with self._state.read() as tx:
            row = tx.one(f"SELECT {_COLUMNS} FROM approvals WHERE id = ?", id)  # noqa: S608 - as above
        return None if row is None else _approval(row)

    def standing(self, ids: Sequence[str]) -> list[Standing]:
        """How these rows stand, at most 500 of them, without what they hold."""
        marks = ", ".join("?" * len(ids))
        with self._state.read() as tx:
            rows = tx.all(f"SELECT id, status, expires_at FROM approvals WHERE id IN ({marks})", *ids)  # noqa: S608 - as above
        return [Standing(*row) for row in rows]

    def unsettled(self, after: str, count: int) -> list[Standing]:
        """Rows that may still come to something, in the order of their ids."""
        with self._state.read() as tx:
            rows = tx.all(
                "SELECT id, status, expires_at FROM approvals WHERE status IN ('pending', 'approved')"
                " AND id > ? ORDER BY id LIMIT ?",
                after,
                count,
            )
        return [Standing(*row) for row in rows]

    def page(self, statuses: Sequence[str] | None, before: str | None, count: int) -> list[Approval]:
        """Rows, the newest first, from the one that comes after `before`."""
        where, values = ["id < ?" if before is not None else "1 = 1"], [before] if before is not None else []
        if statuses is not None:
            where.append(f"status IN ({', '.join('?' * len(statuses))})")
            values += statuses
        with self._state.read() as tx:
            rows = tx.all(
                f"SELECT {_COLUMNS} FROM approvals WHERE {' AND '.join(where)}"  # noqa: S608 - as above
                " ORDER BY id DESC LIMIT ?",
                *values,
                count,
            )
        return [_approval(row) for row in rows]

    def settle(self, statuses: Sequence[tuple[str, Status]]) -> None:
        """Write down how open rows stand now; those that are done with stay as they are."""
        with self._state.write() as tx:
            for id, status in statuses:  # noqa: A001 - the field's name
                tx.run(
                    "UPDATE approvals SET status = ? WHERE id = ? AND status IN ('pending', 'approved')",
                    status,
                    id,
                )

    def forget(self, keep: int) -> None:
        """Take out rows that are done with, the oldest first, until only so many are left."""
        with self._state.write() as tx:
            last = tx.one(
                "SELECT id FROM approvals WHERE status IN ('denied', 'used', 'expired', 'void')"
                " ORDER BY id DESC LIMIT 1 OFFSET ?",
                keep,
            )
            if last is not None:
                tx.run(
                    "DELETE FROM approvals WHERE id <= ? AND status IN ('denied', 'used', 'expired', 'void')",
                    last[0],
                )


def _approval(row: tuple[Any, ...]) -> Approval:
    arguments = row[4] if isinstance(row[4], bytes) else str(row[4]).encode()
    values: list[Any] = [*row[:4], arguments, *row[5:11], _touches(row[11]), *row[12:]]
    return Approval(*values)


def _touches(text: str) -> tuple[str, ...]:
    """One row that holds nonsense hides no other."""
    try:
        return tuple(map(str, json.loads(text)))
    except (TypeError, ValueError):
        return ("(cannot be read)",)
