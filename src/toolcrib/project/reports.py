"""Reports about a project and its machine, the same on the command line and over HTTP."""

from __future__ import annotations

import platform
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from toolcrib import __version__
from toolcrib.errors import InvalidInput, InvalidToken
from toolcrib.guard import Policy, SecretStatus, look_up, require_scope
from toolcrib.manifest.touches import hosts
from toolcrib.project.config.settings import is_trusted
from toolcrib.project.project import Project
from toolcrib.sandbox import level, probe
from toolcrib.schema import ArgumentCheck
from toolcrib.spec import Caller, SecretSource, Tool
from toolcrib.state import load_user_settings


def explain_call(
    project: Project, tool: Tool, arguments: Mapping[str, Any], caller: str, identity: Caller | None
) -> dict[str, Any]:
    """Return the decision about a call as JSON, with the rules that were looked at. Nothing runs.

    If the tool needs arguments and none are given, the decision is the strictest one that any arguments could
    lead to, and `arguments` is null. Raises InvalidInput for arguments that do not match.
    """
    given, refused = _checked(tool, arguments), None
    policy = Policy(project.config.policy)
    decision = policy.decide(tool, caller, given, identity)
    try:
        if identity is not None:
            require_scope(identity, "invoke", tool)
    except InvalidToken as error:
        refused = error.message
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
            {"rule": one.rule.name, "effect": one.rule.effect}
            | {"matched": one.matched, "condition": one.condition, "why": one.why}
            for one in policy.explain(tool, caller, given, identity)
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


def describe_machine() -> dict[str, Any]:
    """Try each mechanism and return the report as JSON. The first time may take 0.5 s."""
    mechanisms, report = probe(), level()
    return {
        "toolcrib": __version__,
        "python": platform.python_version(),
        "kernel": platform.release(),
        "level": report["level"],
        "enforcement": dict(report),
        "decideWithoutTerminal": [
            {"what": list(one.what), "where": list(one.where)}
            for one in load_user_settings().decide_without_terminal
        ],
        "mechanisms": [
            {"name": m.name, "ok": m.ok, "required": m.required, "detail": m.detail, "cost": m.cost}
            for m in mechanisms
        ],
    }


@dataclass(slots=True)
class SecretNeed:
    """One secret, and the tools that declare it."""

    name: str
    status: SecretStatus
    tools: list[Tool] = field(default_factory=list)
    required_by: list[str] = field(default_factory=list)

    @property
    def hosts(self) -> list[str]:
        """The hosts that HTTP tools may send it to."""
        return sorted({host for tool in self.tools for host in hosts(tool)})

    @property
    def blocks(self) -> bool:
        """True if a tool cannot run without it."""
        state = self.status.state
        return state == "unreadable" or (state == "missing" and bool(self.required_by))

    def as_dict(self) -> dict[str, Any]:
        """Return the entry of `--json`."""
        return {
            "name": self.name,
            **{name: None if value == "" else value for name, value in self.status._asdict().items()},
            "tools": [{"name": t.name, "required": t.name in self.required_by} for t in self.tools],
            "hosts": self.hosts,
        }


def secret_needs(tools: Iterable[Tool], source: SecretSource) -> list[SecretNeed]:
    """Return every secret that these tools declare, by name. A source may take its time to answer."""
    found: dict[str, SecretNeed] = {}
    for tool in tools:
        for secret in tool.permissions.secrets:
            if secret.name not in found:
                found[secret.name] = SecretNeed(secret.name, look_up(source, secret.name))
            need = found[secret.name]
            need.tools.append(tool)
            if secret.required:
                need.required_by.append(tool.name)
    return [found[name] for name in sorted(found)]


def waiting_in(project: Project) -> list[str]:
    """Return what waits for trust: `settings`, and names of tools, agents and workflows."""
    settings = not project.trust.given or (
        bool(project.waiting) and not is_trusted(project.config.digest, project.trust.ledger)
    )
    return [*(["settings"] if settings else []), *(tool.name for tool in project.trust.waiting())]
