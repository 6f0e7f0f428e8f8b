"""Exponential backoff: with jitter, the pause after attempt n is n⁴ seconds, give or take.

Run it: python examples/exponential_backoff.py
"""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path

from toolcrib import Agent, Project, Retry, Toolset
from toolcrib.testing import FakeClock

BACKOFF = Retry(max_attempts=6, jitter=0.1)
tried: list[str] = []


def unreliable() -> str:
    """Call a service that is down for a moment."""
    tried.append("unreliable")
    if len(tried) == 1:
        raise ConnectionError("the service is down")
    return "the service is up"


async def in_a_run() -> None:
    """Wait for the first pause: nothing is held meanwhile, and a restart does not lose it."""
    calls = {"calls": [{"tool": "unreliable"}]}
    agent = Agent("caller", "scripted", tools=("unreliable",), script=(calls, {"text": "{{result}}"}))
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, ".toolcrib").mkdir()
        async with Project.open(folder, accept="all", data=Path(folder, "data")) as project:
            project.toolset.register(unreliable, retry=BACKOFF)
            run = await project.runs.run(None, agent, "Call the service.")
            (call,) = project.calls.page()
            first, second = project.calls.stored.attempts(call.id)
            pause = second.began_at - (first.ended_at or 0)
            print(f"{run.answer}; waited for 0.9 s or more: {pause >= 0.9}")


async def by_the_clock() -> None:
    """Let all attempts fail, by a clock that jumps and notes each pause."""
    clock = FakeClock()
    tools = Toolset(retry=BACKOFF, clock=clock)

    @tools.tool
    async def down() -> None:
        """Call a service that is down."""
        raise ConnectionError("the service is down")

    await tools.call("down")
    for number, pause in enumerate(clock.slept, 1):
        print(f"after attempt {number}: within 10 % of {number**4} s: {abs(pause / number**4 - 1) <= 0.1}")


async def main() -> None:
    """Show the first pause in a run, and then all of them."""
    await in_a_run()
    await by_the_clock()


if __name__ == "__main__":
    asyncio.run(main())
