"""Serves a project until a run has ended: `served_run.py ROOT RUN`. The first process dies in its tool."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path

from tests.crib import Crib


async def serve(root: Path, run_id: str) -> None:
    crib = object.__new__(Crib)
    crib.root, crib.home, crib.secrets, crib.accept = root, root / ".toolcrib", {}, "all"
    crib.secrets["FAKE_KEY"] = "k"
    async with crib.open() as project:

        @project.toolset.tool(idempotent=True)
        def look(place: str) -> str:
            """Look at a place; the first look at the cellar kills the process."""
            mark = root / f"looked-{place}"
            with mark.open("a") as file:
                file.write("x")
            if place == "cellar" and mark.stat().st_size == 1:
                os.kill(os.getpid(), signal.SIGKILL)
            return f"nothing in the {place}"

        run = await project.runs.wait(run_id, 100)
        print(run.state, run.answer, flush=True)


asyncio.run(serve(Path(sys.argv[1]), sys.argv[2]))
