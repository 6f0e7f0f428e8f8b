"""Names, digests and pauses of MCP servers and their tools."""

from __future__ import annotations

import pytest

from toolcrib.errors import ToolFailed
from toolcrib.executors.mcp.definitions import digest, names_of, tool_of
from toolcrib.executors.mcp.outcomes import outcome_of
from toolcrib.executors.mcp.server import pause_s
from toolcrib.manifest.dialects.mcp_servers import ServerSpec
from toolcrib.schema.providers import mcp_tool
from toolcrib.spec.tools.policies import ApprovalRule


def test_pauses_grow_to_a_minute_and_differ_a_little() -> None:
    middle = [pause_s(failures, 0.5) for failures in range(1, 10)]
    assert middle == [1, 2, 4, 8, 16, 32, 60, 60, 60]
    assert pause_s(1, 0.0) == 0.8
    assert 1.19 < pause_s(1, 1.0) < 1.21
    assert 71.9 < pause_s(10**6, 1.0) < 72.1


def test_a_digest_does_not_depend_on_the_order_of_keys() -> None:
    one = {"name": "a", "inputSchema": {"type": "object", "properties": {"x": {}, "y": {}}}}
    two = {"inputSchema": {"properties": {"y": {}, "x": {}}, "type": "object"}, "name": "a"}
    assert digest(one) == digest(two)
    assert digest(one) != digest({**two, "title": ""})


def test_a_name_does_not_depend_on_other_tools() -> None:
    tools = ["plain", "a.b", "a b", "a_b", "x" * 80, "x" * 81]
    names = names_of("srv", tools)
    assert names["plain"] == "srv__plain"
    assert names["a_b"] == "srv__a_b"
    assert len(set(names.values())) == len(tools)
    assert all(len(name) <= 64 for name in names.values())
    for tool in tools:
        assert names_of("srv", [tool]) == {tool: names[tool]}


def test_icons_are_kept_if_a_client_may_show_them() -> None:
    icons = [{"src": "https://example.com/a.png", "sizes": ["any"]}, {"src": "javascript:alert(1)"}]
    shown = {"name": "a", "inputSchema": {"type": "object"}, "icons": icons}
    spec = ServerSpec("srv", "stdio", command="true")
    tool = tool_of(spec, "a", shown, "", approval=ApprovalRule())
    assert mcp_tool(tool, "a")["icons"] == icons[:1]


def test_answers_become_values() -> None:
    types = pytest.importorskip("mcp_types")
    text = types.TextContent(type="text", text="a")
    image = types.ImageContent(type="image", data="AA==", mime_type="image/png")

    def of(*blocks: object, **more: object) -> object:
        return outcome_of("srv", "t", types.CallToolResult(content=list(blocks), **more)).value

    assert of(text, text) == "a\na"
    assert of() == ""
    assert of(text, structured_content={"x": 1}) == {"x": 1}
    expected = outcome_of("srv", "t", types.CallToolResult(content=[text, image], structured_content={}))
    assert (expected.value, [one["type"] for one in expected.blocks]) == ({}, ["text", "image"])
    with pytest.raises(ToolFailed, match=r"^a$"):
        of(text, is_error=True)
    with pytest.raises(ToolFailed, match="does not say why"):
        of(is_error=True)
