"""Who may call what: the rules of a project over tool, caller and arguments. deny beats ask beats allow."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from toolcrib.errors import InvalidToken, PolicyDenied
from toolcrib.guard.policy.condition import AnyCondition
from toolcrib.guard.policy.rules import EFFECTS, Effect, Rule, Rules
from toolcrib.spec import Caller, Scope, Tool

__all__ = ["Decision", "Policy", "Step", "require_scope"]

_MOST_PLANS = 10_000
_LONGEST_CALLER = 200
"""Callers name themselves, so what is kept for each is bounded, in number and in size."""
_STRENGTH = {effect: number for number, effect in enumerate(reversed(EFFECTS))}


@dataclass(frozen=True, slots=True)
class Decision:
    """What the policy says of a call."""

    effect: Effect
    rule: Rule | None
    """The rule that decides; None for the default, and for the tool's own approval."""
    why: str
    """In words: the rule and its reason."""


@dataclass(frozen=True, slots=True)
class Step:
    """How one rule was looked at."""

    rule: Rule
    matched: bool | None
    """None where the arguments decide, and are not known."""
    condition: str | None = None
    """The key of the one that does not hold, or is not known."""
    why: str = ""
    """What is not so."""


_Open = list[tuple[Rule, Decision]]
"""Rules of one effect whose conditions are to be looked at, and what each decides."""


class _Plan:
    """What is known of one tool and one caller before the arguments are."""

    __slots__ = ("fallback", "open", "settled", "tool")

    def __init__(self, tool: Tool, fallback: Decision, still_open: list[tuple[AnyCondition, _Open]]) -> None:
        self.tool = tool  # kept, so that no other one gets its id
        self.fallback = fallback
        self.open = still_open
        self.settled = None if still_open else fallback

    def weigh(self, arguments: Mapping[str, Any] | None) -> Decision:
        for some, rules in self.open:
            if some.may_hold(arguments):
                for rule, decision in rules:
                    held = rule.when.holds(arguments) if rule.when is not None else True
                    if held:
                        return decision
                    if held is None:  # later rules are no stronger, so one of these two is the worst
                        return max(decision, self.fallback, key=_strength)
        return self.fallback


class Policy:
    """A project's rules, ready to decide. Safe for threads.

    It goes by the tool itself, never by the name that a caller sent for it.
    """

    def __init__(self, rules: Rules | None = None) -> None:
        self.rules = rules or Rules()
        self._plans: dict[tuple[int, str], _Plan] = {}
        self._any: dict[tuple[int, ...], AnyCondition] = {}

    @classmethod
    def of(cls, rules: Rules) -> Policy | None:
        """The policy of these rules; None where they decide nothing."""
        return None if not rules.rules and rules.default == "allow" else cls(rules)

    def decide(self, tool: Tool, caller: str, arguments: Mapping[str, Any] | None) -> Decision:
        """The decision on one call. `arguments` are those that will run: checked, with defaults filled in.

        Where they are None, not known, it is the strongest that any arguments could lead to.
        """
        plan = self._plans.get((id(tool), caller)) or self._plan(tool, caller)
        return plan.settled or plan.weigh(arguments)

    def before(self, tool: Tool, caller: str) -> Decision | None:
        """The decision where it is the same whatever the arguments; else None."""
        return (self._plans.get((id(tool), caller)) or self._plan(tool, caller)).settled

    def visible(self, tool: Tool, caller: str, identity: Caller | None = None) -> bool:
        """Whether the tool is listed: not denied whatever the arguments, nor beyond the caller's token."""
        if identity is not None and not (identity.may("read") and identity.covers(tool.name)):
            return False
        settled = self.before(tool, caller)
        return settled is None or settled.effect != "deny"

    def admit(self, tool: Tool, caller: str, identity: Caller | None = None) -> Decision | None:
        """The first look at a call, before its arguments are checked; what `before` gives.

        Raises `InvalidToken` for what the caller's token does not allow, `PolicyDenied` for what is denied
        whatever the arguments.
        """
        if identity is not None:
            require_scope(identity, "invoke", tool)
        settled = self.before(tool, caller)
        if settled is not None and settled.effect == "deny":
            raise denial(settled, tool, caller)
        return settled

    def judge(self, tool: Tool, caller: str, arguments: Mapping[str, Any]) -> Decision:
        """The last word on a call: `allow` or `ask`. Raises `PolicyDenied` for `deny`."""
        decision = self.decide(tool, caller, arguments)
        if decision.effect == "deny":
            raise denial(decision, tool, caller)
        return decision

    def explain(self, tool: Tool, caller: str, arguments: Mapping[str, Any] | None) -> list[Step]:
        """How each rule was looked at, in their order."""
        return [_step(rule, tool, caller, arguments) for rule in self.rules.rules]

    def _plan(self, tool: Tool, caller: str) -> _Plan:
        speaking = [rule for rule in self.rules.rules if rule.silent(tool, caller) is None]
        speaking.sort(key=lambda rule: -_STRENGTH[rule.effect])  # stable: of equal ones the first
        certain = next((rule for rule in speaking if rule.when is None), None)
        fallback = self._default(tool) if certain is None else _by_rule(certain, tool)
        still_open = [(rule, _by_rule(rule, tool)) for rule in speaking if rule.when is not None]
        if certain is not None:
            still_open = [one for one in still_open if _STRENGTH[one[1].effect] > _STRENGTH[fallback.effect]]
        while still_open and still_open[-1][1].effect == fallback.effect:  # nothing hangs on the last one
            still_open.pop()
        if len(self._plans) >= _MOST_PLANS:
            self._plans.clear()
            self._any.clear()
        groups = [(self._some(rules), rules) for _, rules in _by_effect(still_open)]
        plan = _Plan(tool, fallback, groups)
        if len(caller) <= _LONGEST_CALLER:
            self._plans[id(tool), caller] = plan
        return plan

    def _some(self, rules: _Open) -> AnyCondition:
        key = tuple(id(rule) for rule, _ in rules)
        found = self._any.get(key)
        if found is None:
            found = self._any[key] = AnyCondition([rule.when for rule, _ in rules if rule.when is not None])
        return found

    def _default(self, tool: Tool) -> Decision:
        default = self.rules.default
        if tool.approval.required and default != "deny":
            return Decision("ask", None, _own_approval(tool))
        return Decision(default, None, f"no rule speaks of this call, and the default is {default}")


