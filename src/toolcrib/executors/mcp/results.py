"""The answer of an MCP server to a call, as an outcome of the tool."""

from __future__ import annotations

from typing import Any

from toolcrib.errors import ToolFailed
from toolcrib.spec import Outcome

__all__ = ["outcome_of"]


def outcome_of(server: str, tool: str, result: Any) -> Outcome:
    """Return the structured value if there is one, else the text. Raises ToolFailed for an error.

    Blocks that are not text (images, sound, links) are returned as JSON: `{"content": [blocks]}`.
    """
    texts = [block.text for block in result.content if block.type == "text"]
    if result.is_error:
        message = "\n".join(texts).strip() or "the tool failed and does not say why"
        details: dict[str, Any] = {"server": server, "tool": tool}
        if result.structured_content is not None:
            details["structured"] = result.structured_content
        raise ToolFailed(message, details=details)
    others = len(result.content) - len(texts)
    if result.structured_content is not None:
        warnings = (f"{others} blocks that are not text were left out",) if others else ()
        return Outcome(result.structured_content, warnings)
    if not others:
        return Outcome("\n".join(texts))
    blocks = [b.model_dump(mode="json", by_alias=True, exclude_none=True) for b in result.content]
    return Outcome({"content": blocks}, ("blocks that are not text are given as JSON",))
