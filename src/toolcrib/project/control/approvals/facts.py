"""Facts about a call that waits, for whoever decides: what would run, who made the tool, how often it ran."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from toolcrib.core.bound import plan_of
from toolcrib.errors import ToolcribError
from toolcrib.guard import Approval, AuditQuery, AuditReader, doubts_about
from toolcrib.project.control.approvals.step import OWN
from toolcrib.project.control.first_use import FirstUse
from toolcrib.spec import Tool
from toolcrib.spec.moment import written

_MOST_RUNS = 1_000


def facts_about(
    approval: Approval, tool: Tool, arguments: Mapping[str, Any], first_use: FirstUse, log: Path
) -> dict[str, Any]:
    """Return as JSON, with secrets in it: `description`, `would`, `made_by`, `reviewed`, `ran`, `last_ran`,
    `reason_by` and `doubts` about a reason that an agent wrote.

    `would` is the command line, request or other block as it would run; None where that cannot be said.
    `ran` counts up to 1,000 calls in the audit log.
    """
    creator, last = first_use.creator(tool), first_use.reviews.last(tool)
    runs, last_ran = _runs(tool.name, log)
    own_words = creator is not None and approval.rule == OWN and approval.reason == tool.approval.reason
    return {
        "description": tool.description,
        "would": _would(tool, arguments),
        "made_by": _maker(tool, creator),
        "reviewed": None if last is None else {"by": last.by, "at": written(last.at)},
        "ran": runs,
        "last_ran": last_ran,
        "reason_by": f"the agent {creator}" if own_words else None,
        "doubts": doubts_about(approval.reason) if own_words else [],
    }


def _would(tool: Tool, arguments: Mapping[str, Any]) -> Any:
    try:
        return plan_of(tool, dict(arguments)).get("would")
    except ToolcribError:
        return None


def _maker(tool: Tool, creator: str | None) -> str:
    if creator is not None:
        return f"the agent {creator}"
    if tool.source is not None:
        return "a person, in the file " + tool.source.path
    return f"the MCP server {tool.bundle}" if tool.kind == "mcp" else "the program that serves it"


def _runs(name: str, log: Path) -> tuple[int, str | None]:
    """Return how often a tool ran, and when last; (0, None) if the log cannot be read."""
    try:
        with AuditReader(log) as reader:
            lines = reader.newest(AuditQuery(tool=name, event="TOOL_EXECUTED"), _MOST_RUNS)
    except (OSError, ToolcribError):
        return 0, None
    last = lines[-1].entry if lines else None
    return len(lines), None if last is None else written(last.time.timestamp())
