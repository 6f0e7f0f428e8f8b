"""Distributed: two worker processes, each with a tool of its own; calls go where their tool is.

Run it: python examples/distributed.py
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from toolcrib import Project


def cut(plank: str) -> str:
    """Cut a plank."""
    return f"{plank} cut by {os.getpid()}"


def turn(leg: str) -> str:
    """Turn a leg."""
    return f"{leg} turned by {os.getpid()}"


def saw(project: Project) -> None:
    """Register the tool of the first worker."""
    project.toolset.register(cut)


def lathe(project: Project) -> None:
    """Register the tool of the second worker."""
    project.toolset.register(turn)


def worker(root: str, app: str) -> subprocess.Popen[str]:
    """Start `toolcrib worker --app distributed:APP`."""
    command = [sys.executable, "-m", "toolcrib", "worker", "--root", root, "--concurrency", "1"]
    here = {**os.environ, "PYTHONPATH": str(Path(__file__).parent)}
    return subprocess.Popen(
        [*command, "--app", f"distributed:{app}"], env=here, stderr=subprocess.PIPE, text=True
    )


async def main() -> None:
    """Submit two calls, neither of which this process runs."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, ".toolcrib").mkdir()
        workers = [worker(folder, "saw"), worker(folder, "lathe")]
        for process in workers:
            assert process.stderr is not None
            process.stderr.readline()  # It serves.
        async with Project.open(folder, accept="all") as project:
            saw(project)
            lathe(project)
            ids = [project.submit("cut", {"plank": "oak"}), project.submit("turn", {"leg": "ash"})]
            calls = [await project.calls.wait(call_id) for call_id in ids]
            print(*(call.outcome().unwrap() for call in calls), sep="\n")
            print("workers:", len({call.worker for call in calls}))
        for process in workers:
            process.terminate()
            process.communicate()


if __name__ == "__main__":
    asyncio.run(main())
