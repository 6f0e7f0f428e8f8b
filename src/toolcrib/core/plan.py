"""The plan of a call: the `exec` block with its arguments filled in, or the steps of a composite tool."""

from __future__ import annotations

import os
from typing import Any

from toolcrib.spec import Tool

_WITHOUT_FILE = ("http", "command", "file", "sql")
"""Kinds of tools that are stored without a manifest, such as records of bundles."""


def plan_of(tool: Tool, arguments: dict[str, Any]) -> dict[str, Any]:
    """Return the plan as JSON, with the names of secrets in place of their values. Only URLs are encoded."""
    from toolcrib.manifest import kind_of, reread
    from toolcrib.manifest.kinds import shown_secret
    from toolcrib.template import Values

    plan: dict[str, Any] = {"tool": tool.name, "kind": tool.kind, "arguments": arguments}
    document = reread(tool)
    if document is None and tool.kind not in _WITHOUT_FILE:
        return plan
    kind = kind_of(tool)
    block = kind.write(tool.config) if document is None else document.data["exec"][tool.kind]
    if kind.confined:
        names = (*tool.permissions.env, *(secret.name for secret in tool.permissions.secrets))
        plan["environment"] = sorted({*names, *(block.get("env") or {})})
        plan["cwd"] = block.get("cwd", ".")
    values = Values(
        arguments,
        secrets={secret.name: shown_secret(secret.name) for secret in tool.permissions.secrets},
        env={name: os.environ[name] for name in tool.permissions.env if name in os.environ},
        context={"version": str(tool.version), "name": tool.name, "slug": tool.name},
    )
    return plan | kind.plan(tool, block, values)
