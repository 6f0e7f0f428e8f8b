"""The process of a worker that makes the steps of its runs, records its tools, and says what it serves."""

from __future__ import annotations

import asyncio
import logging
import sys
from typing import Any

from toolcrib.errors import StateUnavailable, ToolcribError
from toolcrib.project.project import Project
from toolcrib.project.worker.child import Supervisor, main
from toolcrib.runs.leases import BEAT_S
from toolcrib.runs.serving import note_lost
from toolcrib.runs.sessions import ClaimedRun

_log = logging.getLogger("toolcrib.runs")


async def _serve(project: Project, supervisor: Supervisor) -> None:
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


if __name__ == "__main__":
    main("steps", sys.argv[1], _serve)
