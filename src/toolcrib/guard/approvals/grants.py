"""Decisions of people: rows in the user's own folder, out of reach of the project.

A grant is for one version of a tool (its digest), one caller, and a scope. One given once is used up by the
first process that takes it, whatever others do at the same time. A grant that has ended never becomes valid
again, except by the call that has used it up and then did not start.

Where the rows are on a server, whoever can write there could add some. So each carries a MAC by a key that is
not there, and one without it, or that was altered, is void. A grant loses its MAC when it ends.
"""

from __future__ import annotations

import hmac
import json
from collections.abc import Sequence
from dataclasses import fields, replace
from typing import Any, cast

from toolcrib.errors import ConflictError
from toolcrib.guard.approvals.records import Ask, Grant, Permit
from toolcrib.state import Database

_COLUMNS = [field.name for field in fields(Grant)]
_SELECT = f"SELECT {', '.join(_COLUMNS)}, asker, mac FROM grants"
_COVERING = (
    f"{_SELECT} WHERE state = 'live' AND arguments_digest = ? AND tool = ? AND bundle = ? AND asker = ?"
    " AND tool_digest = ? AND rule = ? AND scope IN ('once', 'arguments')"
    f" UNION ALL {_SELECT} WHERE state = 'live' AND scope IN ('session', 'rule') AND tool = ? AND bundle = ?"
    " AND asker = ? AND tool_digest = ? AND rule = ? AND (scope = 'rule' OR session_id = ?)"
)
_USED = (
    f"SELECT {', '.join(_COLUMNS)}, mac FROM grants WHERE used_by = ? AND state = 'used'"
    " AND arguments_digest = ? AND tool = ? AND bundle = ? AND asker = ? AND tool_digest = ? AND rule = ?"
)
_CHANGED = "WHERE state = 'live' AND answer = 'approved' AND tool = ? AND bundle = ? AND tool_digest"
_IS_CHANGED = f"SELECT 1 FROM grants {_CHANGED} < ? UNION ALL SELECT 1 FROM grants {_CHANGED} > ? LIMIT 1"
"""In two parts, because each uses the index, which `<>` and OR do not."""
_END = "UPDATE grants SET state = ?, mac = '' WHERE id = ? AND state = 'live'"
_EXPIRE = "UPDATE grants SET state = 'expired', mac = '' WHERE state = 'live' AND ends_at <= ?"
_LIVE = f"{_SELECT} WHERE state = 'live' AND (ends_at IS NULL OR ends_at > ?)"
_OLDER = " AND (decided_at, id) < (SELECT decided_at, id FROM grants WHERE id = ?)"
_NEWEST = " ORDER BY decided_at DESC, id DESC LIMIT ?"