def require_scope(identity: Caller, scope: Scope, tool: Tool | None = None) -> None:
    """Raise `InvalidToken` where a token does not give this right, or not for this tool."""
    if not identity.may(scope):
        raise InvalidToken(
            f"the token {identity.name!r} does not have the scope {scope}",
            hint="Use a token that has it; `toolcrib token create` makes one.",
            details={"scope": scope},
        )
    if tool is not None and not identity.covers(tool.name):
        raise InvalidToken(
            f"the token {identity.name!r} does not cover {tool.name}",
            hint="Use a token whose tools include it.",
            details={"tool": tool.name},
        )


def denial(decision: Decision, tool: Tool, caller: str) -> PolicyDenied:
    """The refusal of a call that was decided to be denied."""
    words = f"{shlex.quote(tool.name)} … --as {shlex.quote(caller)}"  # a client's name may hold anything
    return PolicyDenied(
        f"{tool.name} is not allowed here: {decision.why}",
        hint=f"To see which rule decides: toolcrib policy explain {words}",
        details={"rule": decision.rule.name if decision.rule is not None else None, "caller": caller},
    )


def _strength(decision: Decision) -> int:
    return _STRENGTH[decision.effect]


def _by_effect(rules: _Open) -> list[tuple[Effect, _Open]]:
    return [(effect, list(group)) for effect, group in groupby(rules, lambda one: one[0].effect)]


def _by_rule(rule: Rule, tool: Tool) -> Decision:
    told = f"the rule {rule.name!r} says {rule.effect}" + (f": {rule.reason}" if rule.reason else "")
    if not tool.approval.required or rule.effect == "deny":
        return Decision(rule.effect, rule, told)
    if rule.effect == "allow":  # no rule takes back what the tool itself asks for
        return Decision("ask", None, _own_approval(tool))
    return Decision("ask", rule, f"{told}; {_own_approval(tool)}")


def _own_approval(tool: Tool) -> str:
    return f"the tool itself asks: {tool.approval.reason or 'no reason is given'}"


def _step(rule: Rule, tool: Tool, caller: str, arguments: Mapping[str, Any] | None) -> Step:
    silent = rule.silent(tool, caller)
    if silent is not None:
        return Step(rule, False, *silent)
    held = True if rule.when is None else rule.when.holds(arguments)
    if held or rule.when is None:
        return Step(rule, True)
    why = rule.when.misfit(arguments) if arguments is not None else "the arguments are not known"
    return Step(rule, held, "when", why)
