"""The rule that nobody decides on calls of their own agent."""

from __future__ import annotations

from toolcrib.errors import DeniedError, InvalidToken
from toolcrib.guard.approvals.records import Approval
from toolcrib.spec.calls.caller import Caller


def may_decide(
    approval: Approval, decider: Caller | None, *, person: str = "", self_approval: bool = False
) -> None:
    """Refuse a decider that may not decide on this approval. None means a `person` at this machine.

    Raises InvalidToken for a token without the right. Raises DeniedError for a token that decides on its own
    call or its owner's, for a token without an owner, who could be anybody, and for the person who owns the
    token of the call. With `self_approval` an owner may decide.
    """
    if decider is None:
        if approval.token is not None and person == approval.owner and not self_approval:
            raise DeniedError(
                f"the token {approval.token!r} acts for {person}, who cannot decide on its calls as well",
                hint="Another person must decide, or the project must set policy.self_approval.",
            )
        return
    if not decider.may("approve") or not decider.covers(approval.tool):
        raise InvalidToken(
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
