"""Access control: the tools that a caller may see and call, by its token and by the project's policy.

A built-in tool that only agents list is there for those agents alone.
"""

from __future__ import annotations

from toolcrib.core.context import Context
from toolcrib.errors import InvalidToken, ToolDisabled
from toolcrib.guard import Decision, Policy, Rules, Tokens
from toolcrib.spec import Caller, Tool


def builtin_off(name: str) -> ToolDisabled:
    """Return the error of a built-in tool that is off for this caller."""
    return ToolDisabled(
        f"the built-in tool {name!r} is off in this project",
        hint=f"To switch it on, write `builtins: [{name}]` in config.yml.",
    )


class AccessControl:
    """Decides by the rules of one project and by the token that a call carries."""

    def __init__(self, rules: Rules, tokens: Tokens) -> None:
        self._policy = Policy(rules)
        self._tokens = tokens
        self._has_rules = bool(rules.rules) or rules.default != "allow"
        self.only_for: dict[str, set[str]] = {}
        """Built-in tool to the callers that it is on for, where it is not on for everybody."""

    def hides(self, identity: Caller | None) -> bool:
        """Return True if there may be tools that this caller does not see."""
        return self._has_rules or identity is not None or bool(self.only_for)

    def require_valid(self, identity: Caller | None) -> None:
        """Raise `InvalidToken` if this caller's token was revoked or has expired."""
        if identity is not None:
            self._tokens.require_valid(identity)

    def valid(self, identity: Caller | None) -> bool:
        """Return False if this caller's token was revoked or has expired."""
        try:
            self.require_valid(identity)
        except InvalidToken:
            return False
        return True

    def visible(self, tool: Tool, caller: str, identity: Caller | None) -> bool:
        """Return True if this caller may see the tool."""
        if not self.hides(identity):
            return True
        return not self._is_off(tool, caller) and self._policy.visible(tool, caller, identity)

    def _is_off(self, tool: Tool, caller: str) -> bool:
        return tool.is_builtin and caller not in self.only_for.get(tool.name, (caller,))

    def admit(self, tool: Tool, caller: str, identity: Caller | None) -> None:
        """Refuse a call that this caller may never make, whatever the arguments.

        Raises `InvalidToken`, `PolicyDenied`, and `ToolDisabled` for a built-in tool of an agent.
        """
        if self.hides(identity):
            self.require_valid(identity)
            if self._is_off(tool, caller):
                raise builtin_off(tool.name)
            self._policy.admit(tool, caller, identity)

    def authorise(self, ctx: Context) -> None:
        """Do the same for a call on its way, and keep the decision if the arguments do not matter."""
        if ctx.identity is not None:
            self._tokens.require_valid(ctx.identity)
        if self.only_for and self._is_off(ctx.bound.tool, ctx.caller):
            raise builtin_off(ctx.tool)
        if self._has_rules or ctx.identity is not None:
            ctx.decision = self._policy.admit(ctx.bound.tool, ctx.caller, ctx.identity)

    def judge(self, ctx: Context) -> Decision | None:
        """Return the decision on a call whose arguments are checked; None where there are no rules.

        Raises `PolicyDenied`.
        """
        if ctx.decision is not None or not self._has_rules:
            return ctx.decision
        assert isinstance(ctx.arguments, dict)
        return self._policy.judge(ctx.bound.tool, ctx.caller, ctx.arguments, ctx.identity)

    def may_ask(self, tool: Tool, caller: str, identity: Caller | None) -> str | None:
        """Return why some call of a tool may need approval by the rules; None where no call does."""
        decision = self._policy.decide(tool, caller, None, identity) if self._has_rules else None
        return decision.why if decision is not None and decision.effect == "ask" else None
