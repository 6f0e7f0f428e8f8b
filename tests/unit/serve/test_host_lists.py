"""The list of a known host: names and arguments as it accepts them, and calls by them."""

from __future__ import annotations

from tests.unit.serve.doubles import make_tool
from tests.unit.serve.test_connection import Client


async def test_a_known_host_gets_names_that_it_accepts_and_calls_by_them() -> None:
    client = Client()
    name = "a_tool_with_a_long_name_" * 2 + "here"
    schema = {"type": "object", "properties": {"filter[id]": {"type": "string"}}}
    client.catalog.add(make_tool(name, input_schema=schema))
    await client.quiet()
    hello = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "claude-code"}}
    await client.ask("initialize", hello)
    listed = (await client.ask("tools/list"))["result"]["tools"][-1]
    assert len(f"mcp__toolcrib__{listed['name']}") <= 64
    assert (listed["title"], list(listed["inputSchema"]["properties"])) == (name, ["filter_id"])
    for asked in (listed["name"], name):
        await client.ask("tools/call", {"name": asked, "arguments": {"filter_id": "5"}})
        assert (client.catalog.calls[-1].tool, client.catalog.calls[-1].arguments) == (
            name,
            {"filter[id]": "5"},
        )
