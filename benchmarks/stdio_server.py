"""MCP servers on standard input and output; `mcp_stdio` starts them by their names."""

from __future__ import annotations

import logging
import sys

import orjson

from benchmarks.setting import find


async def add(a: int, b: int) -> int:
    """Add two whole numbers."""
    return a + b


def echo() -> None:
    """Answer each line by hand with the least that a client takes for an answer."""
    out = sys.stdout.buffer
    for line in sys.stdin.buffer:
        message = orjson.loads(line)
        if "id" not in message:
            continue
        result: dict[str, object] = {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}}
        if message["method"] == "tools/call":
            arguments = message["params"]["arguments"]
            total = arguments["a"] + arguments["b"]
            result = {
                "content": [{"type": "text", "text": str(total)}],
                "structuredContent": {"result": total},
            }
        out.write(orjson.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}) + b"\n")
        out.flush()


def toolcrib() -> None:
    """Our server over a toolset in memory, without a record."""
    from toolcrib import Toolset
    from toolcrib.serve import run_stdio, serve_stdio

    tools = Toolset()
    tools.register(add)
    run_stdio(serve_stdio(tools, name="bench"))


def sdk() -> None:
    """The MCP SDK's server."""
    logging.disable(logging.CRITICAL)
    server = find("mcp.server", "MCPServer")("bench")
    server.add_tool(add)
    server.run("stdio")


def fastmcp() -> None:
    """FastMCP's server."""
    logging.disable(logging.CRITICAL)
    server = find("fastmcp", "FastMCP")("bench")
    server.tool(add)
    server.run("stdio", show_banner=False)


SERVERS = {"echo": echo, "toolcrib": toolcrib, "sdk": sdk, "fastmcp": fastmcp}

if __name__ == "__main__":
    SERVERS[sys.argv[1]]()
