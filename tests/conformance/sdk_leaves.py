"""A client of the official SDK before version 2, which leaves while a call runs: `python sdk_leaves.py MARK SERVER…`."""

# mypy: ignore-errors
# It runs with an older SDK than the one that types are checked against.
import sys
from pathlib import Path

import anyio
from mcp import ClientSession, StdioServerParameters
from mcp.client.stdio import stdio_client


async def main(mark: str, command: str, *arguments: str) -> None:
    async with stdio_client(StdioServerParameters(command=command, args=[*arguments], env=None)) as streams:
        async with ClientSession(*streams) as session, anyio.create_task_group() as calls:
            await session.initialize()
            calls.start_soon(session.call_tool, "linger", {"mark": mark})
            while not Path(mark).exists():
                await anyio.sleep(0.01)
            # The call is given up here, and its answer has no reader any more.
            calls.cancel_scope.cancel()
    print("left")


anyio.run(main, *sys.argv[1:])
