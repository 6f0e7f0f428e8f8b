"""Parallel tools: the calls of one model step run side by side, coroutines and plain functions alike.

Run it: python examples/parallel_execution.py
"""

from __future__ import annotations

import asyncio
import tempfile
import time
from pathlib import Path

from toolcrib import Agent, Project

WORDS = ("oak", "ash", "elm", "yew")


async def look_up(word: str) -> str:
    """Wait for a service without holding anybody up."""
    await asyncio.sleep(0.3)
    return f"{word}: found"


def grind(word: str) -> str:
    """Block; a plain function runs in a thread, so the event loop continues."""
    time.sleep(0.3)
    return f"{word}: ground"


CALLS = [{"tool": name, "arguments": {"word": word}} for name in ("look_up", "grind") for word in WORDS]
AGENT = Agent(
    "miller", "scripted", tools=("look_up", "grind"), script=({"calls": CALLS}, {"text": "{{result}}"})
)


async def main() -> None:
    """Eight calls of 0.3 seconds each, all asked for in one step."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, ".toolcrib").mkdir()
        async with Project.open(folder, accept="all", data=Path(folder, "data")) as project:
            project.toolset.register(look_up)
            project.toolset.register(grind)
            run = await project.runs.run(None, AGENT, "Grind them.")
            print((run.answer or "").replace("\n", ", "))
            calls = project.calls.page()
            took = max(call.ended_at or 0 for call in calls) - min(call.submitted_at for call in calls)
            print(f"{len(calls)} calls of 0.3 s in {took:.1f} s")
            print("at once:", took < len(calls) * 0.3 / 2)


if __name__ == "__main__":
    asyncio.run(main())
