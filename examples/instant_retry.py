"""Instant retry: in a run, a registered function that fails is tried once more, at once.

Run it: python examples/instant_retry.py
"""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path
from typing import Any

from toolcrib import Agent, Project, Retry

tried: dict[str, int] = {}


def fail(name: str, times: int) -> None:
    """Fail this many times."""
    tried[name] = tried.get(name, 0) + 1
    if tried[name] <= times:
        raise ConnectionError("the line was cut")


def flaky() -> str:
    """Fail once; the second attempt works."""
    fail("flaky", 1)
    return "got through"


def patient() -> str:
    """Fail three times."""
    fail("patient", 3)
    return "fourth time lucky"


def broken() -> None:
    """Fail every time."""
    fail("broken", 1_000)


NAMES = ("flaky", "patient", "broken")
CALLS: dict[str, Any] = {"calls": [{"tool": name} for name in NAMES]}
AGENT = Agent("caller", "scripted", tools=NAMES, script=(CALLS, {"text": "{{result}}"}))


async def main() -> None:
    """Let an agent call each of them, and print every attempt."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, ".toolcrib").mkdir()
        async with Project.open(folder, accept="all", data=Path(folder, "data")) as project:
            project.toolset.register(flaky)
            project.toolset.register("patient", patient, retry=Retry(max_attempts=4))  # one of its own
            project.toolset.register(broken)
            run = await project.runs.run(None, AGENT, "Call.")
            print(run.answer)
            for call in sorted(project.calls.page(), key=lambda call: call.tool):
                endings = [one["ending"] for one in project.calls.history(call.id)["history"]["attempts"]]
                print(call.tool, endings)


if __name__ == "__main__":
    asyncio.run(main())
