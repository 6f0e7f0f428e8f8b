"""Access control: who may see and call a tool, by token, policy, and the acceptance of the project.

A built-in tool that only agents list is there for those agents alone. A project that this user neither made
nor accepted runs no tool, at any interface.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from toolcrib.core.context import Context
from toolcrib.errors import InvalidToken, NotTrusted, ToolDisabled
from toolcrib.guard import Decision, Policy, Rules, Tokens, Trust
from toolcrib.spec import Caller, Tool
from toolcrib.spec.calls.caller import OWN_CALLERS
from toolcrib.state import user_settings_file

if TYPE_CHECKING:
    from toolcrib.project.integrity.fingerprints import ProjectDigest


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
        # A built-in tool without an entry is on for everybody, so also for this caller.
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


@dataclass(slots=True)
class Acceptance:
    """The rule about one project as a whole.

    `whole`: the program that opened it accepts everything in it. `versions` are the digests of the tools that
    this user's settings accept.
    """

    trust: Trust
    digest: Callable[[], ProjectDigest]
    whole: bool = False
    versions: Mapping[str, str] = field(default_factory=dict)
    _accepted: bool = False

    def require(self, ctx: Context) -> None:
        """Refuse a call of a tool of the project, before anything else is looked at: `NotTrusted`.

        Once it is accepted, in whatever process, the next call runs.
        """
        tool = ctx.bound.tool
        # Functions of the program itself are not of the project.
        if self._accepted or (tool.source is None and tool.kind != "mcp"):
            return
        if not self.given:
            raise self.refusal(own=ctx.identity is None and ctx.caller in OWN_CALLERS)
        self._accepted = True

    @property
    def given(self) -> bool:
        """True if the project is accepted."""
        return self.whole or bool(self.versions) or self.trust.current() is not None

    def refusal(self, *, own: bool) -> NotTrusted:
        """Return the error for a project that is not accepted. Its user also gets the digest of it."""
        if not own:
            return NotTrusted(
                "nobody has accepted this project, so none of its tools runs",
                hint="The person whose machine this is has to accept it first.",
            )
        digest = self.digest().digest
        return NotTrusted(
            f"you have not accepted this project, so none of its tools runs; its digest is {digest}",
            hint="To see what it holds and accept it: toolcrib trust. In CI: add the digest to"
            f" accepted_projects in {user_settings_file()}.",
            details={"digest": digest},
        )
