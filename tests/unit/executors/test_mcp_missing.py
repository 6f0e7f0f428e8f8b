"""Servers where the official MCP client is not installed."""

from __future__ import annotations

import sys
from typing import NoReturn

import pytest

from toolcrib.errors import ToolUnavailable
from toolcrib.executors.mcp.server import McpServer
from toolcrib.manifest.dialects.mcp_servers import ServerSpec


async def test_a_completion_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    for package in ("mcp", "mcp_types"):
        monkeypatch.setitem(sys.modules, package, None)

    def never() -> NoReturn:
        raise AssertionError

    server = McpServer(ServerSpec("one", "stdio", command="one"), never, on_tools=lambda *_: None)
    try:
        with pytest.raises(ToolUnavailable) as caught:
            await server.complete("prompt:ask", "name", "a", None)
        assert "[mcp]" in (caught.value.hint or "")
    finally:
        await server.aclose()
