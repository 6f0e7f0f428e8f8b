"""Approvals: calls that wait for a person, for days and across restarts, and the decisions about them.

A call asks by `seek`. A call that nobody has allowed yet becomes a row that waits, which needs no process, no
thread and no memory. A decision is a grant in the user's own folder; nothing in the project's database
counts as one.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from typing import Literal

from toolcrib.errors import ConflictError, DeniedError, InvalidInput, NotFoundError, UsageError
from toolcrib.guard.approvals.grants import Grants
from toolcrib.guard.approvals.records import (
    GRANT_SCOPES,
    STATUSES,
    Approval,
    ApprovalStatus,
    Ask,
    Grant,
    GrantScope,
    Permit,
    asker_of,
    cut,
)
from toolcrib.guard.approvals.requests import Requests, RequestStatus
from toolcrib.spec.calls.caller import Caller
from toolcrib.spec.moment import written
from toolcrib.state import Database, DatabaseWatch

_WEEK_S = 604_800.0
_PAGE = 500
_ROWS = 50
"""Rows read at a time with their arguments, which may be large."""
_MAX_NOTE = 2_000
_SWEEP_S = 60.0


class Approvals:
    """The approvals of one project: `state` is the project's database, `grants` the user's own.

    `ttl_s` is how many seconds a call waits for a decision, and an approval given once for its call. At most
    `per_caller` and `in_all` calls wait at a time, with texts of `bytes_in_all` bytes, half of them for one
    caller. The newest `kept` that are over are kept. With `key`, only decisions made with it count. Safe for
    threads and for other processes.
    """

    def __init__(
        self,
        state: Database,
        grants: Database,
        *,
        clock: Callable[[], float] = time.time,
        ttl_s: float = _WEEK_S,
        per_caller: int = 100,
        in_all: int = 50_000,
        bytes_in_all: int = 268_435_456,
        kept: int = 10_000,
        key: bytes | None = None,
    ) -> None:
        self._requests = Requests(state, per_caller=per_caller, in_all=in_all, bytes_in_all=bytes_in_all)
        self._grants = Grants(grants, key)
        self._clock = clock
        self._ttl_s = ttl_s
        self._kept = kept
        self._swept = float("-inf")
        self._watch: DatabaseWatch[bool] = DatabaseWatch(self._settled, state, grants)

    # -- requests --------------------------------------------------------------------------------

    def seek(self, ask: Ask) -> Permit | Approval:
        """Return permission to run this call now, or the approval that it waits for.

        A grant given once is used up by this. The same request is one approval, however often it is made.
        Raises `ApprovalDenied` if the call was denied; `RateLimited` if too many calls wait; `InvalidInput`
        if the arguments are too large to ask about.
        """
        ask = ask.checked()
        while True:
            # The decision first: the usual call of an approved tool never touches the project's database.
            permit = self._grants.take(ask, self._clock())
            if permit is not None:
                return permit
            waiting = self._requests.waiting(ask, self._clock(), self._ttl_s)
            grant = self._grants.some([waiting.id]).get(waiting.id)
            if grant is None:
                self._sweep_if_due()
                return waiting
            # Decided since `take`, or by a process that died before it could update the row.
            self._requests.settle([(waiting.id, grant.status(self._clock()))])

    def give_back(self, permit: Permit) -> None:
        """Undo `seek` for a call that did not start: an approval given once is there for the next call."""
        self._grants.give_back(permit)

    def about(self, ask: Ask) -> Sequence[Grant]:
        """Return the decisions about this call that are in force; nothing is used up."""
        return self._grants.about(ask.checked(), self._clock())

    def room(self, asker: str) -> int:
        """Return how many further calls of this asker (`Ask.asker`) may wait for approval."""
        return self._requests.room(asker, self._clock())

    async def wait(self, id: str, timeout_s: float | None = None) -> Approval:
        """Return the approval once it is no longer pending, or as it is when the time is up.

        Raises `NotFoundError` for one that does not exist, or no longer does.
        """
        await self._watch.wait(id, timeout_s)
        return self.find(id)

    def _settled(self, ids: Sequence[str]) -> Mapping[str, bool]:
        """Return those that no longer wait, or do not exist."""
        now = self._clock()
        settled = dict.fromkeys(ids, True)
        for start in range(0, len(ids), _PAGE):
            some = ids[start : start + _PAGE]
            decided = self._grants.some(some)
            for row in self._requests.statuses(some):
                if _status(row, decided.get(row.id), now) == "pending":
                    del settled[row.id]
        return settled

    # -- reading ---------------------------------------------------------------------------------

    def find(self, id: str) -> Approval:
        """Return one approval as it is now; `NotFoundError`."""
        row = self._requests.find(id)
        if row is None:
            hint = "To see all: toolcrib approvals list"
            raise NotFoundError(f"there is no approval {id[:100]!r}", hint=hint)
        return self._merged([row])[0]

    def resolve(self, beginning: str) -> str:
        """Return the id that begins so. Raises NotFoundError, and UsageError if several do."""
        found = self._requests.ids(beginning)
        if len(found) > 1 and beginning not in found:
            raise UsageError(f"several approvals begin with {beginning!r}", hint="Write more of the id.")
        return found[0] if found else self.find(beginning).id

    def list(
        self, status: ApprovalStatus | None = None, limit: int = 100, *, before: str | None = None
    ) -> Sequence[Approval]:
        """Return approvals, the newest first, at most 500; for the next page pass the last id as `before`."""
        if status is not None and status not in STATUSES:
            raise InvalidInput(f"there is no status {status!r}", hint=f"One of: {', '.join(STATUSES)}")
        self._sweep_if_due()
        return list(islice(self._with_status(status, before), max(0, min(limit, _PAGE))))

    def _with_status(self, status: ApprovalStatus | None, before: str | None) -> Iterator[Approval]:
        # The column may be behind the decision, so rows that may have another status by now are read too.
        stored = None if status is None else tuple(dict.fromkeys((status, "pending", "approved")))
        while rows := self._requests.page(stored, before, _ROWS):
            yield from (one for one in self._merged(rows) if status is None or one.status == status)
            before = rows[-1].id

    def _merged(self, rows: Sequence[Approval]) -> Sequence[Approval]:
        """Add the decisions to at most 500 rows.

        An approval that is seen to have expired is stored as expired, even if the clock is set back later.
        """
        decided = self._grants.some([row.id for row in rows])
        now = self._clock()
        merged = [_with(row, decided.get(row.id), now) for row in rows]
        expired = [
            one.id for one, row in zip(merged, rows, strict=True) if one.status == "expired" != row.status
        ]
        if expired:
            self._grants.expire(now)
            self._requests.settle([(id, "expired") for id in expired])
        return merged

    def mark(self) -> tuple[object, ...]:
        """Return values of which one differs once there is another question or decision."""
        return (*self._requests.mark(), *self._grants.mark())

    def grants(self, limit: int = 500, *, before: str | None = None) -> Sequence[Grant]:
        """Return decisions that are valid now, the newest first; with `before`, those older than that id."""
        return self._grants.live(self._clock(), limit, before)

    def grant(self, id: str) -> Grant:
        """Return a decision that is valid now. Raises NotFoundError."""
        grant = self._grants.some([id]).get(id)
        now = self._clock()
        if grant is None or grant.state != "live" or (grant.ends_at is not None and now >= grant.ends_at):
            raise NotFoundError(
                f"no valid decision has the id {id[:100]!r}", hint="To see them: toolcrib approvals grants"
            )
        return grant

    # -- decisions -------------------------------------------------------------------------------

    def approve(
        self,
        id: str,
        by: str,
        scope: GrantScope = "once",
        arguments: bytes | None = None,
        note: str = "",
        until: float | None = None,
        *,
        seal: str | None = None,
    ) -> Approval:
        """Approve a call. `by` is the person; `arguments` (canonical JSON, checked already) run instead of
        the original ones; `until` ends a lasting approval; `seal` is that of the approval as it was shown.

        Raises `NotFoundError`; `ConflictError` for one that no longer waits or differs from what was shown;
        `InvalidInput` for a scope that does not apply.
        """
        approval = self._undecided(id, by, seal)
        now = self._clock()
        _require_scope(approval, scope, edited=arguments is not None)
        if until is None and scope in ("once", "session"):
            until = max(approval.expires_at, now + self._ttl_s) if scope == "session" else approval.expires_at
        if until is not None and not now < until:
            raise InvalidInput("the approval would end before it begins", hint="Name a later time.")
        return self._decide(_grant(approval, "approved", scope, by, note, now, until, arguments), approval)

    def deny(
        self, id: str, by: str, note: str = "", hold_s: float | None = None, *, seal: str | None = None
    ) -> Approval:
        """Deny a call. The same call gets this answer for `hold_s` seconds; by default, and at most, for as
        long as the approval would have waited.

        Raises as `approve` does.
        """
        approval = self._undecided(id, by, seal)
        now = self._clock()
        end = approval.expires_at if hold_s is None else min(now + hold_s, approval.expires_at)
        return self._decide(_grant(approval, "denied", "once", by, note, now, end), approval)

    def revoke(self, id: str) -> Grant:
        """Revoke a decision that is valid; the next call asks again. `NotFoundError`."""
        grant = self.grant(id)
        if not self._grants.end(id, "revoked"):
            raise ConflictError(f"the decision {id} has ended in the meantime")
        revoked = replace(grant, state="revoked")
        self._settle(id, revoked.status(self._clock()))
        return revoked

    def void(self, id: str) -> Approval:
        """End an approval whose tool has changed; it can be neither decided nor used any more."""
        approval = self.find(id)
        if approval.status not in ("pending", "approved"):
            return approval
        # The decision before the row: if this process dies between, nothing can run by it.
        self._grants.end(id, "void")
        self._settle(id, "void")
        return self.find(id)

    def _undecided(self, id: str, by: str, seal: str | None) -> Approval:
        if not by:
            raise InvalidInput("a decision needs the name of the person who decides")
        approval = self.find(id)
        if approval.status != "pending":
            raise ConflictError(_done_with(approval), hint=f"toolcrib approvals show {id}")
        if seal is not None and seal != approval.seal:
            raise ConflictError(
                f"approval {id} differs from what was shown, so nothing was decided",
                hint=f"Look at it again: toolcrib approvals show {id}",
            )
        return approval

    def _decide(self, grant: Grant, approval: Approval) -> Approval:
        # This alone is the decision. The row follows, here or in whoever looks at it next.
        self._grants.add(grant, asker_of(approval.caller, approval.owner, approval.token))
        decided = _with(approval, grant, grant.decided_at)
        self._settle(approval.id, decided.status)
        return decided

    def _settle(self, id: str, status: ApprovalStatus) -> None:
        self._requests.settle([(id, status)])
        self._watch.notify()

    # -- maintenance -----------------------------------------------------------------------------

    def sweep(self) -> None:
        """Store what has expired or was decided elsewhere, and delete the oldest rows that are over."""
        now = self._clock()
        self._swept = time.monotonic()
        after = ""
        while rows := self._requests.unsettled(after, _PAGE):
            after = rows[-1].id
            decided = self._grants.some([row.id for row in rows])
            statuses = [(row, _status(row, decided.get(row.id), now)) for row in rows]
            if stale := [(row.id, status) for row, status in statuses if status != row.status]:
                self._requests.settle(stale)
        self._grants.expire(now)
        self._requests.forget(self._kept)
        self._grants.forget(self._kept)

    def _sweep_if_due(self) -> None:
        if time.monotonic() - self._swept > _SWEEP_S:
            self.sweep()


def _require_scope(approval: Approval, scope: GrantScope, *, edited: bool) -> None:
    if scope not in GRANT_SCOPES:
        raise InvalidInput(f"there is no scope {scope!r}", hint=f"One of: {', '.join(GRANT_SCOPES)}")
    other = "Approve it once, or for its arguments."
    if scope == "session" and approval.session_id is None:
        raise InvalidInput("this call belongs to no session", hint=other)
    if scope == "rule" and not approval.rule:
        raise InvalidInput("no rule asked for this approval", hint=other)
    if edited and scope != "once":
        raise InvalidInput(
            f"changed arguments cannot be approved with scope {scope}", hint="They run once: --scope once"
        )


def _grant(
    approval: Approval,
    answer: Literal["approved", "denied"],
    scope: GrantScope,
    by: str,
    note: str,
    now: float,
    until: float | None,
    edited: bytes | None = None,
) -> Grant:
    same = ("id", "tool", "bundle", "tool_digest", "arguments_digest", "caller", "session_id", "rule")
    return Grant(
        **{name: getattr(approval, name) for name in same},
        answer=answer,
        state="live",
        scope=scope,
        edited=edited,
        decided_by=cut(by, 200),
        decided_at=now,
        ends_at=until,
        note=cut(note, _MAX_NOTE),
    )


def _status(row: Approval | RequestStatus, grant: Grant | None, now: float) -> ApprovalStatus:
    """Return a row's status by the decision alone: a decision in the row itself is not trusted."""
    if grant is not None:
        return grant.status(now)
    if row.status == "pending":
        return "pending" if now < row.expires_at else "expired"
    return row.status if row.status in ("expired", "void") else "void"


