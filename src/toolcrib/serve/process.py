"""A process that serves MCP on standard input and output for a program's toolset, and its end."""

from __future__ import annotations

import asyncio
import atexit
import os
import shlex
import sys
import threading
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any, NoReturn

from toolcrib import __version__
from toolcrib.errors import UsageError
from toolcrib.serve.mcp import serve_stdio

if TYPE_CHECKING:
    from toolcrib.core.toolset import Toolset

AT_TERMINAL = (
    "Serving MCP on standard input and output, for a client that starts this command itself. Ctrl-C ends it."
)


def run_until_end(main: Coroutine[Any, Any, int]) -> NoReturn:
    """Run a coroutine that serves, and end the process with the status that it returns.

    A tool that hangs in a thread cannot be stopped. `asyncio.run` would wait for it forever; this does not.
    Raises UsageError where an event loop runs already.
    """
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        pass
    else:
        main.close()
        raise UsageError("an event loop runs here already", hint="In it, write: await serve_stdio(tools)")
    loop = _new_loop()
    asyncio.set_event_loop(loop)
    status = loop.run_until_complete(main)
    loop.run_until_complete(loop.shutdown_asyncgens())
    if all(thread.daemon or thread is threading.main_thread() for thread in threading.enumerate()):
        loop.close()
        sys.exit(status)
    atexit._run_exitfuncs()  # noqa: SLF001 - as `sys.exit` does, without waiting for threads
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError):
            pass
    os._exit(status)


def _new_loop() -> asyncio.AbstractEventLoop:
    """Return a loop of uvloop where that is installed: a call over standard input costs a sixth less."""
    try:
        from uvloop import new_event_loop
    except ImportError:  # Only the extra `http` brings it.
        return asyncio.new_event_loop()
    return new_event_loop()


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
