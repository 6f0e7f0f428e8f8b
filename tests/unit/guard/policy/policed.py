"""Controls with nothing in them but a policy."""

from __future__ import annotations

from toolcrib import Context
from toolcrib.core.controls import Controls
from toolcrib.errors import ApprovalRequired
from toolcrib.guard import Policy


def policed(policy: Policy) -> Controls:
    def authorise(ctx: Context) -> None:
        policy.admit(ctx.bound.tool, ctx.caller, ctx.identity)

    def judge(ctx: Context) -> None:
        assert isinstance(ctx.arguments, dict)
        if policy.judge(ctx.bound.tool, ctx.caller, ctx.arguments).effect == "ask":
            raise ApprovalRequired

    return Controls(visible=policy.visible, authorise=(authorise,), require=(judge,))
