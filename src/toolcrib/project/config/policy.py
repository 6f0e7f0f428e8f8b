"""The settings that decide: `policy`, `approvals`, `review`."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from toolcrib.errors import DefinitionError, DeniedError
from toolcrib.guard import DEFAULT_TTL_HOURS, EFFECTS, HINTS, Condition, Rule, Rules
from toolcrib.project.config.reader import Path, Reader

__all__ = ["CHANNELS", "Approvals", "Review", "check_channel", "read_approvals", "read_policy", "read_review"]

CHANNELS = ("cli", "elicitation", "page")
"""The ways by which a person may agree to a call."""
Review = Literal["ask", "off"]
_MOST_RULES = 1_000
_MOST_PATTERNS = 100
_LONGEST_PATTERN = 256
_LONGEST_REASON = 500
_LONGEST_NAME = 64
_LONGEST_WAIT_H = 24 * 366
_PATTERNS = ("tools", "bundles", "tags", "callers")
_RULE = ("name", "effect", *_PATTERNS, "annotations", "when", "reason")


@dataclass(frozen=True, slots=True)
class Approvals:
    """The `approvals` block."""

    channels: tuple[str, ...] = ("cli", "page")
    """`elicitation` asks through the caller's own client, which could answer by itself."""
    ttl_hours: float = DEFAULT_TTL_HOURS
    """How long a call waits for a person."""


def read_policy(reader: Reader, value: Any) -> dict[str, Any]:
    """The `policy` block; rules in the order they are written."""
    block = reader.mapping(value, ("policy",), ("default", "self_approval", "rules"))
    at: Path = ("policy", "rules")
    rules: dict[str, Rule] = {}
    written = block.get("rules")
    for number, item in enumerate(reader.items([] if written is None else written, at, _MOST_RULES)):
        rule = _rule(reader, item, (*at, number), number)
        if rules.setdefault(rule.name, rule) is not rule:
            raise reader.misfit((*at, number, "name"), "is the name of another rule as well")
    return {
        "policy": Rules(
            reader.choice(block.get("default", "allow"), ("policy", "default"), EFFECTS),
            tuple(rules.values()),
            reader.truth(block.get("self_approval", False), ("policy", "self_approval")),
        )
    }


def _rule(reader: Reader, value: Any, at: Path, number: int) -> Rule:
    if not isinstance(value, dict):
        raise reader.misfit(at, "must be a mapping", f"known here: {', '.join(_RULE)}", "wrong-type")
    block = reader.mapping(value, at, _RULE)
    if "effect" not in block:
        raise reader.misfit(at, "has no `effect`", f"write effect: {', '.join(EFFECTS)}", "missing-key")
    return Rule(
        name=_name(reader, block, at, number),
        effect=reader.choice(block["effect"], (*at, "effect"), EFFECTS),
        annotations=_annotations(reader, block, at),
        when=_condition(reader, block, at),
        reason=reader.line(block["reason"], (*at, "reason"), _LONGEST_REASON) if "reason" in block else "",
        **{key: _patterns(reader, block[key], (*at, key)) for key in _PATTERNS if key in block},
    )


def _name(reader: Reader, block: Mapping[str, Any], at: Path, number: int) -> str:
    if "name" not in block:
        return f"#{number + 1}"
    name = reader.line(block["name"], (*at, "name"), _LONGEST_NAME)
    if name.startswith("#"):
        raise reader.misfit((*at, "name"), "begins with `#`, as the numbers of rules without a name do")
    return name


def _patterns(reader: Reader, value: Any, at: Path) -> tuple[str, ...]:
    texts = reader.items(value, at, _MOST_PATTERNS)
    if not texts:
        raise reader.misfit(at, "is empty, so the rule would never hold", "leave it out, and it holds always")
    return tuple(reader.line(text, (*at, number), _LONGEST_PATTERN) for number, text in enumerate(texts))


def _annotations(reader: Reader, block: Mapping[str, Any], at: Path) -> Mapping[str, bool] | None:
    if "annotations" not in block:
        return None
    here = (*at, "annotations")
    wanted = reader.mapping(block["annotations"], here, tuple(HINTS))
    if not wanted:
        raise reader.misfit(here, "is empty", f"known here: {', '.join(HINTS)}")
    return {name: reader.truth(value, (*here, name)) for name, value in wanted.items()}


def _condition(reader: Reader, block: Mapping[str, Any], at: Path) -> Condition | None:
    if "when" not in block:
        return None
    here = (*at, "when")
    try:
        return Condition(block["when"])
    except DefinitionError as error:
        place = (*here, *error.details.get("at", ()))
        raise reader.misfit(place, f"cannot be checked: {error.message}") from None


def check_channel(channel: str, taken: Collection[str]) -> None:
    """Raise `DeniedError` where the project takes no yes by this channel."""
    if channel not in taken:
        told = ", ".join(taken) or "none"
        raise DeniedError(
            f"this project takes no approval by {channel!r}; its approvals.channels: {told}",
            hint="Decide by one of these, or change approvals.channels in the project's settings.",
        )


def read_approvals(reader: Reader, value: Any) -> dict[str, Any]:
    """The `approvals` block."""
    block = reader.mapping(value, ("approvals",), ("channels", "ttl_hours"))
    found: dict[str, Any] = {}
    if "channels" in block:
        at: Path = ("approvals", "channels")
        items = reader.items(block["channels"], at, len(CHANNELS))
        named = [reader.choice(item, (*at, number), CHANNELS) for number, item in enumerate(items)]
        found["channels"] = tuple(dict.fromkeys(named))
    if "ttl_hours" in block:
        found["ttl_hours"] = float(
            reader.number(block["ttl_hours"], ("approvals", "ttl_hours"), 0.01, _LONGEST_WAIT_H, whole=False)
        )
    return {"approvals": Approvals(**found)}


def read_review(reader: Reader, value: Any) -> dict[str, Any]:
    """`review`, `ask` or `off`."""
    return {} if value is None else {"review": reader.choice(value, ("review",), ("ask", "off"))}
