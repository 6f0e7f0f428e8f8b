"""Approvals: calls that wait for a person, for days and across restarts, and what people have allowed.

A call asks by `seek`. What nobody has allowed yet becomes a row that waits; it costs no process, no thread
and no memory. A decision is a grant in the user's own folder; nothing in the project's database is ever
believed to be one.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice

from toolcrib.errors import ConflictError, DeniedError, InvalidError, InvalidToken, NotFoundError
from toolcrib.guard.approvals.approval import (
    SCOPES,
    STATUSES,
    Approval,
    Ask,
    Grant,
    Permit,
    Scope,
    Status,
    cut,
)
from toolcrib.guard.approvals.grants import Grants
from toolcrib.guard.approvals.requests import Requests, Standing
from toolcrib.spec.caller import Caller
from toolcrib.spec.moment import written
from toolcrib.state import Database, DatabaseWatch

__all__ = ["Approvals", "may_decide"]

WEEK_S = 604_800.0
_PAGE = 500
_ROWS = 50
"""Read at a time with their arguments, which may be large."""
_MAX_NOTE = 2_000
_SWEEP_S = 60.0


class Approvals:
    """The approvals of one project: `state` is the project's database, `grants` the user's own.

    `ttl_s` is how many seconds a call waits for a decision, and a yes given once for its call. At most
    `per_caller` and `in_all` calls wait at a time, with texts of `bytes_in_all` bytes, half of them for one
    caller; `kept` that are done with are kept to be looked at. Safe for threads and for other processes.
    """

    def __init__(
        self,
        state: Database,
        grants: Database,
        *,
        clock: Callable[[], float] = time.time,
        ttl_s: float = WEEK_S,
        per_caller: int = 10_000,
        in_all: int = 50_000,
        bytes_in_all: int = 268_435_456,
        kept: int = 10_000,
    ) -> None:
        self._requests = Requests(state, per_caller=per_caller, in_all=in_all, bytes_in_all=bytes_in_all)
        self._grants = Grants(grants)
        self._clock = clock
        self._ttl_s = ttl_s
        self._kept = kept
        self._swept = float("-inf")
        self._watch: DatabaseWatch[bool] = DatabaseWatch(self._settled, state, grants)

    # -- asking ----------------------------------------------------------------------------------

    def seek(self, ask: Ask) -> Permit | Approval:
        """Leave to make this call now, or the approval that it waits for.

        A yes given once is used up by the answer. The same question is one approval, however often it is
        asked. Raises `ApprovalDenied` when the answer was no; `RateLimited` when too many calls wait;
        `InvalidInput` when the arguments are too large to be asked about.
        """
        ask = ask.checked()
        while True:
            permit = self._grants.take(ask, self._clock())
            if permit is not None:
                return permit
            waiting = self._requests.waiting(ask, self._clock(), self._ttl_s)
            grant = self._grants.some([waiting.id]).get(waiting.id)
            if grant is None:
                self._sweep_now_and_then()
                return waiting
            # Decided between the two looks, or by a process that died before it could say so here.
            status = grant.status(self._clock())
            self._requests.settle([(waiting.id, status)])

    async def wait(self, id: str, timeout_s: float | None = None) -> Approval:  # noqa: A002 - the field's name
        """The approval once it is no longer pending, or as it is when the time is up. None waits on.

        Raises `NotFoundError` for one that does not exist, or no longer does.
        """
        await self._watch.wait(id, timeout_s)
        return self.find(id)

    def _settled(self, ids: Sequence[str]) -> Mapping[str, bool]:
        """Those that no longer wait, or are gone."""
        now = self._clock()
        settled = dict.fromkeys(ids, True)
        for start in range(0, len(ids), _PAGE):
            some = ids[start : start + _PAGE]
            decided = self._grants.some(some)
            for row in self._requests.standing(some):
                if _status(row, decided.get(row.id), now) == "pending":
                    del settled[row.id]
        return settled

    # -- looking ---------------------------------------------------------------------------------

    def find(self, id: str) -> Approval:  # noqa: A002 - the field's name
        """One approval as it stands now; `NotFoundError`."""
        row = self._requests.find(id)
        if row is None:
            raise NotFoundError(
                f"there is no approval {id[:100]!r}", hint="List what there is: toolcrib approvals list"
            )
        return self._merged([row])[0]

    def list(
        self, status: Status | None = None, limit: int = 100, *, before: str | None = None
    ) -> Sequence[Approval]:
        """Approvals, the newest first; go on with `before` the last one's id. At most 500."""
        if status is not None and status not in STATUSES:
            raise InvalidError(f"there is no status {status!r}", hint=f"One of: {', '.join(STATUSES)}")
        self._sweep_now_and_then()
        return list(islice(self._from(status, before), max(0, min(limit, _PAGE))))

    def _from(self, status: Status | None, before: str | None) -> Iterator[Approval]:
        open_to = None if status is None else tuple(dict.fromkeys((status, "pending", "approved")))
        while rows := self._requests.page(open_to, before, _ROWS):
            yield from (one for one in self._merged(rows) if status is None or one.status == status)
            before = rows[-1].id

    def _merged(self, rows: Sequence[Approval]) -> Sequence[Approval]:
        """Rows with what was decided on them, at most 500 at a time.

        What is seen to be over is written down, and stays so if the clock is set back.
        """
        decided = self._grants.some([row.id for row in rows])
        now = self._clock()
        merged = [_with(row, decided.get(row.id), now) for row in rows]
        over = [
            one.id for one, row in zip(merged, rows, strict=True) if one.status == "expired" != row.status
        ]
        if over:
            self._grants.lapse(now)
            self._requests.settle([(id, "expired") for id in over])  # noqa: A001 - the field's name
        return merged

    def grants(self, limit: int = 500) -> Sequence[Grant]:
        """Every yes and no that holds now, the newest first."""
        return self._grants.live(self._clock(), limit)

    # -- deciding --------------------------------------------------------------------------------

    def approve(
        self,
        id: str,  # noqa: A002 - the field's name
        by: str,
        scope: Scope = "once",
        arguments: bytes | None = None,
        note: str = "",
        until: float | None = None,
        *,
        seal: str | None = None,
    ) -> Approval:
        """Say yes. `by` is the person; `arguments` (canonical JSON, checked already) run instead of those
        asked for; `until` ends a lasting yes; `seal` is that of the approval as the person was shown it.

        Raises `NotFoundError`; `ConflictError` for one that does not wait any more or is not what was shown;
        `InvalidError` for a scope that is not to be had.
        """
        approval = self._to_decide(id, by, seal)
        now = self._clock()
        _require_scope(approval, scope, edited=arguments is not None)
        if until is None and scope in ("once", "session"):
            until = max(approval.expires_at, now + self._ttl_s) if scope == "session" else approval.expires_at
        if until is not None and not now < until:
            raise InvalidError("the approval would end before it begins", hint="Name a later time.")
        grant = _grant(approval, "approved", scope, by, now, until, note)
        return self._decide(approval, replace(grant, edited=arguments))

    def deny(self, id: str, by: str, note: str = "", *, seal: str | None = None) -> Approval:  # noqa: A002 - the field's name
        """Say no. The same call gets this answer for as long as the approval would have waited.

        Raises as `approve` does.
        """
        approval = self._to_decide(id, by, seal)
        grant = _grant(approval, "denied", "once", by, self._clock(), approval.expires_at, note)
        return self._decide(approval, grant)

    def revoke(self, id: str) -> Grant:  # noqa: A002 - the field's name
        """Take back a yes that is not used up, or a no; the next call asks again. `NotFoundError`."""
        grant = self._grants.some([id]).get(id)
        if grant is None or not self._grants.end(id, "revoked"):
            raise NotFoundError(
                f"nothing that holds now has the id {id[:100]!r}",
                hint="List what does: toolcrib approvals grants",
            )
        self._requests.settle([(id, replace(grant, state="revoked").status(self._clock()))])
        self._watch.notify()
        return replace(grant, state="revoked")

    def void(self, id: str) -> Approval:  # noqa: A002 - the field's name
        """End one whose tool is no longer what was asked about; it can neither be approved nor used."""
        approval = self.find(id)
        if approval.status not in ("pending", "approved"):
            return approval
        self._grants.end(id, "void")
        self._requests.settle([(id, "void")])
        self._watch.notify()
        return self.find(id)

    def _to_decide(self, id: str, by: str, seal: str | None) -> Approval:  # noqa: A002 - the field's name
        if not by:
            raise InvalidError("a decision needs the name of who decides")
        approval = self.find(id)
        if approval.status != "pending":
            raise ConflictError(_done_with(approval), hint=f"toolcrib approvals show {id}")
        if seal is not None and seal != approval.seal:
            raise ConflictError(
                f"approval {id} is no longer what was shown, so nothing was decided",
                hint=f"Look at it again: toolcrib approvals show {id}",
            )
        return approval

    def _decide(self, approval: Approval, grant: Grant) -> Approval:
        asker = Ask(
            "", "", "", b"", approval.caller, approval.owner, None, "", "", (), None, approval.token
        ).asker
        self._grants.add(grant, asker)
        decided = _with(approval, grant, grant.decided_at)
        self._requests.settle([(approval.id, decided.status)])
        self._watch.notify()
        return decided

    # -- house work ------------------------------------------------------------------------------

    def sweep(self) -> None:
        """Mark what has run out, bring rows up to date with decisions, drop the oldest of what is over."""
        now = self._clock()
        self._swept = time.monotonic()
        after = ""
        while rows := self._requests.unsettled(after, _PAGE):
            after = rows[-1].id
            decided = self._grants.some([row.id for row in rows])
            stands = [(row.id, _status(row, decided.get(row.id), now)) for row in rows]
            stale = [new for new, row in zip(stands, rows, strict=True) if new[1] != row.status]
            if stale:
                self._requests.settle(stale)
        self._grants.lapse(now)
        self._requests.forget(self._kept)
        self._grants.forget(self._kept)

    def _sweep_now_and_then(self) -> None:
        if time.monotonic() - self._swept > _SWEEP_S:
            self.sweep()


