"""What came of a call, as MCP's `CallToolResult`."""

from __future__ import annotations

from typing import Any

from toolcrib.errors import InvalidOutput, ToolcribError
from toolcrib.schema import SchemaCheck
from toolcrib.serve.mcp.listing import Entry
from toolcrib.spec import Result
from toolcrib.spec.views import TEXT_LIMIT, cut_text, error_text, pending_error, value_text

__all__ = ["call_result"]


def call_result(result: Result, entry: Entry | None = None, limit: int = TEXT_LIMIT) -> dict[str, Any]:
    """Text content, structured content, `isError`, and in `_meta` how the call went and what it warned of.

    `structuredContent` is an object on every wire: another value goes out as `{"result": value}`. It is left
    out for plain text without a schema (it would say everything twice) and where the text had to be cut and
    no schema promises it. With an output schema it always fits that schema, for clients check: an output that
    does not fit, which the tool's own policy only warns of, is an error here that shows it as it came.
    """
    if result.status != "ok":
        return _error(result, result.error or pending_error(result), None, limit)
    value = result.value
    text = value_text(value)
    shown = text if len(text) * 4 <= limit else cut_text(text, limit)
    promise = None if entry is None else entry.promise
    out: dict[str, Any] = {"content": [{"type": "text", "text": shown}]}
    if promise is not None and entry is not None:
        if not promise.is_valid(value):
            return _error(result, _misfit(promise, value), shown, limit)
        out["structuredContent"] = {"result": value} if entry.wraps else value
    elif shown is text and not isinstance(value, str):
        out["structuredContent"] = value if isinstance(value, dict) else {"result": value}
    out["isError"] = False
    out["content"] += [{"type": "text", "text": f"Warning: {warning}"} for warning in result.warnings]
    return _finish(out, result)


def _error(result: Result, error: ToolcribError, output: str | None, limit: int) -> dict[str, Any]:
    content = [{"type": "text", "text": cut_text(error_text(error), limit)}]
    if output is not None:
        content.append({"type": "text", "text": output})
    out = {"content": content, "structuredContent": {"error": error.as_dict()}, "isError": True}
    return _finish(out, result)


def _misfit(promise: SchemaCheck, value: Any) -> InvalidOutput:
    return InvalidOutput(
        "the output, which follows as it came, does not fit the tool's output schema",
        violations=promise.violations(value),
    )


def _finish(out: dict[str, Any], result: Result) -> dict[str, Any]:
    meta: dict[str, Any] = {"toolcrib/call": result.meta}
    if result.warnings:
        meta["toolcrib/warnings"] = list(result.warnings)
    out["_meta"] = meta
    return out
