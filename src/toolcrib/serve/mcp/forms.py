"""Results of calls in the form of each method: tools, prompts, resources; and completion of arguments."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from toolcrib.errors import ToolcribError
from toolcrib.serve.mcp.lists import AdvertisedTool
from toolcrib.serve.mcp.wire import ErrorCode, JsonRpcError, mounted_error
from toolcrib.spec import Result
from toolcrib.spec.views import error_text, pending_error, value_text

# MCP, Completion: at most 100 values in one answer.
_MOST_VALUES = 100


ResultForm = Callable[[Result, AdvertisedTool | None], dict[str, Any]]
"""Returns the result of one method. Raises JsonRpcError if that cannot report a failed call."""


def prompt_result(result: Result, listed: AdvertisedTool | None) -> dict[str, Any]:
    """Return a `GetPromptResult`: each block of content is one message of the user."""
    value = _value(result)
    blocks = result.blocks or ({"type": "text", "text": value_text(value)},)
    messages: Any = [{"role": "user", "content": block} for block in blocks]
    # A mounted server's prompt has messages with roles of its own, which stay as they are.
    if listed is not None and listed.tool.kind == "mcp" and isinstance(value, dict):
        messages = value.get("messages", messages)
    about = {} if listed is None else {"description": listed.tool.description}
    return {**about, "messages": messages, "_meta": {"toolcrib/call": result.meta}}


def resource_result(uri: str, modern: bool, result: Result, listed: AdvertisedTool | None) -> dict[str, Any]:
    """Return a `ReadResourceResult` for the resource at `uri`."""
    value = _value(result)
    kind = None if listed is None else listed.tool.mcp.mime_type
    contents = [_content(block, uri, kind) for block in result.blocks]
    if not contents:
        media_type = kind or ("text/plain" if isinstance(value, str) else "application/json")
        contents = [{"uri": uri, "mimeType": media_type, "text": value_text(value)}]
    caching = {"ttlMs": 0, "cacheScope": "private"} if modern else {}
    return {"contents": contents, **caching, "_meta": {"toolcrib/call": result.meta}}


def _content(block: Mapping[str, Any], uri: str, kind: str | None) -> dict[str, Any]:
    if block.get("type") == "resource":
        inner: dict[str, Any] = block["resource"]
        return inner
    content = {"blob": block["data"]} if "data" in block else {"text": block.get("text", "")}
    return {"uri": uri, "mimeType": block.get("mimeType") or kind or "text/plain", **content}


def _value(result: Result) -> Any:
    """Return the value of a call. Raises JsonRpcError if it failed: these methods have no other way."""
    if result.status == "ok":
        return result.value
    error: ToolcribError = result.error or pending_error(result)
    if (theirs := mounted_error(error)) is not None:
        raise theirs
    wrong = error.code in ("invalid_input", "not_found", "tool_not_found")
    code = ErrorCode.INVALID_PARAMS if wrong else ErrorCode.INTERNAL_ERROR
    raise JsonRpcError(code, error_text(error), {"error": error.as_dict()})


def completions(listed: AdvertisedTool | None, name: str, typed: str) -> dict[str, Any]:
    """Return the values of an argument that begin as the client's user began to type."""
    schema = {} if listed is None else listed.tool.input_schema.get("properties", {}).get(name, {})
    given = _values(schema if isinstance(schema, dict) else {})
    found = sorted({text for text in given if text.startswith(typed)})
    shown = found[:_MOST_VALUES]
    return {"completion": {"values": shown, "total": len(found), "hasMore": len(found) > len(shown)}}


def _values(schema: Mapping[str, Any]) -> list[str]:
    if schema.get("type") == "boolean":
        return ["true", "false"]
    return [value_text(one) for one in (*schema.get("enum", ()), *schema.get("examples", ()))]
