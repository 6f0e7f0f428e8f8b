"""The rules of a project's policy: pure data, and the tools and callers that each matches."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import field, replace
from typing import Any, Literal, get_args

from toolcrib.guard.policy.condition import Condition
from toolcrib.spec import Annotations, Tool
from toolcrib.spec.naming import fits
from toolcrib.spec.record import record

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
    """For calls that no rule matches."""
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
