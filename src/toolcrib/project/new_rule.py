"""A rule that a person adds to the policy in the settings, and its rehearsal on calls of the audit log."""

from __future__ import annotations

import copy
import json
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

from toolcrib.errors import ManifestError, NotTrusted, ToolcribError, UsageError
from toolcrib.guard import EFFECTS, AuditEntry, Policy, Rule
from toolcrib.guard.audit.search import AuditReader
from toolcrib.manifest import load
from toolcrib.project.config.settings import Config, config_of, is_accepted, load_config
from toolcrib.project.project import Project
from toolcrib.project.root import Place
from toolcrib.project.trust.trust import settings_rows
from toolcrib.spec import Tool
from toolcrib.spec.moment import written
from toolcrib.spec.record import record
from toolcrib.state import user_name
from toolcrib.state.private import read_inside, replace_file


@record
class NewRule:
    """A change of `config.yml` by one rule, as a person sees it before it is made."""

    rule: dict[str, Any]
    path: Path
    before: str | None
    """The text of the file; None without one."""
    text: str
    """The text with the rule."""
    then: Config
    """The settings without the rule."""

    @classmethod
    def of(cls, place: Place, rule: dict[str, Any]) -> NewRule:
        """Return the change that adds a rule to a project's settings.

        Raises UsageError for settings that a rule cannot be added to, and ConfigError for a wrong rule.
        """
        path = place.config
        before = read_inside(path, place.root)
        then = load_config(path, place.root)
        try:
            text = with_rule(before or "", rule)
        except (ValueError, AttributeError, TypeError):
            raise UsageError(
                f"{path} has another form, so nothing is added to it",
                hint=f"Add this to policy.rules yourself: {json.dumps(rule, ensure_ascii=False)}",
            ) from None
        config_of(text, path)
        return cls(rule, path, before, text, then)

    def add(self, project: Project, channel: str) -> bool:
        """Write the rule, as a person decided by this channel, and return True if it is in force here.

        Settings are trusted with it unless something in them waits for trust. Raises ConflictError if
        somebody has changed the file meanwhile, and NotTrusted if it was something else that starts.
        """
        trust, place, then = project.trust, project.place, self.then
        project.audit.record("POLICY_CHANGED", approver=user_name(), channel=channel, rule=self.rule)
        text = replace_file(self.path, self.before, self.text)
        now = load_config(self.path, place.root)
        # The settings of the project that is open have safe values in place of what waits.
        if not is_accepted(then.since(trust.ledger), trust.ledger):
            return False
        # What else is trusted with the settings must be as it was: only the rule was agreed to.
        same = (now.started, now.unconfined, now.servers) == (then.started, then.unconfined, then.servers)
        if not same or now.document is None or now.document.raw != text.encode():
            raise NotTrusted("the settings have changed meanwhile", hint="To see them: toolcrib trust")
        trust.accept(user_name(), more=settings_rows(now, place.home), channel=channel)
        project.use_rules(now.rules)
        return True


def with_rule(text: str, rule: dict[str, Any]) -> str:
    """Return the text of `config.yml` with a rule at the end of `policy.rules`.

    At the end, because decisions refer to rules without a name by their number. Raises ValueError for a text
    of another form, such as rules in brackets.
    """
    document = load(text.encode(), "config.yml")
    data = {} if document.data is None else copy.deepcopy(document.data)
    lines = text.splitlines()
    policy = data.setdefault("policy", {}) or {}
    data["policy"] = {**policy, "rules": [*(policy.get("rules") or ()), rule]}
    if "policy" not in (document.data or {}):
        at, indent, head = len(lines), 2, ["policy:", "  rules:"]
    elif not policy:
        at, indent, head = document.locate(("policy",), key=True)[0], 2, ["  rules:"]
    elif policy.get("rules"):
        line, _ = document.locate(("policy", "rules", len(policy["rules"]) - 1))
        indent = _indent(lines[line - 1])
        if not lines[line - 1].lstrip().startswith("-"):
            raise ValueError("the rules are not a list of lines")
        at, head = _end(lines, line, indent), []
    else:
        at, column = document.locate(("policy", next(iter(policy))), key=True)
        at, indent, head = at - 1, column - 1, [f"{' ' * (column - 1)}rules:"]
    # The text is changed and not written anew, so comments stay; read again, it must hold the same and the
    # rule.
    item = f"{' ' * (indent if not head else indent + 2)}- {json.dumps(rule, ensure_ascii=False)}"
    made = "\n".join([*lines[:at], *head, item, *lines[at:]]) + "\n"
    try:
        same = load(made.encode(), "config.yml").data == data
    except ManifestError:
        same = False
    if not same:
        raise ValueError("the rule cannot be added without changing something else")
    return made


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip(" "))


def _end(lines: list[str], line: int, indent: int) -> int:
    """Return the number of the last line of the item that begins at `line`."""
    last = line
    for number, text in enumerate(lines[line:], line + 1):
        if text.strip() and not text.lstrip().startswith("#"):
            if _indent(text) <= indent:
                break
            last = number
    return last


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
