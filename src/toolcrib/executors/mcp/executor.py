"""The executor of tools of MCP servers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

from toolcrib.executors.mcp.server import McpServer
from toolcrib.spec import Call, CallContext, McpExec, Outcome, Tool


class McpExecutor:
    """Passes a call on to the tool's server."""

    def __init__(self, tool: Tool, server: McpServer, check: Callable[[Tool], None]) -> None:
        assert isinstance(tool.config, McpExec)
        self._tool = tool.config.tool
        self._server = server
        self._check = partial(check, tool)

    async def run(self, call: Call, ctx: CallContext) -> Outcome:
        """Run one attempt of a call."""
        assert isinstance(call.arguments, Mapping)
        return await self._server.call(self._tool, call.arguments, ctx, self._check)
