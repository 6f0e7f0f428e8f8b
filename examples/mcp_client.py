"""An MCP client: starts `toolcrib serve --stdio` on a project, lists its tools and calls them.

It uses the official client, the package `mcp`; any other client does the same.

Run it: python examples/mcp_client.py
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from mcp import StdioServerParameters
from mcp.client import Client
from mcp.client.stdio import stdio_client

TOOLCRIB = shutil.which("toolcrib", path=str(Path(sys.executable).parent)) or "toolcrib"


async def talk(root: str) -> None:
    """Do the work of an agent's client."""
    # The client hands on few variables by itself; XDG_DATA_HOME says where acceptance of projects is kept.
    args = ["serve", "--stdio", "--root", root]
    server = StdioServerParameters(command=TOOLCRIB, args=args, env=dict(os.environ))
    async with Client(stdio_client(server)) as client:
        print("tools:", [tool.name for tool in (await client.list_tools()).tools])

        result = await client.call_tool("repo_stats", {"path": "tools"})
        print("repo_stats:", json.dumps(result.structured_content))

        result = await client.call_tool("repo_stats", {"folder": "tools"})
        assert result.structured_content is not None
        print("wrong argument:", result.structured_content["error"]["violations"][0])

        result = await client.call_tool("web_search", {"query": "lathe"})
        assert result.structured_content is not None
        print("not approved:", result.is_error, result.structured_content["error"]["code"])


def main() -> None:
    """Make a project with the example tools and talk to its server."""
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([TOOLCRIB, "init", folder, "--examples"], check=True, capture_output=True)
        asyncio.run(talk(folder))


if __name__ == "__main__":
    main()
