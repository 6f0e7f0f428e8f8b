"""Controls: what is added to the path of every call of a toolset, such as policy, approval and audit."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from toolcrib.core.bound import Bound
from toolcrib.core.context import Context
from toolcrib.core.results import Mask
from toolcrib.errors import ApprovalRequired, ToolcribError, UsageError
from toolcrib.middleware.rates import Rates
from toolcrib.spec import Caller, Result, Tool
from toolcrib.spec.record import record

Check = Callable[[Context], None]
"""Refuses a call by raising a ToolcribError."""
Proceed = Callable[[Context], Awaitable[Result]]
"""Runs the rest of the path."""
Wrapper = Callable[[Proceed], Proceed]
"""Takes the rest of the path and returns it with one concern around it.

It refuses a call by raising a ToolcribError, and replaces the tool by returning a result of its own. Where it
has nothing to wait for, it should be a plain function that returns what `Proceed` returns.
"""


def _sees_all(_tool: Tool, _caller: str, _identity: Caller | None) -> bool:
    return True


@record
class Controls:
    """Everything that is added to the path of a call, in the order of the path."""

    visible: Callable[[Tool, str, Caller | None], bool] = _sees_all
    """Return True if this caller may know of the tool."""
    authorise: tuple[Check, ...] = ()
    """Checked before anybody looks at the arguments."""
    require: tuple[Check, ...] = ()
    """Checked once the arguments are known to be valid."""
    approve: tuple[Wrapper, ...] = ()
    """Around everything that follows these checks, the outermost first."""
    plan: Callable[[Context], dict[str, Any]] | None = None
    """Return the plan of a dry run, as JSON. Raises as the call would."""
    start: Check | None = None
    """Record that the call starts, once nothing else can refuse it; the tool runs next."""
    mask: Mask | None = None
    """Masks secrets in every result, refusal and progress message."""
    hide: Callable[[ToolcribError, Caller | None], None] | None = None
    """Shorten the paths in the error of a recorded call for a caller who may not know them, in place."""
    keep: Callable[[Context, Result], None] | None = None
    """Keep what a masked result cannot contain, and note in it where that is."""
    record: Callable[[Context, Result], None] | None = None
    """Write down a call that ran or was refused; raise a ToolcribError when that is not possible."""


def plain_controls() -> Controls:
    """Return the controls of a toolset outside of a project."""
    rates = Rates()

    def rated(proceed: Proceed) -> Proceed:
        async def counted(ctx: Context) -> Result:
            with rates.counted(ctx.tool, ctx.bound.limits):
                return await proceed(ctx)

        return lambda ctx: (counted if ctx.bound.is_rated else proceed)(ctx)

    return Controls(require=(_require_approver,), approve=(rated,))


def _require_approver(ctx: Context) -> None:
    """Refuse calls that need an approval and name no approver: nobody can be asked here."""
    reason = ctx.bound.approval_reason
    if reason is not None and ctx.approved_by is None and not ctx.dry_run:
        hint = 'Ask a person, then pass who approves it: call(…, approved_by="NAME").'
        raise needs_approval(ctx.bound, reason, hint)
    if ctx.idempotency_key is not None:
        raise UsageError("a toolset keeps no results of calls; a project does")


def needs_approval(bound: Bound, reason: str, hint: str) -> ApprovalRequired:
    """Return the refusal of a call that a person must approve."""
    return ApprovalRequired(
        f"{bound.name} needs a person's approval: {reason}", hint=hint, details={"reason": reason}
    )
