"""Calls that wait for approval, as they are shown to the person who decides."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from toolcrib.cli.commands.decide.policy import rule_for
from toolcrib.cli.output import count, one_line

if TYPE_CHECKING:
    from toolcrib.project.control.approvals import ApprovalSheet

SCOPES = {
    "session": " for this session",
    "arguments": " always, for these arguments",
    "rule": " always, with any arguments, whenever this rule asks",
}
SHOWN = 4_000
"""Characters of a line that fit on a screen beside the others."""
_IN_LIST = 200
"""Characters of arguments in a list."""


def short_arguments(document: Mapping[str, Any]) -> str:
    """Return the arguments of an approval as a list shows them."""
    text = _compact(document["arguments"])
    return text if len(text) <= _IN_LIST else f"{text[:_IN_LIST]}…"


def cut(line: str) -> str:
    """Return a line that is only looked at, not decided about, with what is too long left out."""
    if len(line) <= SHOWN:
        return line
    return f"{line[:SHOWN]}\n  … and {len(line) - SHOWN:,} more characters; `approvals show --json` shows all"


def lines_of_approval(sheet: ApprovalSheet, facts: Mapping[str, Any], project: str) -> Iterator[str]:
    """Yield everything but the content. No text in it can add a line or control the terminal.

    `project` is the path of the project, or empty where that need not be said.
    """
    yield f"approval {sheet.document['id']}: {sheet.document['status']}"
    for name, text in (("project", project), *_parts(sheet, facts)):
        if text:
            yield f"  {name + ':':10} {one_line(text)}"


def _parts(sheet: ApprovalSheet, facts: Mapping[str, Any]) -> Iterator[tuple[str, str | None]]:
    from toolcrib.manifest.touches import may_touch

    document = sheet.document
    yield "tool", f"{document['tool']} of {document['bundle']}"
    if facts:
        last = facts["trusted"]
        trust = "nobody has trusted it" if last is None else f"last trusted by {last['by']} at {last['at']}"
        yield "it says", facts["description"]
        yield "made by", f"{facts['madeBy']}; {trust}"
        last_ran = "" if facts["lastRan"] is None else f", last at {facts['lastRan']}"
        yield "ran", f"{count(facts['ran'], 'time')}{last_ran}"
    yield "digest", document["toolDigest"]
    by = f" ({facts['reasonBy']} wrote this)" if facts.get("reasonBy") else ""
    yield "reason", f"{document['reason']}{by}"
    for doubt in facts.get("doubts", ()):
        yield "careful", f"the agent's reason {doubt}"
    yield "rule", document["rule"]
    yield "asked by", f"{_caller(document)} at {document['askedAt']}"
    for line in document["touches"] if sheet.tool is None else may_touch(sheet.tool):
        yield "may touch", line
    yield "expires", document["expiresAt"]
    if document["decidedBy"] is not None:
        scope = SCOPES.get(document["scope"] or "", "") if document["status"] != "denied" else ""
        yield "decided", f"by {document['decidedBy']} at {document['decidedAt']}{scope}"
        yield "note", document["note"]


def content_lines(sheet: ApprovalSheet, facts: Mapping[str, Any]) -> Iterator[str]:
    """Yield the arguments, those that would run instead, and what would run, each whole on one line."""
    yield f"  arguments: {_compact(sheet.document['arguments'])}"
    if sheet.document["edited"] is not None:
        yield f"  run with : {_compact(sheet.document['edited'])}"
    if facts.get("would"):
        yield f"  would run: {one_line(_command(facts['would']))}"


def _command(would: Any) -> str:
    """Return a command as a command line, and any other block as JSON."""
    if isinstance(would, dict) and isinstance(would.get("entrypoint"), str):
        words = [would["entrypoint"], *map(str, would.get("args") or ())]
        rest = {key: value for key, value in would.items() if key not in ("entrypoint", "args")}
        return shlex.join(words) + (f"  {_json(rest)}" if rest else "")
    return _json(would)


def narrower_rule(sheet: ApprovalSheet) -> dict[str, Any] | None:
    """Return the rule that a person can choose who is about to allow any arguments.

    None where no rule of the policy would do, and for arguments with a secret or in another form.
    """
    approval = sheet.approval
    arguments = approval.as_dict()["arguments"]
    if approval.rule != "policy.default" or not arguments or sheet.changed is not None:
        return None
    if arguments != sheet.document["arguments"]:
        return None
    return rule_for(approval.tool, approval.caller, arguments)


def narrower_choices(rule: Mapping[str, Any] | None) -> Iterator[str]:
    """Yield the keys that allow less than any arguments."""
    yield "This allows every later call by this caller, with any arguments. Narrower:"
    yield "  a  these arguments only"
    if rule is not None:
        yield f"  p  a rule over the arguments, written to policy.rules: {cut(_compact(rule))}"


def _caller(document: Mapping[str, Any]) -> str:
    parts = (("", "caller"), ("for ", "owner"), ("with the token ", "token"), ("in session ", "sessionId"))
    return " ".join(f"{word}{document[key]}" for word, key in parts if document[key])


def _compact(value: Any) -> str:
    return one_line(_json(value))


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)
