"""Results of calls in the form of each method: tools, prompts, resources; and completion of arguments."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from toolcrib.errors import InvalidOutput, ToolcribError
from toolcrib.manifest.kinds import is_served
from toolcrib.serve.mcp.lists import AdvertisedTool
from toolcrib.serve.mcp.wire import ErrorCode, JsonRpcError, mounted_error
from toolcrib.spec import Result
from toolcrib.spec.views import TEXT_LIMIT, artifact_of, cut_text, error_text, pending_error, value_text

_MOST_VALUES = 100
"""MCP, Completion: values in one answer."""
_PENDING = ("status", "approval", "reason", "expiresAt")
"""The text for a client whose call waits for a person."""
ResultForm = Callable[[Result, AdvertisedTool | None], dict[str, Any]]
"""Returns the result of one method. Raises JsonRpcError if that cannot report a failed call."""


def call_result(result: Result, listed: AdvertisedTool | None = None) -> dict[str, Any]:
    """Return text content, structured content and `isError`; times and warnings in `_meta`.

    `structuredContent` is always an object: another value is sent as `{"result": value}`. It is left out for
    plain text without a schema, which would only repeat the text, and for text that had to be cut, unless a
    schema promises it. Clients check it against the advertised schema, so an output that does not match is
    sent as an error with the output as text, even if the tool's own policy only warns.
    """
    limit = result.text_limit or TEXT_LIMIT
    if result.status != "ok":
        return _error(result, result.error or pending_error(result), None, limit)
    value = result.value
    text = value_text(value)
    # UTF-8 has at most 4 bytes for a character, so a short text need not be encoded to measure it.
    shown = text if len(text) * 4 <= limit else cut_text(text, limit, artifact_of(result))
    content = list(result.blocks) or [{"type": "text", "text": shown}]
    out: dict[str, Any] = {"content": content}
    if listed is not None and (check := listed.output_check) is not None:
        if not check.is_valid(value):
            if result.details == {"dryRun": True}:  # Clients check all but errors.
                return _with_meta({"content": content, "structuredContent": value, "isError": True}, result)
            error = InvalidOutput(
                "the output, which follows as it came, does not match the tool's output schema",
                violations=check.violations(value),
            )
            return _error(result, error, shown, limit)
        out["structuredContent"] = {"result": value} if listed.wraps_output else value
    # The value of a mounted tool without structured content only repeats its blocks.
    elif shown is text and not isinstance(value, str) and value != {"content": list(result.blocks)}:
        out["structuredContent"] = value if isinstance(value, dict) else {"result": value}
    out["isError"] = False
    if result.warnings:
        content += [{"type": "text", "text": f"Warning: {warning}"} for warning in result.warnings]
    return _with_meta(out, result)


def _error(result: Result, error: ToolcribError, output: str | None, limit: int) -> dict[str, Any]:
    content = [{"type": "text", "text": cut_text(error_text(error), limit)}]
    if output is not None:
        content.append({"type": "text", "text": output})
    structured: dict[str, Any] = {"error": error.as_dict()}
    if error.details.get("status") == "pending":
        # Nothing ran, so there is no output for the schema: to MCP it is an error all the same.
        structured = {name: error.details[name] for name in _PENDING if name in error.details} | structured
    return _with_meta({"content": content, "structuredContent": structured, "isError": True}, result)


def _with_meta(out: dict[str, Any], result: Result) -> dict[str, Any]:
    meta: dict[str, Any] = {"toolcrib/call": result.meta}
    if result.warnings:
        meta["toolcrib/warnings"] = list(result.warnings)
    out["_meta"] = meta
    return out


def prompt_result(result: Result, listed: AdvertisedTool | None) -> dict[str, Any]:
    """Return a `GetPromptResult`: each block of content is one message of the user."""
    value = _value(result)
    blocks = result.blocks or ({"type": "text", "text": value_text(value)},)
    messages: Any = [{"role": "user", "content": block} for block in blocks]
    # A mounted server's prompt has messages with roles of its own, which stay as they are.
    if listed is not None and is_served(listed.tool) and isinstance(value, dict):
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
