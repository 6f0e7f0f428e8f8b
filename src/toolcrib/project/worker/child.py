"""The processes that the supervisor of a worker starts. Each follows the supervisor and opens the project.

One makes the steps of runs, records the tools, and says what the worker serves. The executors each run one
attempt of a call at a time.
"""

from __future__ import annotations

import asyncio
import importlib
import json
import logging
import os
import resource
import signal
import socket
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from toolcrib.builtin.names import NAMES
from toolcrib.core.signals import defaults_in_forks
from toolcrib.errors import StateUnavailable, ToolcribError, UsageError
from toolcrib.project.project import Project
from toolcrib.runs import ClaimedCall
from toolcrib.runs.ending import HandedBack, as_json, context_of, ending_of
from toolcrib.runs.leases import BEAT_S
from toolcrib.runs.processes.children import MAX_LINE
from toolcrib.runs.serving import note_lost
from toolcrib.runs.sessions import ClaimedRun
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


_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_log = logging.getLogger("toolcrib.runs")


def main(role: str, number: str) -> None:
    """Open the project and serve the supervisor on the socket of this number; the process ends with it.

    The first message is `root`, `data`, `app`, `database`, `memory_bytes`.
    """
    _follow_supervisor()
    try:
        with defaults_in_forks(_SIGNALS):
            asyncio.run(_serve(socket.socket(fileno=int(number)), role))
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


async def _serve(sock: socket.socket, role: str) -> None:
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
        await _SERVE[role](project, supervisor)


def _set_up(app: str, project: Project) -> None:
    """Call `MODULE:FUNCTION` with the project: it registers the tools of a program."""
    module, _, name = app.partition(":")
    sys.path.insert(0, os.getcwd())  # Only a program's own `--app` is imported from here.
    try:
        function = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError) as error:
        raise UsageError(f"--app {app}: {error}", hint="Write MODULE:FUNCTION.") from None
    function(project)


async def _serve_steps(project: Project, supervisor: Supervisor) -> None:
    telling = asyncio.create_task(_tell(project, supervisor))
    steps: dict[str, asyncio.Task[None]] = {}
    try:
        async for message in supervisor.messages():
            if "stop" in message:
                if (step := steps.get(message["stop"])) is not None:
                    step.cancel()
                continue
            key = message["key"]
            steps[key] = asyncio.create_task(_step(project, message, supervisor))
            steps[key].add_done_callback(lambda _, key=key: steps.pop(key))  # type: ignore[misc]
    finally:
        telling.cancel()


async def _tell(project: Project, supervisor: Supervisor) -> None:
    """Send what this worker may run: at the start, and whenever it has changed."""
    told, refused, loading = None, "", None
    while True:
        try:
            offer = await asyncio.to_thread(project.offer)
        except StateUnavailable as error:  # Its tools are recorded once the database answers.
            note_lost(project.calls.stored.database, error)
            offer = project.calls.offer()
        except ToolcribError as error:  # As of a lock that cannot be read. What was told last still counts.
            if str(error) != refused:
                refused = str(error)
                _log.error("this worker cannot tell what it may run: %s", refused)
            await asyncio.sleep(BEAT_S)
            continue
        refused = ""
        if offer is not told:
            told = offer
            await supervisor.send(offer._asdict())
            if loading is None:
                loading = asyncio.create_task(_load(project, supervisor))
        await asyncio.sleep(BEAT_S)


async def _load(project: Project, supervisor: Supervisor) -> None:
    """Load the libraries of models where there are agents: their first run must not wait for it."""
    if await asyncio.to_thread(project.agents.listed):
        await asyncio.to_thread(project.advance.load)
        await supervisor.send({"loaded": project.advance.has_loaded()})


async def _step(project: Project, message: dict[str, Any], supervisor: Supervisor) -> None:
    try:
        await project.advance(ClaimedRun.of(message["claim"]))
    except StateUnavailable as error:  # Nothing was recorded, so the step is rescued.
        note_lost(project.calls.stored.database, error)
    finally:
        await supervisor.send({"ended": message["key"], "loaded": project.advance.has_loaded()})


async def _serve_attempts(project: Project, supervisor: Supervisor) -> None:
    await supervisor.send({"ready": True})
    attempt: asyncio.Task[None] | None = None
    async for message in supervisor.messages():
        if "stop" not in message:
            attempt = asyncio.create_task(_run(project, message, supervisor))
        elif attempt is not None:
            attempt.cancel()


async def _run(project: Project, message: dict[str, Any], supervisor: Supervisor) -> None:
    """Run one attempt and send its ending."""
    claim = ClaimedCall(**{**message, "arguments": message["arguments"].encode()})
    ctx = context_of(claim)
    try:
        if claim.tool in NAMES:  # An agent that came later may list it.
            project.agents.switch_on(project.catalog.builtins)
        with suppress(ToolcribError):  # The call itself reports it.
            limit_ms = min(project.bound(claim.tool).timeout_ms, ctx.timeout_ms or sys.maxsize)
            await supervisor.send({"limit_s": limit_ms / 1000})
        ending = as_json(ending_of(ctx, await project.invoke(ctx)))
    except asyncio.CancelledError:
        ending = as_json(HandedBack())
    await supervisor.send(ending)


_SERVE: Mapping[str, Callable[[Project, Supervisor], Awaitable[None]]] = {
    "steps": _serve_steps,
    "executor": _serve_attempts,
}

if __name__ == "__main__":
    main(*sys.argv[1:])
