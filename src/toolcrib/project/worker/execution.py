"""The executor process of a worker: runs one attempt at a time for its supervisor."""

from __future__ import annotations

import asyncio
import sys
from contextlib import suppress
from typing import Any

from toolcrib.builtin.names import NAMES
from toolcrib.errors import ToolcribError
from toolcrib.project.project import Project
from toolcrib.project.worker.child import Supervisor, main
from toolcrib.runs import ClaimedCall
from toolcrib.runs.ending import HandedBack, as_json, context_of, ending_of


async def _serve(project: Project, supervisor: Supervisor) -> None:
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


if __name__ == "__main__":
    main("executor", sys.argv[1], _serve)
