"""Values of settings that weaken a guard, name a source of secrets or start a process, in words.

Each function takes a value as it is written, after it was read without errors. It returns what the value
allows, or None if that is no more than the default allows.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from typing import Any

from toolcrib.guard import EFFECTS, Rule, Rules
from toolcrib.project.config.policy import DEFAULT_TTL_HOURS
from toolcrib.spec.record import record
from toolcrib.state import IN_FILE

OWN_CHANNELS = ("cli", "page")
"""Channels of approval by default."""
DEFAULT_TIMEOUT_MS = 300_000
DEFAULT_ATTEMPTS = 2


@record
class Weakening:
    """One setting that waits for trust."""

    name: str
    """The setting, such as `sandbox.minimum`."""
    allows: str
    """Its effect if it were trusted, in words."""

    @property
    def key(self) -> tuple[str, ...]:
        """The keys down to it."""
        return (self.name,) if self.name.startswith(".") else tuple(self.name.split("."))


def channels(value: Sequence[str]) -> str | None:
    if "elicitation" not in value:
        return None
    return "a person is asked through the calling client, which could answer by itself"


def people(value: Mapping[str, Sequence[str]]) -> str | None:
    named = "; ".join(f"{name} ({', '.join(accounts)})" for name, accounts in value.items())
    return f"these people approve calls from their chats: {named}" if named else None


def database(value: str) -> str | None:
    if value == IN_FILE:
        return None
    return f"waiting calls with their arguments, rates and recorded results are kept on {value}"


def ttl_hours(value: float) -> str | None:
    return f"calls may wait for approval for {value:g} hours" if value > DEFAULT_TTL_HOURS else None


def attempts(value: int) -> str | None:
    return f"a failing call may run {value} times" if value > DEFAULT_ATTEMPTS else None


def timeout_ms(value: int) -> str | None:
    return f"an attempt may take {value / 1000:g} seconds" if value > DEFAULT_TIMEOUT_MS else None


def mcp_servers(value: Any) -> str | None:
    if not value:
        return None
    named = value.items() if isinstance(value, Mapping) else ()
    shown = "; ".join(_names([name, one]) for name, one in named)
    # The socket of a daemon, such as docker's.
    free = [
        n for n, one in named if isinstance(one, Mapping) and ".sock" in json.dumps(one.get("permissions"))
    ]
    control = f"; {_names(free)}: this gives control of the machine" if free else ""
    return f"these MCP servers are started or called: {shown or _names([value])}{control}"


def unconfined(programs: Mapping[str, str]) -> list[Weakening]:
    """Return what is allowed by starting these programs, by the name of their setting."""
    return [
        Weakening(name, f"{_names([path])} runs unconfined: this gives control of the machine")
        for name, path in programs.items()
    ]


def acts(one: Any) -> bool:
    """Return True for an entry of `middleware` that does more than limit, mask or observe."""
    use = one.get("use") if isinstance(one, Mapping) else one
    # The harmless ones are listed, so whatever is added later waits for trust by itself.
    return use not in ("logging", "rate_limit", "redaction", "timeout", "tracing")


def middleware(value: Sequence[Any]) -> str | None:
    found = [one.get("use") if isinstance(one, Mapping) else one for one in value if acts(one)]
    code = [str(one) for one in found if ".py" in str(one)]
    parts = [f"in this process, with all of your own rights, runs: {_names(code)}"] if code else []
    parts += ["answers of read-only tools are given again"] if "cache" in found else []
    parts += ["failing calls of repeatable tools run again"] if "retry" in found else []
    return "; ".join(parts) or None


def policy(before: Rules, now: Rules) -> list[Weakening]:
    """Return what calls may do that the rules refused, or asked about, `before`."""
    gone = [f"{one.effect} {one.name}" for one in lost(before, now)]
    found = [Weakening("policy.rules", f"rules that you accepted are gone: {_names(gone)}")] if gone else []
    free = [one.name for one in now.rules if one.effect == "allow" and not _has(before, one)]
    # With the default `allow` such a rule adds nothing: `deny` and `ask` are stronger than it.
    if before.default != "allow" and free:
        found.append(Weakening("policy.rules", f"more calls are allowed by the rules {_names(free)}"))
    if EFFECTS.index(now.default) > EFFECTS.index(before.default):
        text = f"calls that no rule matches: {now.default} instead of {before.default}"
        found.append(Weakening("policy.default", text))
    return found


def lost(before: Rules, now: Rules) -> list[Rule]:
    """Return the rules of `before` that refuse or ask, and that `now` does not have."""
    return [one for one in before.rules if one.effect != "allow" and not _has(now, one)]


def _has(rules: Rules, one: Rule) -> bool:
    return any(one.same_as(other) for other in rules.rules)


def self_approval(value: bool) -> str | None:
    return (
        "the owner of an agent's token may approve its calls with another of their tokens" if value else None
    )


def providers(value: Mapping[str, Mapping[str, Any]]) -> str | None:
    if not value:
        return None
    shown = [f"{name} at {one['base_url']} with the secret {one.get('key')}" for name, one in value.items()]
    return f"prompts and results of tools are sent to these model providers: {_names(shown)}"


def sandbox(value: str) -> str | None:
    if value == "full":
        return None
    confined = "no confinement at all" if value == "none" else f"the confinement of level {value}"
    return f"tools run with {confined} where the kernel supports no more"


def secret_sources(value: Sequence[Mapping[str, Any]]) -> str | None:
    if all(list(source) == ["env"] for source in value):
        return None
    free = [one["command"] for one in value if (one.get("command") or {}).get("confined") is False]
    shown = f"; with all of your own rights runs: {_names([one['argv'] for one in free])}" if free else ""
    return f"secrets are read from: {_names(value)}{shown}"


def max_permissions(value: Mapping[str, Any]) -> str | None:
    parts = []
    if (network := value.get("network") or False) is not False:
        parts.append(f"network {'any host' if network is True else json.dumps(network)}")
    files = value.get("fs") or {}
    parts += [f"{access} {_names(files[access])}" for access in ("read", "write") if files.get(access)]
    if value.get("secrets"):
        parts.append(f"secrets {_names(value['secrets'])}")
    if value.get("env"):
        parts.append(f"environment variables {_names(value['env'])}")
    return f"tools that agents make may have: {'; '.join(parts)}" if parts else None


def leads_out(source: Mapping[str, Any]) -> bool:
    """Return True for an entry of `sources` outside of the project."""
    # As it is written; a link that leads out is refused when the source is read (`load_source`).
    path = os.path.normpath(source.get("dir") or source["file"])
    return os.path.isabs(path) or path == os.pardir or path.startswith(os.pardir + os.sep)


def outside_sources(value: Sequence[Mapping[str, Any]]) -> str | None:
    outside = [source.get("dir") or source["file"] for source in value if leads_out(source)]
    return f"tools come from outside of the project: {_names(outside)}" if outside else None


def _names(value: Sequence[Any]) -> str:
    """Return the items in full, and so that none can pass for another line of output."""
    return ", ".join(
        item if isinstance(item, str) and item.isprintable() else json.dumps(item) for item in value
    )
