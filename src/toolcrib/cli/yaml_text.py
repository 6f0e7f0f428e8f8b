"""One more rule in a project's settings, and the text of them: everything else stays as it is written."""

from __future__ import annotations

import copy
import json
from typing import Any

from toolcrib.errors import ManifestError


def rule_for(tool: str, caller: str, arguments: dict[str, Any]) -> dict[str, Any]:
    """Return the rule that allows a caller's calls of a tool with these arguments."""
    return {"effect": "allow", "tools": [tool], "callers": [caller], "when": when_of(arguments)}


def when_of(arguments: dict[str, Any]) -> dict[str, Any]:
    """Return the condition that a call has these arguments, and maybe more."""
    constants = {name: {"const": value} for name, value in arguments.items()}
    return {"properties": constants, "required": list(arguments)}


def with_rule(text: str, rule: dict[str, Any]) -> str:
    """Return the text of `config.yml` with a rule at the end of `policy.rules`.

    At the end, because decisions refer to rules without a name by their number. Raises ValueError for a text
    of another form, such as rules in brackets.
    """
    from toolcrib.manifest import load

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