def _with(row: Approval, grant: Grant | None, now: float) -> Approval:
    decision = ("scope", "decided_by", "decided_at", "edited", "note") if grant is not None else ()
    return replace(row, status=_status(row, grant, now), **{name: getattr(grant, name) for name in decision})


def _done_with(approval: Approval) -> str:
    if approval.decided_by is not None:
        at = written(approval.decided_at)
        what = "approved, and the call was made" if approval.status == "used" else approval.status
        return f"approval {approval.id} was decided by {approval.decided_by} at {at}: {what}"
    return f"approval {approval.id} no longer waits: {approval.status}"


def may_decide(
    approval: Approval, decider: Caller | None, *, person: str = "", self_approval: bool = False
) -> None:
    """Refuse a decider that may not decide on this approval. None means a `person` at this machine.

    Raises DeniedError for a token without the right, for one that decides on its own call or its owner's, for
    one without an owner, who could be anybody, and for the person who owns the token of the call. With
    `self_approval` an owner may decide.
    """
    if decider is None:
        if approval.token is not None and person == approval.owner and not self_approval:
            raise DeniedError(
                f"the token {approval.token!r} acts for {person}, who cannot decide on its calls as well",
                hint="Another person must decide. Or make the token for somebody else (toolcrib token create"
                " --owner NAME), or set policy.self_approval in the project.",
            )
        return
    if not decider.may("approve") or not decider.covers(approval.tool):
        raise DeniedError(
            f"the token {decider.name!r} may not decide on calls of {approval.tool}",
            hint="It needs the scope `approve`, and the tool among its tools.",
        )
    if decider.name in (approval.token, approval.caller):
        raise DeniedError(
            f"the token {decider.name!r} made this call, so it cannot decide on it",
            hint="A person must decide.",
        )
    if not self_approval and decider.owner in ("", approval.owner):
        whose = f"belongs to {decider.owner}, as the call does" if decider.owner else "names no owner"
        raise DeniedError(
            f"the token {decider.name!r} {whose}, so it cannot decide on this call",
            hint="Another person must decide, or the project must set policy.self_approval.",
        )
