"""Tools of an MCP server: their definitions as the server sends them, and as tools of the project."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from toolcrib.errors import ToolcribError
from toolcrib.schema import ArgumentCheck, SchemaCheck, to_json_text
from toolcrib.spec import Annotations, Approval, McpExec, Output, Tool
from toolcrib.spec.policies import MCP_HINTS

if TYPE_CHECKING:
    from toolcrib.manifest.dialects.mcp_servers import ServerSpec

__all__ = ["MAX_TOOLS", "Definition", "digest", "fetch", "names_of", "tool_of"]

Definition = dict[str, Any]
"""One entry of `tools/list`: name, title, description, inputSchema, outputSchema, annotations."""
MAX_TOOLS = 1_000
_MAX_PAGES = 100
_MAX_BYTES = 131_072
_MAX_NAME = 64
_FIELDS = ("name", "title", "description", "inputSchema", "outputSchema", "annotations")


async def fetch(client: Any) -> tuple[list[Definition], list[str]]:
    """Return every usable definition of a connected server, and the reasons why others are left out."""
    found: dict[str, Definition] = {}
    left: list[str] = []
    cursor: str | None = None
    for _ in range(_MAX_PAGES):
        page = await client.list_tools(cursor=cursor)
        for entry in page.tools:
            whole = entry.model_dump(mode="json", by_alias=True, exclude_none=True)
            definition = {key: whole[key] for key in _FIELDS if key in whole}
            reason = _why_unusable(definition)
            if reason is None and len(found) >= MAX_TOOLS:
                reason = f"it has more than {MAX_TOOLS:,} tools"
            if reason is None:
                found.setdefault(entry.name, definition)
            elif len(left) < MAX_TOOLS:
                left.append(f"{entry.name[:_MAX_NAME]!r}: {reason}")
        cursor = page.next_cursor
        if not cursor:
            return list(found.values()), left
    left.append(f"the tools after {_MAX_PAGES} pages of the list")
    return list(found.values()), left


def _why_unusable(definition: Definition) -> str | None:
    """Return the reason why a definition cannot be used, or None."""
    if not definition["name"] or len(definition["name"]) > 256:
        return "its name is empty or too long"
    if len(to_json_text(definition)) > _MAX_BYTES:
        return f"its definition has more than {_MAX_BYTES // 1024} KiB"
    try:
        ArgumentCheck(definition["inputSchema"])
        if "outputSchema" in definition:
            SchemaCheck(definition["outputSchema"])
    except (ToolcribError, ValueError) as error:
        return f"its schema cannot be used: {error}"
    return None


def digest(definition: Definition) -> str:
    """Return the SHA-256 of a definition, in hex; the order of its keys does not count."""
    return hashlib.sha256(to_json_text(_sorted(definition))).hexdigest()


def _sorted(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _sorted(value[key]) for key in sorted(value)}
    return [_sorted(item) for item in value] if isinstance(value, list) else value


def names_of(server: str, tools: Iterable[str]) -> dict[str, str]:
    """Return each tool's name in the project, `SERVER__TOOL`: unique, and valid for every client.

    An unsuitable name ends in a hash of the original, so it does not depend on the other tools.
    """
    names: dict[str, str] = {}
    for tool in tools:
        plain = re.sub(r"[^A-Za-z0-9_-]", "_", tool)
        name = f"{server}__{plain}"
        if plain != tool or len(name) > _MAX_NAME:
            tail = hashlib.sha256(tool.encode("utf-8", "surrogatepass")).hexdigest()[:8]
            name = f"{name[: _MAX_NAME - 9]}_{tail}"
        names[tool] = name
    return names


def tool_of(
    spec: ServerSpec, name: str, shown: Definition, live: str, *, approval: Approval, text: str | None = None
) -> Tool:
    """Return the tool that `shown` describes; `live` is the digest of the server's present definition."""
    hints: Mapping[str, Any] = shown.get("annotations") or {}
    schema = shown.get("outputSchema")
    description = text or shown.get("description") or shown.get("title") or shown["name"]
    return Tool(
        name=name,
        description=description,
        kind="mcp",
        input_schema=shown["inputSchema"],
        config=McpExec(spec.name, shown["name"], live, spec.identity),
        output=Output(schema=schema),
        permissions=spec.permissions,
        approval=approval,
        annotations=Annotations(**{ours: hints.get(theirs) for ours, theirs in MCP_HINTS.items()}),
        bundle=spec.name,
    )
