"""The executor process of a worker: opens the project and runs one attempt at a time for its supervisor."""

from __future__ import annotations

import asyncio
import importlib
import json
import os
import resource
import signal
import socket
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

from toolcrib.builtin.names import NAMES
from toolcrib.errors import ToolcribError, UsageError
from toolcrib.project.project import Project
from toolcrib.runs import ClaimedCall
from toolcrib.runs.ending import HandedBack, as_json, context_of, ending_of
from toolcrib.sandbox.kernel.libc import PR_SET_PDEATHSIG, prctl
from toolcrib.state import name_database

_LONGEST_LINE = 64 * 1_048_576


def main(number: str) -> None:
    """Serve the supervisor on the socket of this number; the process ends with its supervisor.

    The first line on it is JSON: `root`, `data`, `app`, `database`, `memory_bytes`.
    """
    _follow_supervisor()
    try:
        asyncio.run(_serve(socket.socket(fileno=int(number))))
    except ToolcribError as error:
        sys.stderr.write(f"executor: error[{error.code}]: {error}\n")
        sys.exit(1)
    except MemoryError:
        sys.stderr.write("executor: the project takes more memory than --memory-mb; make it larger\n")
        sys.exit(1)
    os._exit(0)  # A tool that hangs in a thread cannot be stopped.


def _follow_supervisor() -> None:
    """End with the supervisor, leave signals to it, and be ended first when memory is short."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    parent = os.getppid()
    prctl("parent death signal", PR_SET_PDEATHSIG, signal.SIGKILL)
    # It may have died before `prctl`: then no signal comes.
    if os.getppid() != parent:
        os._exit(0)
    with suppress(OSError):
        # The supervisor knows which calls run, so it must outlive them.
        Path("/proc/self/oom_score_adj").write_text("1000", encoding="ascii")


def _set_up(app: str, project: Project) -> None:
    """Call `MODULE:FUNCTION` with the project: it registers the tools of a program."""
    module, _, name = app.partition(":")
    sys.path.insert(0, os.getcwd())  # Only a program's own `--app` is imported from here.
    try:
        function = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError) as error:
        raise UsageError(f"--app {app}: {error}", hint="Write MODULE:FUNCTION.") from None
    function(project)


async def _serve(sock: socket.socket) -> None:
    reader, writer = await asyncio.open_unix_connection(sock=sock, limit=_LONGEST_LINE)
    settings: dict[str, Any] = json.loads(await reader.readline())
    if settings["memory_bytes"] is not None:
        resource.setrlimit(resource.RLIMIT_DATA, (settings["memory_bytes"], resource.RLIM_INFINITY))
    name_database(settings["database"])
    data = settings["data"]
    async with Project.open(settings["root"], data=None if data is None else Path(data)) as project:
        if settings["app"]:
            _set_up(settings["app"], project)
        project.tools()  # Those of bundles are loaded by this.
        tools = project.calls.concurrency()
        writer.write(json.dumps({"tools": tools}).encode() + b"\n")
        await writer.drain()
        attempt: asyncio.Task[None] | None = None
        while line := await reader.readline():
            message = json.loads(line)
            if "stop" not in message:
                attempt = asyncio.create_task(_run(project, message, writer))
            elif attempt is not None:
                attempt.cancel()


async def _run(project: Project, message: dict[str, Any], writer: asyncio.StreamWriter) -> None:
    """Run one attempt and write its ending."""
    claim = ClaimedCall(**{**message, "arguments": message["arguments"].encode()})
    ctx = context_of(claim)
    try:
        if claim.tool in NAMES:  # An agent that came later may list it.
            project.agents.switch_on(project.catalog.builtins)
        with suppress(ToolcribError):  # The call itself reports it.
            limit_ms = min(project.bound(claim.tool).timeout_ms, ctx.timeout_ms or sys.maxsize)
            writer.write(json.dumps({"limit_s": limit_ms / 1000}).encode() + b"\n")
        ending = as_json(ending_of(ctx, await project.invoke(ctx)))
    except asyncio.CancelledError:
        ending = as_json(HandedBack())
    # Not in ASCII, in which text of most alphabets has three times its length.
    writer.write(json.dumps(ending, ensure_ascii=False).encode(errors="surrogatepass") + b"\n")
    await writer.drain()


if __name__ == "__main__":
    main(*sys.argv[1:])
