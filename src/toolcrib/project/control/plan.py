"""The plan of a call: the `exec` block with its arguments filled in, or the steps of a composite tool."""

from __future__ import annotations

import os
from typing import Any

from toolcrib.manifest import kind_of, reread
from toolcrib.manifest.kinds import shown_secret
from toolcrib.spec import Tool
from toolcrib.template import Values

__all__ = ["plan_of"]


def plan_of(tool: Tool, arguments: dict[str, Any]) -> dict[str, Any]:
    """Return the plan as JSON, with the names of secrets in place of their values. Only URLs are encoded."""
    plan: dict[str, Any] = {"tool": tool.name, "kind": tool.kind, "arguments": arguments}
    document = reread(tool)
    if document is None:
        return plan
    values = Values(
        arguments,
        secrets={secret.name: shown_secret(secret.name) for secret in tool.permissions.secrets},
        env={name: os.environ[name] for name in tool.permissions.env if name in os.environ},
        context={"version": str(tool.version), "name": tool.name, "slug": tool.name},
    )
    return plan | kind_of(tool).plan(tool, document.data["exec"][tool.kind], values)
