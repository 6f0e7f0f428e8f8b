"""The policy of a project: rules over tool, caller and arguments. deny beats ask, ask beats allow."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from itertools import groupby
from typing import Any

from toolcrib.errors import InvalidToken, PolicyDenied
from toolcrib.guard.policy.condition import AnyCondition
from toolcrib.guard.policy.rules import EFFECTS, Effect, Rule, Rules
from toolcrib.spec import Caller, Scope, Tool
from toolcrib.spec.record import record

_MOST_PLANS = 10_000
_LONGEST_CALLER = 200
"""Callers choose their own names, so what is stored for them is limited in number and in size."""
_STRENGTH = {effect: number for number, effect in enumerate(reversed(EFFECTS))}


@record
class Decision:
    """The policy's decision on a call."""

    effect: Effect
    rule: Rule | None
    """The rule that decides; None for the default, and for the tool's own approval."""
    why: str
    """The rule and its reason, in words."""


@record
class RuleCheck:
    """The check of one rule against a call."""

    rule: Rule
    matched: bool | None
    """None if the arguments decide and are not known."""
    condition: str | None = None
    """The key of the condition that is not met, or not known."""
    why: str = ""
    """The reason that it is not met."""


_OpenRules = list[tuple[Rule, Decision]]
"""Rules of one effect whose conditions depend on the arguments, and the decision of each."""


class _CallerPolicy:
    """The decisions for one tool and one caller, as far as they do not depend on the arguments."""

    __slots__ = ("fallback", "open", "settled", "tool")

    def __init__(
        self, tool: Tool, fallback: Decision, still_open: list[tuple[AnyCondition, _OpenRules]]
    ) -> None:
        self.tool = tool  # kept alive, so that no other tool gets its id
        self.fallback = fallback
        self.open = still_open
        self.settled = None if still_open else fallback

    def weigh(self, arguments: Mapping[str, Any] | None) -> Decision:
        for some, rules in self.open:
            if some.may_hold(arguments):
                for rule, decision in rules:
                    met = rule.when.holds(arguments) if rule.when is not None else True
                    if met:
                        return decision
                    if met is None:  # later rules are no stronger: one of these two is the strictest
                        return max(decision, self.fallback, key=lambda one: _STRENGTH[one.effect])
        return self.fallback


class Policy:
    """A project's rules, ready to decide. Safe for threads.

    Rules match the tool itself, never the name that a caller sent for it.
    """

    def __init__(self, rules: Rules | None = None) -> None:
        self.rules = rules or Rules()
        self._plans: dict[tuple[int, str | tuple[str, ...]], _CallerPolicy] = {}
        self._any: dict[tuple[int, ...], AnyCondition] = {}

    def decide(
        self,
        tool: Tool,
        caller: str,
        arguments: Mapping[str, Any] | None,
        identity: Caller | None = None,
    ) -> Decision:
        """Decide on one call. `arguments` are those that will run: checked, with defaults filled in.

        If they are None, not known, the decision is the strictest that any arguments could lead to. Rules
        about callers match `caller`, and also the client of a caller with a token.
        """
        plan = self._plan_of(tool, caller, identity)
        return plan.settled or plan.weigh(arguments)

    def before(self, tool: Tool, caller: str, identity: Caller | None = None) -> Decision | None:
        """Return the decision if it does not depend on the arguments; else None."""
        return self._plan_of(tool, caller, identity).settled

    def visible(self, tool: Tool, caller: str, identity: Caller | None = None) -> bool:
        """Return True if the tool is listed: not always denied, and covered by the caller's token."""
        if identity is not None and not (identity.may("read") and identity.covers(tool.name)):
            return False
        settled = self.before(tool, caller, identity)
        return settled is None or settled.effect != "deny"

    def admit(self, tool: Tool, caller: str, identity: Caller | None = None) -> Decision | None:
        """Check a call before its arguments are checked; return what `before` does.

        Raises `InvalidToken` if the caller's token does not allow the call, `PolicyDenied` if it is always
        denied.
        """
        if identity is not None:
            require_scope(identity, "invoke", tool)
        settled = self.before(tool, caller, identity)
        if settled is not None and settled.effect == "deny":
            raise denial(settled, tool, caller)
        return settled

    def judge(
        self, tool: Tool, caller: str, arguments: Mapping[str, Any], identity: Caller | None = None
    ) -> Decision:
        """Decide finally on a call: `allow` or `ask`. Raises `PolicyDenied` for `deny`."""
        decision = self.decide(tool, caller, arguments, identity)
        if decision.effect == "deny":
            raise denial(decision, tool, caller)
        return decision

    def explain(
        self,
        tool: Tool,
        caller: str,
        arguments: Mapping[str, Any] | None,
        identity: Caller | None = None,
    ) -> list[RuleCheck]:
        """Return the check of each rule, in their order."""
        callers = _names(_key(caller, identity))
        return [_step(rule, tool, callers, arguments) for rule in self.rules.rules]

    def _plan_of(self, tool: Tool, caller: str, identity: Caller | None) -> _CallerPolicy:
        who = caller if identity is None else _key(caller, identity)
        return self._plans.get((id(tool), who)) or self._plan(tool, who)

    def _plan(self, tool: Tool, who: str | tuple[str, ...]) -> _CallerPolicy:
        callers = _names(who)
        matching = [rule for rule in self.rules.rules if rule.mismatch(tool, *callers) is None]
        matching.sort(key=lambda rule: -_STRENGTH[rule.effect])  # stable: of equal ones the first
        certain = next((rule for rule in matching if rule.when is None), None)
        fallback = self._default(tool) if certain is None else _by_rule(certain, tool)
        still_open = [(rule, _by_rule(rule, tool)) for rule in matching if rule.when is not None]
        if certain is not None:
            still_open = [one for one in still_open if _STRENGTH[one[1].effect] > _STRENGTH[fallback.effect]]
        while still_open and still_open[-1][1].effect == fallback.effect:  # the last one changes nothing
            still_open.pop()
        if len(self._plans) >= _MOST_PLANS:
            self._plans.clear()
            self._any.clear()
        by_effect = (list(rules) for _, rules in groupby(still_open, lambda one: one[0].effect))
        groups = [(self._some(rules), rules) for rules in by_effect]
        plan = _CallerPolicy(tool, fallback, groups)
        if sum(map(len, callers)) <= _LONGEST_CALLER:
            self._plans[id(tool), who] = plan
        return plan

    def _some(self, rules: _OpenRules) -> AnyCondition:
        key = tuple(id(rule) for rule, _ in rules)
        found = self._any.get(key)
        if found is None:
            found = self._any[key] = AnyCondition([rule.when for rule, _ in rules if rule.when is not None])
        return found

    def _default(self, tool: Tool) -> Decision:
        default = self.rules.default
        if tool.approval.required and default != "deny":
            return Decision("ask", None, _own_approval(tool))
        return Decision(default, None, f"no rule matches this call, and the default is {default}")


