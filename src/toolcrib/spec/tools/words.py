"""Permissions in words, for a person who is asked to approve them."""

from __future__ import annotations

from toolcrib.spec.tools.kinds import CommandExec, CompositeExec, HttpExec
from toolcrib.spec.tools.tool import Tool

HINT_ASKED = "A person has been asked. Once they have approved it, make the same call again."
"""For callers that may be models: it never says how to approve."""


def may_touch(tool: Tool) -> list[str]:
    """List in words what a call of this tool may touch, one line each."""
    permissions = tool.permissions
    lines = [_network(tool)]
    lines += [f"read {path}" for path in permissions.read]
    lines += [f"write {path}" for path in permissions.write]
    lines += [f"secret {secret.name}" for secret in permissions.secrets]
    lines += [f"environment variable {name}" for name in permissions.env]
    if isinstance(tool.config, CommandExec) and tool.config.allow_code:
        lines.append("code: values of a call may be run as code")
    if isinstance(tool.config, CompositeExec):
        names = ", ".join(dict.fromkeys(step.tool for step in tool.config.steps))
        lines.append(f"everything that the tools it calls may touch: {names}")
    if tool.kind in ("function", "builtin") and not tool.is_builtin:
        lines.append("run inside this process, not confined")
    return [line for line in lines if line] or ["nothing of this machine"]


def _network(tool: Tool) -> str:
    network = tool.permissions.network
    if network.mode == "none":
        return ""
    if network.mode == "hosts":
        return f"network: {', '.join(network.allow)}"
    if network.mode == "host":
        return "network: this machine's whole network"
    if isinstance(tool.config, HttpExec):
        return f"network: the host of {tool.config.url}"
    return "network: any public host"
