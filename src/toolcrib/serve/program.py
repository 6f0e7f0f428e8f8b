"""A toolset of a program, served to one MCP client."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, NoReturn

from toolcrib.serve.mcp import serve_stdio
from toolcrib.serve.process import run_until_end

if TYPE_CHECKING:
    from toolcrib.core.toolset import Toolset

__all__ = ["AT_TERMINAL", "serve_toolset"]

AT_TERMINAL = (
    "Serving MCP on standard input and output, for a client that starts this command itself. Ctrl-C ends it."
)


def serve_toolset(tools: Toolset) -> NoReturn:
    """Serve a toolset on standard input and output until the client goes, and end the process."""
    if sys.stdin.isatty():
        sys.stderr.write(f"{AT_TERMINAL}\n")
    run_until_end(_serve(tools))


async def _serve(tools: Toolset) -> int:
    from toolcrib import __version__

    async with tools:
        return await serve_stdio(tools, version=__version__)
