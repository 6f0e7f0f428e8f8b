"""Write commands as tools of the sidecar of a SkillPack."""

from __future__ import annotations

from typing import Any

from toolcrib.errors import ManifestError
from toolcrib.manifest.yaml.source import dump
from toolcrib.spec import CommandExec, Tool
from toolcrib.template import literal_text


def write_pack(tool: Tool) -> bytes:
    """Return a SkillPack whose sidecar has this one command; it names no image, which is not known."""
    config = tool.config
    if not isinstance(config, CommandExec):
        raise ManifestError(f"{tool.name} is of kind {tool.kind}; only commands can be tools of a sidecar")
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
    pack = {
        "apiVersion": "sympozium.ai/v1alpha1",
        "kind": "SkillPack",
        "metadata": {"name": tool.name},
        "spec": {"sidecar": {"tools": [entry]}},
    }
    return dump(pack).encode()
