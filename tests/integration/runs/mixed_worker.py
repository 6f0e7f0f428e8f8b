"""Serves the runs of `test_run_faults` until it is killed: `mixed_worker.py ROOT DATABASE`."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from tests.crib import Crib
from toolcrib import Context, ToolSnooze
from toolcrib.project import Project
from toolcrib.state.user_settings import name_database


def add_tools(project: Project) -> None:
    """Register the tools of the runs."""

    @project.toolset.tool(idempotent=True)
    async def nap(ms: int) -> int:
        """Sleep."""
        await asyncio.sleep(ms / 1000)
        return ms

    @project.toolset.tool(idempotent=True)
    def later(ctx: Context) -> int:
        """Ask twice to be tried later."""
        if ctx.snoozes < 2:
            raise ToolSnooze(0.05, "not yet")
        return ctx.snoozes


async def serve(root: Path, database: str) -> None:
    name_database(database)
    crib = object.__new__(Crib)
    crib.root, crib.home, crib.secrets, crib.accept = root, root / ".toolcrib", {}, "all"
    async with crib.open() as project:
        add_tools(project)
        project.calls.serve()
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(serve(Path(sys.argv[1]), sys.argv[2]))
