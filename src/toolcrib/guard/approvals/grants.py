"""What people have decided: rows of the user's own folder, out of reach of the project.

A grant stands for one tool down to its digest, one caller, and a scope. One given once is used up by the
first process that takes it, whatever others do at the same time. Nothing that has ended ever lives again.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from typing import Any, cast

from toolcrib.errors import ConflictError
from toolcrib.guard.approvals.approval import Ask, Grant, Permit
from toolcrib.state import Database

__all__ = ["Grants"]

_COLUMNS = (
    "id, answer, state, scope, tool, bundle, tool_digest, arguments_digest, caller, session_id, rule, edited,"
    " decided_by, decided_at, ends_at, note"
)
_SELECT = f"SELECT {_COLUMNS} FROM grants"  # noqa: S608 - our own list of columns
_COVERING = (
    f"{_SELECT} WHERE state = 'live' AND arguments_digest = ? AND tool = ? AND bundle = ? AND asker = ?"
    " AND tool_digest = ? AND rule = ? AND scope IN ('once', 'arguments')"
    f" UNION ALL {_SELECT} WHERE state = 'live' AND scope IN ('session', 'rule') AND tool = ? AND bundle = ?"
    " AND asker = ? AND tool_digest = ? AND rule = ? AND (scope = 'rule' OR session_id = ?)"
)
_CHANGED = "state = 'live' AND answer = 'approved' AND tool = ? AND bundle = ? AND tool_digest"
_IS_CHANGED = [f"SELECT 1 FROM grants WHERE {_CHANGED} {sign} ? LIMIT 1" for sign in "<>"]  # noqa: S608 - as above
_VOID = [f"UPDATE grants SET state = 'void' WHERE {_CHANGED} {sign} ?" for sign in "<>"]  # noqa: S608 - as above
"""Each by an index, which `<>` and OR are not."""
_USE = "UPDATE grants SET state = 'used', used_at = ? WHERE id = ? AND state = 'live'"
_LIVE = f"{_SELECT} WHERE state = 'live' AND (ends_at IS NULL OR ends_at > ?) ORDER BY id DESC LIMIT ?"
_ENDED = "SELECT id FROM grants WHERE state <> 'live' ORDER BY id DESC LIMIT 1 OFFSET ?"


class Grants:
    """The table `grants` of one user and project."""

    def __init__(self, grants: Database) -> None:
        self._grants = grants

    def take(self, ask: Ask, now: float) -> Permit | None:
        """Leave to run this call, if somebody gave it. One given once is used up by this.

        Raises ApprovalDenied where the answer was no.
        """
        with self._grants.read() as tx:
            same = (ask.tool, ask.bundle, ask.asker, ask.tool_digest, ask.rule)
            rows = tx.all(_COVERING, ask.arguments_digest, *same, *same, ask.session_id)
            changed = any(tx.one(one, ask.tool, ask.bundle, ask.tool_digest) for one in _IS_CHANGED)
        if changed:
            self._void(ask)
        found = [_grant(row) for row in rows]
        live = [grant for grant in found if grant.ends_at is None or now < grant.ends_at]
        if len(live) < len(found):
            self.lapse(now)
        for grant in live:
            if grant.answer == "denied":
                raise grant.denial()
        # A lasting one first, so that what was given once is not used up for nothing.
        for grant in sorted(live, key=lambda grant: grant.scope == "once"):
            if grant.scope != "once" or self._use(grant.id, now):
                arguments = ask.arguments if grant.edited is None else grant.edited
                return Permit(grant.decided_by, grant.scope, grant.id, arguments, grant.edited is not None)
        return None

    def _use(self, id: str, now: float) -> bool:  # noqa: A002 - the field's name
        """Use up a grant given once; False where another was quicker."""
        with self._grants.write() as tx:
            return bool(
                tx.run(
                    "UPDATE grants SET state = 'used', used_at = ? WHERE id = ? AND state = 'live'", now, id
                )
            )

    def _void(self, ask: Ask) -> None:
        """End what was allowed to a tool that is no longer what it was. A no for it is never asked again."""
        with self._grants.write() as tx:
            for void in _VOID:
                tx.run(void, ask.tool, ask.bundle, ask.tool_digest)

    def add(self, grant: Grant, asker: str) -> None:
        """Write down a decision; `ConflictError` where there is one already."""
        values = [getattr(grant, name.strip()) for name in _COLUMNS.split(",")]
        try:
            with self._grants.write() as tx:
                marks = ", ".join("?" * (len(values) + 1))
                tx.run(f"INSERT INTO grants ({_COLUMNS}, asker) VALUES ({marks})", *values, asker)  # noqa: S608 - as above
        except sqlite3.IntegrityError:
            raise ConflictError(
                f"approval {grant.id} was decided meanwhile", hint=f"toolcrib approvals show {grant.id}"
            ) from None

    def some(self, ids: Sequence[str]) -> dict[str, Grant]:
        """The decisions on these approvals, at most 500, by id; an approval without one is still open."""
        marks = ", ".join("?" * len(ids))
        with self._grants.read() as tx:
            rows = tx.all(f"{_SELECT} WHERE id IN ({marks})", *ids)
        return {grant.id: grant for grant in map(_grant, rows)}

    def live(self, now: float, count: int) -> list[Grant]:
        """What holds now, the newest first."""
        with self._grants.read() as tx:
            rows = tx.all(_LIVE, now, count)
        return [_grant(row) for row in rows]

    def end(self, id: str, how: str) -> bool:  # noqa: A002 - the field's name
        """End a grant, or a no, that holds now; False where none does."""
        with self._grants.write() as tx:
            return bool(tx.run("UPDATE grants SET state = ? WHERE id = ? AND state = 'live'", how, id))

    def lapse(self, now: float) -> None:
        """End what is over. It stays so, even if the clock is set back."""
        with self._grants.write() as tx:
            tx.run("UPDATE grants SET state = 'expired' WHERE state = 'live' AND ends_at <= ?", now)

    def forget(self, keep: int) -> None:
        """Take out what has ended, the oldest first, until only so many are left."""
        with self._grants.write() as tx:
            last = tx.one(
                "SELECT id FROM grants WHERE state <> 'live' ORDER BY id DESC LIMIT 1 OFFSET ?", keep
            )
            if last is not None:
                tx.run("DELETE FROM grants WHERE state <> 'live' AND id <= ?", last[0])


def _grant(row: tuple[Any, ...]) -> Grant:
    return Grant(*cast("Any", row))
