"""Rehearsal of a rule of the policy on the calls that the audit log has."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

from toolcrib.errors import ToolcribError
from toolcrib.guard import EFFECTS, AuditEntry, Policy, Rule
from toolcrib.guard.audit.search import AuditReader
from toolcrib.project.config.settings import config_of
from toolcrib.project.project import Project
from toolcrib.spec import Tool
from toolcrib.spec.moment import written

_NAME = "the new rule"
_CALLS = ("TOOL_EXECUTED", "TOOL_REFUSED", "TOOL_REPLAYED", "TOOL_WAITS")


def rule_of(block: Mapping[str, Any]) -> Rule:
    """Return a rule of the form that it has in the settings. Raises ConfigError."""
    text = json.dumps({"policy": {"rules": [block]}})
    rule = config_of(text, Path("rule")).policy.rules[0]
    return rule if "name" in block else replace(rule, name=_NAME)


def rehearse(project: Project, rule: Rule, since: datetime) -> dict[str, Any]:
    """Decide again about the logged calls since a time, with and without a rule; return both as JSON.

    Identical calls that the rule matches are one entry with their number. Raises OSError.
    """
    rules = project.config.policy
    policy, changed = Policy(rules), Policy(replace(rules, rules=(*rules.rules, rule)))
    alone = Policy(replace(rules, rules=(rule,)))
    now, then, gone = Counter[str](), Counter[str](), 0
    matching: dict[str, dict[str, Any]] = {}
    tools: dict[str, Tool | None] = {}
    for entry in _calls(AuditReader(project.place.audit), since):
        name, caller = str(entry.fields.get("name")), str(entry.fields.get("caller"))
        tool = tools[name] if name in tools else tools.setdefault(name, _tool(project, name))
        if tool is None:
            gone += 1
            continue
        arguments = _arguments(entry)
        effects = [one.decide(tool, caller, arguments).effect for one in (policy, changed)]
        now[effects[0]] += 1
        then[effects[1]] += 1
        # None: the arguments decide, and the log does not have them.
        if alone.explain(tool, caller, arguments)[0].matched is False:
            continue
        call = {"tool": tool.name, "caller": caller, "arguments": arguments}
        call |= {"now": effects[0], "then": effects[1]}
        last = {"times": 0, "last": written(entry.time.timestamp())}
        matching.setdefault(json.dumps(call, sort_keys=True), call | last)["times"] += 1
    return {
        "since": written(since.timestamp()),
        "calls": now.total() + gone,
        "gone": gone,
        "now": {effect: now[effect] for effect in EFFECTS},
        "then": {effect: then[effect] for effect in EFFECTS},
        "matching": list(matching.values()),
    }


def _calls(reader: AuditReader, since: datetime) -> Iterator[AuditEntry]:
    """Yield the last line of each call, the newest first."""
    seen = set[Any]()
    for line in reader.back_to(since):
        entry = line.entry
        if entry is None or entry.event not in _CALLS:
            continue
        call = entry.fields.get("call")
        # A call that waited for a person has a line of that too.
        if entry.event == "TOOL_WAITS" and call in seen:
            continue
        if call is not None:
            seen.add(call)
        yield entry


def _tool(project: Project, name: str) -> Tool | None:
    try:
        return project.get(name)
    except ToolcribError:
        return None


def _arguments(entry: AuditEntry) -> dict[str, Any] | None:
    """Return the arguments of a call; None if the line has only the beginning of them."""
    params = entry.fields.get("params")
    return params if isinstance(params, dict) and "params" not in entry.fields.get("cut", ()) else None
