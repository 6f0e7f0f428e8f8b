"""The decision of a project's policy about a call, explained."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from toolcrib.errors import InvalidInput, InvalidToken
from toolcrib.guard import Policy, require_scope
from toolcrib.schema import ArgumentCheck
from toolcrib.spec import Caller, Tool

if TYPE_CHECKING:
    from toolcrib.project.project import Project


def explain_call(
    project: Project, tool: Tool, arguments: Mapping[str, Any], caller: str, identity: Caller | None
) -> dict[str, Any]:
    """Return the decision about a call as JSON, with the rules that were looked at. Nothing runs.

    If the tool needs arguments and none are given, the decision is the strictest one that any arguments could
    lead to, and `arguments` is null. Raises InvalidInput for arguments that do not match.
    """
    given = _checked(tool, arguments)
    policy = Policy(project.config.policy)
    decision = policy.decide(tool, caller, given, identity)
    refused = _refused_by_token(identity, tool)
    return {
        "tool": tool.name,
        "bundle": tool.bundle,
        "caller": caller,
        "arguments": given,
        "effect": "deny" if refused is not None else decision.effect,
        "rule": decision.rule.name if decision.rule is not None and refused is None else None,
        "why": refused or decision.why,
        "listed": policy.visible(tool, caller, identity),
        "steps": [
            {
                "rule": step.rule.name,
                "effect": step.rule.effect,
                "matched": step.matched,
                "condition": step.condition,
                "why": step.why,
            }
            for step in policy.explain(tool, caller, given, identity)
        ],
    }


def _checked(tool: Tool, arguments: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the arguments with their defaults; None if none are given but some are required."""
    try:
        return ArgumentCheck(tool.input_schema).check(arguments)
    except InvalidInput:
        if arguments:
            raise
        return None


def _refused_by_token(identity: Caller | None, tool: Tool) -> str | None:
    if identity is None:
        return None
    try:
        require_scope(identity, "invoke", tool)
    except InvalidToken as error:
        return error.message
    return None
