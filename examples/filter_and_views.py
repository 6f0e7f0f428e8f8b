"""A part of a toolset, and its tools in the shapes that clients expect.

Run it: python examples/filter_and_views.py
"""

from __future__ import annotations

import asyncio
import json

from toolcrib import ToolcribError, Toolset
from toolcrib.schema.providers import anthropic_tool, mcp_tool, wire_names
from toolcrib.spec import Annotations

tools = Toolset()


@tools.tool("read_page", tags=["web"], annotations=Annotations(read_only=True))
async def read_page(url: str) -> str:
    """Read a page."""
    return f"the text of {url}"


@tools.tool("search.pages", tags=["web"])
async def search_pages(query: str) -> list[str]:
    """Search the web."""
    return [query]


@tools.tool
async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


async def main() -> None:
    """Take parts, call one, show the shapes."""
    print("by name:", tools.filter("add", "read_page").names)
    web = tools.filter(tags=["web"])
    print("by tag:", web.names)
    print("what is not in the view cannot be called:", (await web.call("add", {"a": 1, "b": 2})).status)
    try:
        tools.filter("read_pages")
    except ToolcribError as error:
        print(f"a wrong name: {error.message}. {error.hint}")

    for wire_name, tool in wire_names(web.tools()).items():
        print("MCP:", json.dumps(mcp_tool(tool, wire_name)))
        print("Anthropic:", json.dumps(anthropic_tool(tool, wire_name)))


if __name__ == "__main__":
    asyncio.run(main())
