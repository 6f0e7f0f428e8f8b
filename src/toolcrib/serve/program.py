"""A toolset of a program, served to one MCP client."""

from __future__ import annotations

import os
import shlex
import sys
from typing import TYPE_CHECKING, NoReturn

from toolcrib import __version__
from toolcrib.serve.mcp import serve_stdio
from toolcrib.serve.process import run_until_end

if TYPE_CHECKING:
    from toolcrib.core.toolset import Toolset

AT_TERMINAL = (
    "Serving MCP on standard input and output, for a client that starts this command itself. Ctrl-C ends it."
)


def serve_toolset(tools: Toolset) -> NoReturn:
    """Serve a toolset on standard input and output until the client goes, and end the process."""
    if sys.stdin.isatty():
        program, *words = sys.argv
        # A client starts it in another folder.
        words = [os.path.abspath(word) if ".py" in word else word for word in words]
        command = shlex.join([sys.executable, os.path.abspath(program), *words])
        sys.stderr.write(
            f"{AT_TERMINAL}\nIn the client's configuration of servers, the command is: {command}\n"
        )
    run_until_end(_serve(tools))


async def _serve(tools: Toolset) -> int:
    async with tools:
        return await serve_stdio(tools, version=__version__)
