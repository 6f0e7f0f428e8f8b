"""MCP servers on standard input and output; `mcp_stdio` starts them by their names."""

from __future__ import annotations

import asyncio
import logging
import sys

import orjson

from benchmarks.setting import find

NUMBERS = {"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}}}
ABOUT: dict[str, dict[str, object]] = {
    "initialize": {
        "protocolVersion": "2025-11-25",
        "capabilities": {"tools": {}},
        "serverInfo": {"name": "echo", "version": "0"},
    },
    "tools/list": {"tools": [{"name": "add", "inputSchema": NUMBERS}]},
}
ECHO = [sys.executable, "-m", "benchmarks.stdio_server", "echo"]


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
        if message["method"] == "tools/call":
            arguments = message["params"]["arguments"]
            total = arguments["a"] + arguments["b"]
            answer: dict[str, object] = {
                "content": [{"type": "text", "text": str(total)}],
                "structuredContent": {"result": total},
            }
        else:
            answer = ABOUT.get(message["method"], {})
        outcome = {"result": answer} if answer else {"error": {"code": -32601, "message": "no such method"}}
        out.write(orjson.dumps({"jsonrpc": "2.0", "id": message["id"], **outcome}) + b"\n")
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


def toolcrib_proxy() -> None:
    """Serve the project in the folder of the second argument, whose one MCP server is the echo."""
    from toolcrib import Project
    from toolcrib.serve.process import run_until_end, serve_project

    async def serve() -> int:
        async with Project.open(sys.argv[2], accept="all") as project:
            assert project.servers is not None
            await project.servers.ready()
            return await serve_project(project, None)

    run_until_end(serve())


def fastmcp_proxy() -> None:
    """FastMCP's proxy of the echo, with one session for all calls."""
    logging.disable(logging.CRITICAL)
    transport = find("fastmcp.client.transports", "StdioTransport")(ECHO[0], ECHO[1:])

    async def serve() -> None:
        async with find("fastmcp", "Client")(transport) as client:
            proxy = find("fastmcp.server", "create_proxy")(client, name="bench")
            await proxy.run_async("stdio", show_banner=False)

    asyncio.run(serve())


SERVERS = {
    "echo": echo,
    "toolcrib": toolcrib,
    "sdk": sdk,
    "fastmcp": fastmcp,
    "toolcrib_proxy": toolcrib_proxy,
    "fastmcp_proxy": fastmcp_proxy,
}

if __name__ == "__main__":
    SERVERS[sys.argv[1]]()
