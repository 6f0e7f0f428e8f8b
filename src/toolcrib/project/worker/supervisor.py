"""A worker of a project: the supervisor takes calls and runs and keeps them; other processes run them.

The supervisor runs neither code of the project nor of model providers, so nothing keeps it from renewing its
leases.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any

from toolcrib.project.project import Project
from toolcrib.runs import Offer, worker_name
from toolcrib.runs.processes.executors import Executors
from toolcrib.runs.processes.stepper import Stepper
from toolcrib.state import named_database

# -P: otherwise Python searches the working folder first, and runs modules that a project put there.
_CHILD = (sys.executable, "-P", "-m", "toolcrib.project.worker.child")


async def serve_worker(
    project: Project,
    stop: asyncio.Event,
    *,
    app: str | None = None,
    concurrency: int = 4,
    grace_s: float = 10.0,
    memory_bytes: int | None = None,
    announce: Callable[[Offer], None] | None = None,
) -> None:
    """Serve the durable calls of a project's tools, and its runs, until `stop` is set.

    Then nothing more is taken, and what has not ended within `grace_s` seconds is given back. Each of
    `concurrency` executor processes runs one call at a time and uses at most `memory_bytes`. `app` is
    `MODULE:FUNCTION`, called with the project in each process to register tools. `announce` gets what the
    worker serves, once it does. Raises `NotTrusted` for a project that nobody has accepted, unless the
    program has tools of its own, and `UnavailableError` if processes do not start.
    """
    if app is None and not project.trust.given:
        raise project.trust.refusal(own=True)
    folders = {"root": project.place.target, "data": os.fspath(project.vault.data)}
    settings = {**folders, "app": app, "database": named_database(), "memory_bytes": None}
    stepper = Stepper((*_CHILD, "steps"), settings)
    limited = {**settings, "memory_bytes": memory_bytes}
    begin = partial(project.calls.stored.begin, worker=worker_name())
    executors = Executors((*_CHILD, "executor"), limited, concurrency, begin)
    try:
        # Before the worker: only these processes know which calls it may take.
        await _together(stepper.start(), executors.start())
        worker = project.calls.worker(
            executors.run,
            lambda: stepper.offer,
            stepper.advance,
            lambda: stepper.has_loaded,
            kind="worker",
            concurrency=concurrency,
            begins=executors.are_complete,
        )
        serving = None if announce is None else partial(announce, stepper.offer)
        await worker.run(stop, grace_s, serving)
    finally:
        await stepper.close()
        await executors.close()


async def _together(*starts: Coroutine[Any, Any, None]) -> None:
    """Wait for all; where one fails the others are cancelled."""
    tasks = [asyncio.ensure_future(one) for one in starts]
    try:
        await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
