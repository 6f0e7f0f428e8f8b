"""Results as MCP sends them."""

from __future__ import annotations

from typing import Any

import jsonschema_rs
import mcp_types
import pytest

from tests.unit.serve.doubles import make_tool, typed_tool
from toolcrib.errors import InvalidInput, ToolFailed, Violation
from toolcrib.schema.providers import mcp_output_schema
from toolcrib.serve.mcp.lists import AdvertisedTool
from toolcrib.serve.mcp.results import call_result
from toolcrib.spec import Result

PLAIN = AdvertisedTool(make_tool("plain"))
OBJECT = AdvertisedTool(typed_tool("object", {"type": "object", "required": ["n"]}))
LIST = AdvertisedTool(typed_tool("list", {"type": "array", "items": {"type": "integer"}}))


def texts(out: dict[str, Any]) -> list[str]:
    mcp_types.CallToolResult.model_validate(out)
    return [block["text"] for block in out["content"]]


@pytest.mark.parametrize(
    ("value", "structured"),
    [({"n": 1}, {"n": 1}), (3, {"result": 3}), ([1], {"result": [1]}), (None, {"result": None})],
)
def test_structured_content_is_always_an_object(value: Any, structured: Any) -> None:
    out = call_result(Result("ok", value), PLAIN)
    assert out["structuredContent"] == structured
    assert out["isError"] is False


def test_plain_text_is_not_repeated() -> None:
    out = call_result(Result("ok", "hello"), PLAIN)
    assert texts(out) == ["hello"]
    assert "structuredContent" not in out


def test_text_with_a_schema_is_sent_in_both() -> None:
    entry = AdvertisedTool(typed_tool("text", {"type": "string"}))
    assert call_result(Result("ok", "hello"), entry)["structuredContent"] == {"result": "hello"}


@pytest.mark.parametrize(("entry", "value"), [(OBJECT, {"n": 1}), (LIST, [1, 2])])
def test_structured_content_matches_the_schema_that_is_advertised(entry: AdvertisedTool, value: Any) -> None:
    schema = mcp_output_schema(entry.tool)
    assert schema is not None
    out = call_result(Result("ok", value), entry)
    jsonschema_rs.validate(schema, out["structuredContent"])


@pytest.mark.parametrize(("entry", "value"), [(OBJECT, {}), (OBJECT, [1]), (LIST, ["x"]), (LIST, None)])
def test_an_output_that_breaks_the_promise_is_an_error_that_shows_it(
    entry: AdvertisedTool, value: Any
) -> None:
    out = call_result(Result("ok", value, warnings=("does not fit",)), entry)
    assert out["isError"] is True
    assert out["structuredContent"]["error"]["code"] == "invalid_output"
    assert out["structuredContent"]["error"]["violations"]
    assert texts(out)[0].startswith("Tool call failed: ")
    assert len(texts(out)) == 2


def test_warnings_and_times_are_there() -> None:
    out = call_result(Result("ok", {}, warnings=("slow",), duration_ms=1.5, attempts=2), PLAIN)
    assert texts(out) == ["{}", "Warning: slow"]
    assert out["_meta"]["toolcrib/warnings"] == ["slow"]
    assert out["_meta"]["toolcrib/call"] == {"durationMs": 1.5, "attempts": 2}


def test_an_error_carries_the_error_object_of_every_interface() -> None:
    error = InvalidInput("$.a is required", violations=[Violation("$.a", "is required")], hint="Give a.")
    out = call_result(Result("error", error=error), PLAIN)
    assert out["isError"] is True
    assert out["structuredContent"] == {"error": error.as_dict()}
    assert texts(out) == ["Invalid input: $.a is required\nGive a."]


def test_a_call_that_waits_for_a_person_is_an_error_for_now() -> None:
    out = call_result(Result("pending", call_id="c1"), PLAIN)
    assert out["isError"] is True
    assert out["structuredContent"]["error"]["code"] == "approval_required"
    assert out["structuredContent"]["error"]["details"] == {"callId": "c1"}


def test_cut_output_is_not_sent_as_structured_content() -> None:
    out = call_result(Result("ok", ["x" * 100], text_limit=50), PLAIN)
    assert "[cut:" in texts(out)[0]
    assert "structuredContent" not in out


def test_output_with_a_schema_is_sent_whole() -> None:
    entry = AdvertisedTool(typed_tool("texts", {"type": "array"}))
    out = call_result(Result("ok", ["x" * 100], text_limit=50), entry)
    assert "[cut:" in texts(out)[0]
    assert out["structuredContent"] == {"result": ["x" * 100]}


def test_a_failed_tool_reads_as_failed() -> None:
    assert texts(call_result(Result("error", error=ToolFailed("no"))))[0] == "Tool call failed: no"
