"""Write a tool as a native manifest that reads back as the same tool."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict
from typing import Any

from toolcrib.manifest.kinds import block_of, kind_of
from toolcrib.manifest.yaml.source import dump
from toolcrib.spec import Auth, Permissions, Tool
from toolcrib.spec.tools.tool import PLAIN


def write_manifest(tool: Tool) -> bytes:
    """Return the file of a tool in native terms."""
    return dump(manifest_of(tool)).encode()


def manifest_of(tool: Tool) -> dict[str, Any]:
    """Return the native manifest as data, in the order of the documentation, without defaults.

    Of a tool that is not in native terms, it holds what only the tool's own format has.
    """
    retry = {} if tool.retry is None else asdict(tool.retry)
    manifest: dict[str, Any] = {
        "name": tool.name,
        "description": tool.description,
        "kind": tool.kind,
        "version": tool.version,
        **{name: value for name in PLAIN if (value := getattr(tool, name))},
        "tags": list(tool.tags),
        "annotations": block_of(tool.annotations),
        "mcp": block_of(tool.mcp),
        "inputs": {"schema": tool.input_schema},
        "outputs": block_of(tool.output),
        "exec": {tool.kind: kind_of(tool).write(tool.config)},
        "files": list(tool.files),
        "auth": _auth(tool.auth),
        "permissions": _permissions(tool.permissions),
        "approval": block_of(tool.approval),
        "retry": {key: value for key, value in retry.items() if value is not None},
        "limits": block_of(tool.limits),
        "examples": [
            {
                key: value
                for key, value in asdict(example).items()
                if value is not None and (key, value) != ("description", "")
            }
            for example in tool.examples
        ],
        "extensions": tool.extensions,
    }
    return {key: value for key, value in manifest.items() if value not in ({}, [])}


def _permissions(permissions: Permissions) -> dict[str, Any]:
    found: dict[str, Any] = {}
    if permissions.network.mode != "none":
        found["network"] = permissions.network.as_json()
    if permissions.read or permissions.write:
        found["fs"] = {"read": list(permissions.read), "write": list(permissions.write)}
    if permissions.secrets:
        found["secrets"] = {
            secret.name: {"type": secret.type, "required": secret.required} for secret in permissions.secrets
        }
    if permissions.env:
        found["env"] = list(permissions.env)
    return found


def _auth(entries: Iterable[Auth]) -> Any:
    blocks: list[dict[str, Any]] = []
    for entry in entries:
        block = block_of(entry)
        block |= {key: block_of(block[key]) for key in ("hmac", "oauth2") if key in block}
        blocks.append({"in" if key == "location" else key: value for key, value in block.items()})
    return blocks[0] if len(blocks) == 1 else blocks
