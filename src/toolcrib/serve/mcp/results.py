"""The result of a call as MCP's `CallToolResult`."""

from __future__ import annotations

from typing import Any

from toolcrib.errors import InvalidOutput, ToolcribError
from toolcrib.serve.mcp.lists import AdvertisedTool
from toolcrib.spec import Result
from toolcrib.spec.views import TEXT_LIMIT, artifact_of, cut_text, error_text, pending_error, value_text

_PENDING = ("status", "approval", "reason", "expires_at")
"""The text for a client whose call waits for a person."""


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
            if result.details == {"dry_run": True}:  # Clients check all but errors.
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
