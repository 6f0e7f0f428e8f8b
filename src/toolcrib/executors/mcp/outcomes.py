"""The results of an MCP server's tools, prompts and resources as outcomes of calls."""

from __future__ import annotations

from typing import Any

from toolcrib.errors import ToolFailed
from toolcrib.executors.mcp.definitions import as_json
from toolcrib.spec import Outcome


def outcome_of(server: str, tool: str, result: Any) -> Outcome:
    """Return the structured value if there is one, else the text, and the blocks if they are more than that.

    For a prompt these are its messages, for a resource its contents. Raises ToolFailed for an error.
    """
    if hasattr(result, "messages"):
        messages = [as_json(one) for one in result.messages]
        return Outcome({"messages": messages}, blocks=tuple(one["content"] for one in messages))
    if hasattr(result, "contents"):
        contents = [as_json(one) for one in result.contents]
        blocks = tuple({"type": "resource", "resource": one} for one in contents)
        return Outcome({"contents": contents}, blocks=blocks)
    texts = [block.text for block in result.content if block.type == "text"]
    if result.is_error:
        message = "\n".join(texts).strip() or "the tool failed and does not say why"
        details: dict[str, Any] = {"server": server, "tool": tool}
        if result.structured_content is not None:
            details["structured"] = result.structured_content
        raise ToolFailed(message, details=details)
    blocks = tuple(as_json(one) for one in result.content)
    plain = len(texts) == len(blocks)
    if result.structured_content is not None:
        return Outcome(result.structured_content, blocks=() if plain else blocks)
    if plain:
        return Outcome("\n".join(texts), blocks=blocks if len(blocks) > 1 else ())
    return Outcome({"content": list(blocks)}, blocks=blocks)