def may_decide(
    approval: Approval, decider: Caller | None, *, person: str = "", self_approval: bool = False
) -> None:
    """Refuse who may not decide on this approval. None is a `person` at this machine.

    Raises InvalidToken for a token without the right, DeniedError for one that would decide on its own call
    or on its owner's, and for a person who owns the token that the call was made with. A token that names no
    owner could be anybody's, so it may not. With `self_approval` an owner may.
    """
    if decider is None:
        if approval.token is not None and person == approval.owner and not self_approval:
            raise DeniedError(
                f"the token {approval.token!r} acts for {person}, who cannot decide on its calls as well",
                hint="Another person has to decide, or the project has to allow it: policy.self_approval.",
            )
        return
    if not decider.may("approve") or not decider.covers(approval.tool):
        raise InvalidToken(
            f"the token {decider.name!r} does not allow to decide on calls of {approval.tool}",
            hint="It needs the scope `approve`, and the tool among its tools.",
        )
    if decider.name in (approval.token, approval.caller):
        raise DeniedError(
            f"the token {decider.name!r} asked for this call, so it cannot decide on it",
            hint="A person has to: toolcrib approvals list",
        )
    if not self_approval and decider.owner in ("", approval.owner):
        whose = f"belongs to {decider.owner}, as the call does" if decider.owner else "names no owner"
        raise DeniedError(
            f"the token {decider.name!r} {whose}, so it cannot decide on this call",
            hint="Another person has to decide, or the project has to allow it by its settings.",
        )


