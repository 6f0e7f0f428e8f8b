"""The policy of a project: rules over tool, caller and arguments. deny beats ask, ask beats allow."""

from __future__ import annotations

import hashlib
import json
import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import field, replace
from itertools import groupby
from typing import TYPE_CHECKING, Any, Literal, get_args

from toolcrib.errors import InvalidToken, PolicyDenied
from toolcrib.spec import Annotations, Caller, Scope, Tool
from toolcrib.spec.naming import fits
from toolcrib.spec.record import record

if TYPE_CHECKING:
    from toolcrib.guard.policy.condition import AnyCondition, Condition

Effect = Literal["deny", "ask", "allow"]
EFFECTS: tuple[Effect, ...] = get_args(Effect)
"""The strongest first."""


@record
class Rule:
    """One rule. It matches a call if all of its conditions do; one that is None always does.

    Patterns are names with `*` and `?`; of several, one must match.
    """

    name: str
    """The name in the settings, or `#` and the number from 1."""
    effect: Effect
    tools: tuple[str, ...] | None = None
    bundles: tuple[str, ...] | None = None
    tags: tuple[str, ...] | None = None
    annotations: Mapping[str, bool] | None = None
    callers: tuple[str, ...] | None = None
    when: Condition | None = None
    reason: str = ""
    """Shown to the caller, and to the person who is asked."""

    @property
    def asks_as(self) -> str:
        """The name by which approvals count: a rule without one is another rule once it changes."""
        if not self.name.startswith("#"):
            return self.name
        own = json.dumps({**self.as_dict(), "name": ""}, sort_keys=True)
        return f"{self.name} {hashlib.sha256(own.encode()).hexdigest()[:12]}"

    def mismatch(self, tool: Tool, *callers: str) -> tuple[str, str] | None:
        """Return the condition that this tool and caller do not meet, and why; None if they meet all.

        `callers` are the names of one caller, such as its token's and its client's; one must match.
        """
        for name, misses in _CONDITIONS.items():
            if getattr(self, name) is not None and (why := misses(self, tool, callers)) is not None:
                return name, why
        return None

    def same_as(self, other: Rule) -> bool:
        """Return True if both decide the same about every call."""
        return replace(self, name="", reason="") == replace(other, name="", reason="")

    def as_dict(self) -> dict[str, Any]:
        """Return the rule as it is written in the settings."""
        block: dict[str, Any] = {"name": self.name, "effect": self.effect}
        for name in _CONDITIONS:
            value = getattr(self, name)
            if value is not None:
                block[name] = dict(value) if isinstance(value, Mapping) else list(value)
        if self.when is not None:
            block["when"] = dict(self.when.schema)
        if self.reason:
            block["reason"] = self.reason
        return block


@record
class Rules:
    """The `policy` block of a project's settings."""

    default: Effect = "allow"
    """The decision for calls that no rule matches."""
    rules: tuple[Rule, ...] = field(default=())
    self_approval: bool = False
    """True if a token may decide on the calls of its owner's agent."""


def _misses_caller(rule: Rule, callers: Sequence[str]) -> str | None:
    # A client that does not state its name is `mcp`; `mcp:*` matches it as well.
    unnamed = [f"{caller}:" for caller in callers if ":" not in caller]
    if unnamed and _none_fits(rule.callers or (), unnamed) is None:
        return None
    return _none_fits(rule.callers or (), callers)


def _misses_annotations(rule: Rule, tool: Tool) -> str | None:
    for name, wanted in (rule.annotations or {}).items():
        stated = getattr(tool.annotations, name)
        is_so = HINTS[name](tool.annotations) if stated is None else stated
        if is_so is not wanted:
            how = "" if stated is not None else ", because it is not stated"
            return f"{name} is {str(is_so).lower()}{how}"
    return None


def _none_fits(patterns: Iterable[str], names: Sequence[str]) -> str | None:
    if any(fits(pattern, name) for name in names for pattern in patterns):
        return None
    return f"{' or '.join(patterns)} does not match {', '.join(names) or 'nothing'}"


HINTS: Mapping[str, Callable[[Annotations], bool]] = {
    "read_only": lambda _: False,
    "destructive": lambda hints: hints.read_only is not True,
    "idempotent": lambda _: False,
    "open_world": lambda _: True,
}
"""The values of annotations that a tool does not state: those of MCP's ToolAnnotations, the worse ones."""

_CONDITIONS: Mapping[str, Callable[[Rule, Tool, Sequence[str]], str | None]] = {
    "tools": lambda rule, tool, _: _none_fits(rule.tools or (), (tool.name,)),
    "bundles": lambda rule, tool, _: _none_fits(rule.bundles or (), (tool.bundle,)),
    "tags": lambda rule, tool, _: _none_fits(rule.tags or (), tool.tags),
    "annotations": lambda rule, tool, _: _misses_annotations(rule, tool),
    "callers": lambda rule, _, callers: _misses_caller(rule, callers),
}


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


_Key = tuple[int, str] | tuple[int, str, str, str]
"""The id of a tool, the caller, and the name and the client of its token, if it has one."""
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
            if some.may_be_met(arguments):
                for rule, decision in rules:
                    met = rule.when.is_met(arguments) if rule.when is not None else True
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
        self._plans: dict[_Key, _CallerPolicy] = {}
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
        settled = self._plan_of(tool, caller, identity).settled
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
        callers = _names(caller, identity)
        return [_step(rule, tool, callers, arguments) for rule in self.rules.rules]

    def _plan_of(self, tool: Tool, caller: str, identity: Caller | None) -> _CallerPolicy:
        key: _Key = (id(tool), caller)
        if identity is not None:
            key = (*key, identity.name, identity.client)
        return self._plans.get(key) or self._plan(tool, key, _names(caller, identity))

    def _plan(self, tool: Tool, key: _Key, callers: tuple[str, ...]) -> _CallerPolicy:
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
            self._plans[key] = plan
        return plan

    def _some(self, rules: _OpenRules) -> AnyCondition:
        key = tuple(id(rule) for rule, _ in rules)
        found = self._any.get(key)
        if found is None:
            from toolcrib.guard.policy.condition import AnyCondition

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


def _names(caller: str, identity: Caller | None) -> tuple[str, ...]:
    if identity is None:
        return (caller,)
    # In a run that the token began, the caller is the agent or the workflow.
    tokens = dict.fromkeys(f"token:{name}" for name in (identity.name, identity.given_name))
    others = (name for name in (*tokens, identity.client) if name and name != caller)
    return (caller, *others)


def _step(rule: Rule, tool: Tool, callers: tuple[str, ...], arguments: Mapping[str, Any] | None) -> RuleCheck:
    mismatch = rule.mismatch(tool, *callers)
    if mismatch is not None:
        return RuleCheck(rule, False, *mismatch)
    met = True if rule.when is None else rule.when.is_met(arguments)
    if met or rule.when is None:
        return RuleCheck(rule, True)
    why = rule.when.misfit(arguments) if arguments is not None else "the arguments are not known"
    return RuleCheck(rule, met, "when", why)