def require_scope(identity: Caller, scope: Scope, tool: Tool | None = None) -> None:
    """Raise `InvalidToken` if a token does not give this right, or not for this tool."""
    if not identity.may(scope):
        raise InvalidToken(
            f"the token {identity.name!r} does not have the scope {scope}",
            hint="Use a token that has it.",
            details={"scope": scope},
        )
    if tool is not None and not identity.covers(tool.name):
        raise InvalidToken(
            f"the token {identity.name!r} does not cover {tool.name}",
            hint="Use a token whose tools include it.",
            details={"tool": tool.name},
        )


def denial(decision: Decision, tool: Tool, caller: str) -> PolicyDenied:
    """Return the error for a call that the policy denies."""
    words = f"{shlex.quote(tool.name)} … --as {shlex.quote(caller)}"  # a client's name may contain anything
    return PolicyDenied(
        f"{tool.name} is not allowed here: {decision.why}",
        hint=f"To see which rule decides: toolcrib policy explain {words}",
        details={"rule": decision.rule.name if decision.rule is not None else None, "caller": caller},
    )


def _by_rule(rule: Rule, tool: Tool) -> Decision:
    why = f"the rule {rule.name!r} says {rule.effect}" + (f": {rule.reason}" if rule.reason else "")
    if not tool.approval.required or rule.effect == "deny":
        return Decision(rule.effect, rule, why)
    if rule.effect == "allow":  # no rule removes the approval that the tool itself requires
        return Decision("ask", None, _own_approval(tool))
    return Decision("ask", rule, f"{why}; {_own_approval(tool)}")


def _own_approval(tool: Tool) -> str:
    return f"the tool itself requires approval: {tool.approval.reason or 'no reason is given'}"


def _key(caller: str, identity: Caller | None) -> str | tuple[str, ...]:
    if identity is None:
        return caller
    # In a run that the token began, the caller is the agent or the workflow.
    token = f"token:{identity.name}"
    others = (name for name in (token, identity.client) if name and name != caller)
    return (caller, *others)


def _names(who: str | tuple[str, ...]) -> tuple[str, ...]:
    return (who,) if isinstance(who, str) else who


def _step(rule: Rule, tool: Tool, callers: tuple[str, ...], arguments: Mapping[str, Any] | None) -> RuleCheck:
    mismatch = rule.mismatch(tool, *callers)
    if mismatch is not None:
        return RuleCheck(rule, False, *mismatch)
    met = True if rule.when is None else rule.when.holds(arguments)
    if met or rule.when is None:
        return RuleCheck(rule, True)
    why = rule.when.misfit(arguments) if arguments is not None else "the arguments are not known"
    return RuleCheck(rule, met, "when", why)