def _require_scope(approval: Approval, scope: Scope, *, edited: bool) -> None:
    if scope not in SCOPES:
        raise InvalidError(f"there is no scope {scope!r}", hint=f"One of: {', '.join(SCOPES)}")
    if scope == "session" and approval.session_id is None:
        raise InvalidError("this call belongs to no session", hint="Approve it once, or for its arguments.")
    if scope == "rule" and not approval.rule:
        raise InvalidError("no rule asked for this approval", hint="Approve it once, or for its arguments.")
    if edited and scope != "once":
        raise InvalidError(
            f"changed arguments cannot be approved with scope {scope}", hint="They run once: --scope once"
        )


def _grant(
    approval: Approval, answer: str, scope: Scope, by: str, now: float, until: float | None, note: str
) -> Grant:
    return Grant(
        id=approval.id,
        answer="approved" if answer == "approved" else "denied",
        state="live",
        scope=scope,
        tool=approval.tool,
        bundle=approval.bundle,
        tool_digest=approval.tool_digest,
        arguments_digest=approval.arguments_digest,
        caller=approval.caller,
        session_id=approval.session_id,
        rule=approval.rule,
        edited=None,
        decided_by=cut(by, 200),
        decided_at=now,
        ends_at=until,
        note=cut(note, _MAX_NOTE),
    )


def _status(row: Approval | Standing, grant: Grant | None, now: float) -> Status:
    """How a row stands, by the decision alone: what the row itself says of one is not believed."""
    if grant is not None:
        return grant.status(now)
    if row.status == "pending":
        return "pending" if now < row.expires_at else "expired"
    return row.status if row.status in ("expired", "void") else "void"


def _with(row: Approval, grant: Grant | None, now: float) -> Approval:
    status = _status(row, grant, now)
    if grant is None:
        return replace(row, status=status)
    return replace(
        row,
        status=status,
        scope=grant.scope,
        decided_by=grant.decided_by,
        decided_at=grant.decided_at,
        edited=grant.edited,
        note=grant.note,
    )


def _done_with(approval: Approval) -> str:
    if approval.decided_by is not None:
        at = written(approval.decided_at)
        return f"approval {approval.id} was decided by {approval.decided_by} at {at}: {approval.status}"
    return f"approval {approval.id} does not wait any more: {approval.status}"
