"""The end of a process that serves."""

from __future__ import annotations

import asyncio
import atexit
import os
import sys
import threading
from collections.abc import Coroutine
from typing import Any, NoReturn

from toolcrib.errors import UsageError


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
