"""The beginning of each process that a supervisor starts: it follows the supervisor and opens the project."""

from __future__ import annotations

import asyncio
import importlib
import json
import os
import resource
import signal
import socket
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from toolcrib.core.signals import defaults_in_forks
from toolcrib.errors import ToolcribError, UsageError
from toolcrib.project.project import Project
from toolcrib.runs.processes.children import MAX_LINE
from toolcrib.sandbox.kernel.libc import PR_SET_PDEATHSIG, prctl
from toolcrib.state import name_database


class Supervisor:
    """The connection to the supervisor."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    async def send(self, message: Mapping[str, Any]) -> None:
        """Send a message."""
        # Not in ASCII, in which text of most alphabets has three times its length.
        text = json.dumps(message, ensure_ascii=False)
        self._writer.write(text.encode(errors="surrogatepass") + b"\n")
        await self._writer.drain()

    async def messages(self) -> AsyncIterator[dict[str, Any]]:
        """Yield its messages until it has ended."""
        while line := await self._reader.readline():
            yield json.loads(line)


Serve = Callable[[Project, Supervisor], Awaitable[None]]


_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def main(role: str, number: str, serve: Serve) -> None:
    """Open the project and serve the supervisor on the socket of this number; the process ends with it.

    The first message is `root`, `data`, `app`, `database`, `memory_bytes`.
    """
    _follow_supervisor()
    try:
        with defaults_in_forks(_SIGNALS):
            asyncio.run(_serve(socket.socket(fileno=int(number)), serve))
    except ToolcribError as error:
        sys.stderr.write(f"{role}: error[{error.code}]: {error}\n")
        sys.exit(1)
    except MemoryError:
        sys.stderr.write(f"{role}: the project takes more memory than --memory-mb; make it larger\n")
        sys.exit(1)
    os._exit(0)  # A tool that hangs in a thread cannot be stopped.


def _follow_supervisor() -> None:
    """End with the supervisor, leave signals to it, and be ended first when memory is short."""
    for number in _SIGNALS:
        # A function: what a tool starts would inherit that a signal is ignored.
        signal.signal(number, lambda *_: None)
    parent = os.getppid()
    prctl("parent death signal", PR_SET_PDEATHSIG, signal.SIGKILL)
    # It may have died before `prctl`: then no signal comes.
    if os.getppid() != parent:
        os._exit(0)
    with suppress(OSError):
        # The supervisor knows which calls run, so it must outlive them.
        Path("/proc/self/oom_score_adj").write_text("1000", encoding="ascii")


async def _serve(sock: socket.socket, serve: Serve) -> None:
    supervisor = Supervisor(*await asyncio.open_unix_connection(sock=sock, limit=MAX_LINE))
    settings = await anext(supervisor.messages())
    if settings["memory_bytes"] is not None:
        resource.setrlimit(resource.RLIMIT_DATA, (settings["memory_bytes"], resource.RLIM_INFINITY))
    name_database(settings["database"])
    data = settings["data"]
    project = Project.open(settings["root"], data=None if data is None else Path(data))
    if settings["app"]:
        _set_up(settings["app"], project)
    async with project:  # Only now, so that the tools of the program are opened too.
        project.tools()  # Those of bundles are loaded by this.
        await serve(project, supervisor)


def _set_up(app: str, project: Project) -> None:
    """Call `MODULE:FUNCTION` with the project: it registers the tools of a program."""
    module, _, name = app.partition(":")
    sys.path.insert(0, os.getcwd())  # Only a program's own `--app` is imported from here.
    try:
        function = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError) as error:
        raise UsageError(f"--app {app}: {error}", hint="Write MODULE:FUNCTION.") from None
    function(project)
