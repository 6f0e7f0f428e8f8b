"""Commands as the tools of a SkillPack's sidecar."""

from __future__ import annotations

from typing import Any

from toolcrib.errors import ManifestError
from toolcrib.spec import CommandExec, Tool

__all__ = ["pack_of"]


def pack_of(tool: Tool) -> dict[str, Any]:
    """A SkillPack whose sidecar has this one command; which image holds the program is not known."""
    from toolcrib.template import literal_text

    config = tool.config
    if not isinstance(config, CommandExec):
        raise ManifestError(f"{tool.name} is of kind {tool.kind}; the tools of a sidecar are commands only")
    entry: dict[str, Any] = {
        "name": tool.name,
        "description": tool.description,
        "parameters": tool.input_schema,
        "command": [config.entrypoint, *config.args],
    }
    if config.cwd != ".":
        entry["workdir"] = config.cwd
    if config.timeout_ms:
        seconds, rest = divmod(config.timeout_ms, 1000)
        entry["timeout"] = f"{config.timeout_ms}ms" if rest else seconds
    if config.env:
        entry["env"] = {name: literal_text(value) for name, value in config.env.items()}
    entry |= tool.extensions.get("sympozium", {})
    return {
        "apiVersion": "sympozium.ai/v1alpha1",
        "kind": "SkillPack",
        "metadata": {"name": tool.name},
        "spec": {"sidecar": {"tools": [entry]}},
    }
