"""The results of an MCP server's tools, prompts and resources as outcomes of calls; its errors in words."""

from __future__ import annotations

from typing import Any

from toolcrib.errors import ToolFailed
from toolcrib.executors.mcp.definitions import as_json, places_of
from toolcrib.spec import Outcome

_HTTP_ERROR = "Server returned an error response"
"""The official client's message for an HTTP error that comes without one of MCP."""


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


def error_text(error: BaseException, status: int) -> str:
    """Return what an error says of a server, as a part of a sentence; `status` is that of its HTTP answer."""
    from mcp import MCPError
    from mcp_types import PARSE_ERROR
    from pydantic import ValidationError

    if isinstance(error, ValidationError):
        return f"its answer is not one of MCP: see `{next(iter(places_of(error)), 'the whole')}`"
    if isinstance(error, MCPError) and error.code == PARSE_ERROR:
        return "its answer is malformed, or nested too deeply"
    text = str(error) or type(error).__name__
    return f"it answered HTTP {status}" if status and text == _HTTP_ERROR else text


def is_answer(error: BaseException) -> bool:
    """Return True if the server has answered, with an error or badly: its connection can be used again."""
    from mcp import MCPError
    from mcp_types import CONNECTION_CLOSED

    if isinstance(error, MCPError):
        return error.code != CONNECTION_CLOSED
    # The official client raises these for a malformed answer; any other error comes from the transport.
    return isinstance(error, (RuntimeError, ValueError))
