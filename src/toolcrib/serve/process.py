"""A process that serves MCP on standard input and output, and its end."""

from __future__ import annotations

import asyncio
import atexit
import os
import sys
import threading
from collections.abc import Coroutine
from functools import partial
from typing import TYPE_CHECKING, Any, NoReturn

from toolcrib.errors import UsageError
from toolcrib.serve.mcp import Sender, ServerSettings
from toolcrib.serve.mcp.stdio import serve_pipes

if TYPE_CHECKING:
    from toolcrib.core.toolset import Toolset
    from toolcrib.project import Project

_AT_TERMINAL = (
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


async def serve_project(project: Project, token: str | None) -> int:
    """Serve an open project on standard input and output until the client goes. Return 0.

    With a token the client sees and calls what the token allows. Raises InvalidToken, and ConfigError if the
    user's own settings are wrong: else each call would fail for them.
    """
    from toolcrib.guard import Tokens
    from toolcrib.project.mcp_catalog import mcp_catalog
    from toolcrib.state import load_user_settings

    load_user_settings()
    if sys.stdin.isatty():
        how = f"toolcrib connect HOST{project.place.option}"
        sys.stderr.write(f"{_AT_TERMINAL}\nTo add it to a client: {how}\n")
    verify = None if token is None else partial(Tokens(project.vault).verify, token)
    identity = None if verify is None else verify()
    sender = Sender(None if identity is None else f"token:{identity.name}", identity, verify)
    return await serve_pipes(mcp_catalog(project), ServerSettings.of_project(project), sender)


def serve_program(tools: Toolset) -> NoReturn:
    """Serve the program of this process, with its toolset, as `toolcrib serve FILE.py` does."""
    from toolcrib.project import Program, Project

    # As the command line does: tools and what they start must not read it.
    token = os.environ.pop("TOOLCRIB_TOKEN", None)

    async def serve() -> int:
        async with Project.open(Program.running(tools)) as project:
            if project.note:
                sys.stderr.write(f"note: {project.note}\n")
            return await serve_project(project, token)

    run_until_end(serve())
