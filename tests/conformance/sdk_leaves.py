"""A client of the SDK before version 2 that leaves while a call runs: `sdk_leaves.py MARK SERVER…`."""

# mypy: ignore-errors
# It runs with an older SDK than the one that types are checked against.
import sys

import anyio
from mcp import ClientSession, StdioServerParameters
from mcp.client.stdio import stdio_client


async def main(mark: str, command: str, *arguments: str) -> None:
    server = StdioServerParameters(command=command, args=[*arguments])
    async with (
        stdio_client(server) as streams,
        ClientSession(*streams) as session,
        anyio.create_task_group() as calls,
    ):
        await session.initialize()
        calls.start_soon(session.call_tool, "linger", {"mark": mark})
        while not await anyio.Path(mark).exists():  # noqa: ASYNC110 - another process writes it
            await anyio.sleep(0.01)
        # The call is given up here, and its answer has no reader any more.
        calls.cancel_scope.cancel()
    print("left")


anyio.run(main, *sys.argv[1:])
