"""The checks that refuse a call: access by token and policy, and approved code.

A built-in tool that only agents list is there for those agents alone.
"""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable

from toolcrib.core.context import Context
from toolcrib.core.controls import Proceed
from toolcrib.errors import ApprovalRequired, ConflictError, ToolDisabled
from toolcrib.guard import Decision, Pinned, Policy, Rules, Snapshots, Tokens, ToolDigest
from toolcrib.manifest.kinds import is_function, kind_of
from toolcrib.project.control.store import Switches
from toolcrib.project.integrity.lock import Pins
from toolcrib.spec import Caller, Result, Tool


def builtin_off(name: str) -> ToolDisabled:
    """Return the error of a built-in tool that is off for this caller."""
    return ToolDisabled(
        f"the built-in tool {name!r} is off in this project",
        hint=f"To switch it on, write `builtins: [{name}]` in config.yml.",
    )


class AccessControl:
    """Decides by the rules of one project and by the token that a call carries."""

    def __init__(self, rules: Rules, tokens: Tokens, switches: Switches) -> None:
        self._tokens, self._switches = tokens, switches
        self.only_for: dict[str, set[str]] = {}
        """Built-in tool to the callers that it is on for, where it is not on for everybody."""
        self.use(rules)

    def use(self, rules: Rules) -> None:
        """Decide by these rules from now on."""
        self._policy = Policy(rules)
        self.needs_hints = any(rule.annotations is not None for rule in rules.rules)
        """True if a rule looks at more of a tool than its name, bundle and tags."""
        self._has_rules = bool(rules.rules) or rules.default != "allow"

    def hides(self, identity: Caller | None) -> bool:
        """Return True if there may be tools that this caller does not see."""
        limited = identity is not None and not (identity.tools is None and identity.may("read"))
        return self._has_rules or limited or bool(self.only_for)

    def require_valid(self, identity: Caller | None) -> None:
        """Raise `InvalidToken` if this caller's token was revoked or has expired."""
        if identity is not None:
            self._tokens.require_valid(identity)

    def visible(self, tool: Tool, caller: str, identity: Caller | None) -> bool:
        """Return True if this caller may see the tool."""
        if not self.hides(identity):
            return True
        return not self._is_off(tool, caller) and self._policy.visible(tool, caller, identity)

    def _is_off(self, tool: Tool, caller: str) -> bool:
        # A built-in tool without an entry is on for everybody, so also for this caller.
        return tool.is_builtin and caller not in self.only_for.get(tool.name, (caller,))

    def admit(self, tool: Tool, caller: str, identity: Caller | None) -> Decision | None:
        """Refuse a call that this caller may never make, whatever the arguments.

        Return the decision if the arguments do not matter. Raises `InvalidToken`, `PolicyDenied`, and
        `ToolDisabled` for a built-in tool of an agent.
        """
        if identity is not None:
            self._tokens.require_valid(identity)
        if self.only_for and self._is_off(tool, caller):
            raise builtin_off(tool.name)
        return self._policy.admit(tool, caller, identity) if self._has_rules or identity is not None else None

    def authorise(self, ctx: Context) -> None:
        """Do the same for a call on its way, and refuse one of a tool that was switched off."""
        self._switches.require_on(ctx.bound.tool)
        if self.only_for or self._has_rules or ctx.identity is not None:
            ctx.decision = self.admit(ctx.bound.tool, ctx.caller, ctx.identity)

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


class ApprovedCode:
    """Takes the digest of a tool for the decisions about a call, and has exactly that version run.

    `fingerprint` returns a tool's digest as it is now.
    """

    def __init__(self, fingerprint: Callable[[Tool], ToolDigest], snapshots: Snapshots, pins: Pins) -> None:
        self._fingerprint, self._snapshots, self._pins = fingerprint, snapshots, pins

    def digest(self, ctx: Context) -> ToolDigest:
        """Return the digest that every decision about this call is for, taken when first needed."""
        if ctx.digest is None:
            ctx.digest = self._fingerprint(ctx.bound.tool)
        return ctx.digest

    def require_pinned(self, ctx: Context) -> None:
        """Raise LockDrift if the tool of this call differs from its pin in the lock.

        Functions of the program and the tools that its user keeps in bundles are not pinned.
        """
        tool = ctx.bound.tool
        if not tool.is_stored and not is_function(tool):
            self._pins.require(tool, lambda: self.digest(ctx))

    def require_approved(self, ctx: Context) -> None:
        """Raise ApprovalRequired if whoever approved this very call was shown another version of the tool."""
        if ctx.approved_digest is not None and self.digest(ctx).digest != ctx.approved_digest:
            raise _changed(ctx.tool, [])

    def require_same(self, ctx: Context) -> ToolDigest:
        """Return the digest of the tool as it is now; ApprovalRequired if the decisions were for another."""
        now, then = self._fingerprint(ctx.bound.tool), ctx.digest
        if then is not None and now.digest != then.digest:
            raise _changed(ctx.tool, now.changed_since(then.parts))
        return now

    def __call__(self, proceed: Proceed) -> Proceed:
        """Put this step before the rest of the path, after everything that waits."""

        def step(ctx: Context) -> Awaitable[Result]:
            if ctx.digest is not None:
                # Confined code runs from a copy of what was hashed. All else can only be looked at once more.
                if kind_of(ctx.bound.tool).confined:
                    ctx.code = lambda: self._code(ctx)
                else:
                    self.require_same(ctx)
            return proceed(ctx)

        return step

    def _code(self, ctx: Context) -> Pinned:
        source = ctx.bound.tool.source
        digest = self.require_same(ctx)
        # Beside a file that holds many tools lie files that are not part of this one, so no folder is copied.
        own = None if source is None or source.shared else os.path.realpath(os.path.dirname(source.path))
        try:
            return self._snapshots.of(digest, own)
        # A file changed between digest and copy. To the caller that is the same as a change before.
        except ConflictError as error:
            raise ApprovalRequired(error.message, hint=error.hint, details=error.details) from None


def _changed(tool: str, parts: list[str]) -> ApprovalRequired:
    which = f": {', '.join(parts)}" if parts else ""
    return ApprovalRequired(
        f"{tool} has changed since it was checked, so nothing was run{which}",
        hint="Make the call again: it is then checked as it is now.",
        details={"changed": parts},
    )
