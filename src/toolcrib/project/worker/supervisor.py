"""A worker of a project: the supervisor takes calls and keeps them, executor processes run them."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Callable, Mapping
from functools import partial

from toolcrib.builtin.names import NAMES
from toolcrib.project.project import Project
from toolcrib.runs import worker_name
from toolcrib.runs.executors import Executors
from toolcrib.state import named_database

# -P: otherwise Python searches the working folder first, and runs modules that a project put there.
_EXECUTOR = (sys.executable, "-P", "-m", "toolcrib.project.worker.execution")


async def serve_worker(
    project: Project,
    stop: asyncio.Event,
    *,
    app: str | None = None,
    concurrency: int = 4,
    grace_s: float = 10.0,
    memory_bytes: int | None = None,
    announce: Callable[[int], None] | None = None,
) -> None:
    """Serve the durable calls of a project's tools until `stop` is set.

    Then nothing more is taken, and what has not ended within `grace_s` seconds is given back. Each of
    `concurrency` executor processes runs one call at a time and uses at most `memory_bytes`. `app` is
    `MODULE:FUNCTION`, called with the project in each process to register tools. `announce` gets the number
    of tools once the worker serves. Raises `UnavailableError` if executor processes do not start.
    """
    folders = {"root": os.fspath(project.root), "data": os.fspath(project.vault.data)}
    settings = {**folders, "app": app, "database": named_database(), "memory_bytes": memory_bytes}
    begin = partial(project.calls.stored.begin, worker=worker_name())
    executors = Executors(_EXECUTOR, settings, concurrency, begin)

    def tools() -> Mapping[str, int | None]:
        """Return those of the executors, with built-in tools that agents have listed since they started."""
        here = project.calls.concurrency()
        return {**{name: here[name] for name in here.keys() & set(NAMES)}, **executors.tools}

    # Before the worker: only what these processes have says which calls it may take.
    await executors.start()
    try:
        worker = project.calls.worker(
            executors.run, tools, kind="worker", concurrency=concurrency, begins=executors.are_complete
        )
        serving = None if announce is None else partial(announce, len(tools()))
        await worker.run(stop, grace_s, serving)
    finally:
        await executors.close()