class Grants:
    """The table `grants` of one user and project. With `key`, only rows that it has signed count."""

    def __init__(self, grants: Database, key: bytes | None) -> None:
        self._grants = grants
        self._key = key

    def take(self, ask: Ask, now: float) -> Permit | None:
        """Return permission to run this call, if somebody has given it; a grant given once is used up.

        Raises ApprovalDenied if the call was denied.
        """
        live = self.about(ask, now)
        for grant in live:
            if grant.answer == "denied":
                raise grant.denial()
        for grant in live:
            if grant.scope != "once":
                return _permit(grant, ask)
            if self._use(grant, ask, now):
                return replace(_permit(grant, ask), mac=self._mac(grant, ask.asker))
        return self._used(ask) if ask.durable else None

    def about(self, ask: Ask, now: float) -> list[Grant]:
        """Return the decisions about this call that are in force, those given once last."""
        version = (ask.tool, ask.bundle, ask.tool_digest)
        with self._grants.read() as tx:
            same = (ask.tool, ask.bundle, ask.asker, ask.tool_digest, ask.rule)
            rows = tx.all(_COVERING, ask.arguments_digest, *same, *same, ask.session_id)
            changed = tx.one(_IS_CHANGED, *version, *version)
        if changed is not None:
            self._void(version)
        found = [grant for grant in map(self._read, rows) if grant.state == "live"]
        live = [grant for grant in found if grant.ends_at is None or now < grant.ends_at]
        if len(live) < len(found):
            self.expire(now)
        # A lasting one first, so that none given once is used up in vain.
        return sorted(live, key=lambda grant: grant.scope == "once")

    def _use(self, grant: Grant, ask: Ask, now: float) -> bool:
        """Use up a grant given once; False if another process was faster."""
        use = "UPDATE grants SET state = 'used', used_at = ?, used_by = ?, mac = ?"
        call_id = ask.call_id if ask.durable else None
        mac = "" if call_id is None else self._mac(grant, f"{ask.asker} {call_id}")
        with self._grants.write(grant.id) as tx:
            tx.notify()
            # Of processes that take it at once, the row changes for one.
            return bool(tx.run(f"{use} WHERE id = ? AND state = 'live'", now, call_id, mac, grant.id))

    def give_back(self, permit: Permit) -> None:
        """Make the grant valid again that a call has used up which did not start."""
        if permit.mac is not None:
            back = "UPDATE grants SET state = 'live', used_at = NULL, used_by = NULL, mac = ?"
            with self._grants.write(permit.approval_id) as tx:
                tx.notify()
                tx.run(f"{back} WHERE id = ? AND state = 'used'", permit.mac, permit.approval_id)

    def _used(self, ask: Ask) -> Permit | None:
        """Return the permission that an earlier attempt of this very call has used up."""
        same = (ask.arguments_digest, ask.tool, ask.bundle, ask.asker, ask.tool_digest, ask.rule)
        with self._grants.read() as tx:
            rows = tx.all(_USED, ask.call_id, *same)
        for *values, mac in rows:
            grant = Grant(*cast("Any", values))
            # Signed with the call that used it up, so no other call can pass for that one.
            if hmac.compare_digest(mac, self._mac(grant, f"{ask.asker} {ask.call_id}")):
                return _permit(grant, ask)
        return None

    def _void(self, version: tuple[str, str, str]) -> None:
        """End what was allowed to other versions of a tool. What was denied to them is never asked again."""
        with self._grants.write() as tx:
            for sign in "<>":
                tx.run(f"UPDATE grants SET state = 'void', mac = '' {_CHANGED} {sign} ?", *version)

    def add(self, grant: Grant, asker: str) -> None:
        """Store a decision; `ConflictError` if there is one already."""
        row = {name: getattr(grant, name) for name in _COLUMNS}
        with self._grants.write(grant.id) as tx:
            tx.notify()
            added = tx.insert("grants", {**row, "asker": asker, "mac": self._mac(grant, asker)})
        if not added:
            raise ConflictError(
                f"approval {grant.id} was decided in the meantime", hint=f"toolcrib approvals show {grant.id}"
            )

    def some(self, ids: Sequence[str]) -> dict[str, Grant]:
        """Return the decisions on at most 500 approvals by id; one without a decision is still open."""
        with self._grants.read() as tx:
            rows = tx.all(f"{_SELECT} WHERE id IN ({', '.join('?' * len(ids))})", *ids)
        return {grant.id: grant for grant in map(self._read, rows)}

    def live(self, now: float, count: int, before: str | None = None) -> list[Grant]:
        """Return decisions that are valid now, the newest first; with `before`, those older than that id."""
        with self._grants.read() as tx:
            if before is None:
                rows = tx.all(_LIVE + _NEWEST, now, count)
            else:
                rows = tx.all(_LIVE + _OLDER + _NEWEST, now, before, count)
        return [grant for grant in map(self._read, rows) if grant.state == "live"]

    def mark(self) -> tuple[Any, ...]:
        """Return values of which one differs once a decision is made or ends."""
        return self._grants.rows("SELECT COUNT(*), MAX(id) FROM grants WHERE state = 'live'")[0]

    def end(self, id: str, state: str) -> bool:
        """End a decision that is valid now; False if there is none."""
        with self._grants.write(id) as tx:
            tx.notify()
            return bool(tx.run(_END, state, id))

    def expire(self, now: float) -> None:
        """End decisions whose time is over. They stay so, even if the clock is set back."""
        with self._grants.write() as tx:
            tx.run(_EXPIRE, now)

    def forget(self, keep: int) -> None:
        """Delete the oldest decisions that have ended, until `keep` are left."""
        with self._grants.write() as tx:
            ended = "SELECT id FROM grants WHERE state <> 'live' ORDER BY id DESC LIMIT 1 OFFSET ?"
            last = tx.one(ended, keep)
            if last is not None:
                tx.run("DELETE FROM grants WHERE state <> 'live' AND id <= ?", last[0])

    def _read(self, row: tuple[Any, ...]) -> Grant:
        """Return a row's grant; void if it is valid by its state alone."""
        *values, asker, mac = row
        grant = Grant(*cast("Any", values))
        if grant.state == "live" and not hmac.compare_digest(mac, self._mac(grant, asker)):
            return replace(grant, state="void")
        return grant

    def _mac(self, grant: Grant, asker: str) -> str:
        if self._key is None:
            return ""
        values = [getattr(grant, name) for name in _COLUMNS if name != "state"]
        text = json.dumps([*map(_signed, values), asker])
        return hmac.new(self._key, text.encode(), "sha256").hexdigest()


def _permit(grant: Grant, ask: Ask) -> Permit:
    arguments = ask.arguments if grant.edited is None else grant.edited
    return Permit(grant.decided_by, grant.scope, grant.id, arguments, grant.edited is not None)


def _signed(value: Any) -> Any:
    """Return a value as it is signed, the same before it is stored and after."""
    if isinstance(value, bytes):
        return value.hex()
    return float(value) if isinstance(value, int) else value
