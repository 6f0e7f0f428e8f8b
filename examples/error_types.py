"""Error types: the exception that a tool raises decides how its call continues.

Run it: python examples/error_types.py
"""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path
from typing import Any

from toolcrib import Agent, Project, RetryableError, ToolCancel, ToolDiscard, ToolSnooze

tried: dict[str, int] = {}


def times(name: str) -> int:
    """Count the attempts of a tool."""
    tried[name] = tried.get(name, 0) + 1
    return tried[name]


def transient() -> str:
    """Fail for a moment: tried again, even where other errors are not."""
    if times("transient") == 1:
        raise RetryableError("busy")
    return "free again"


def locked() -> None:
    """Give up: trying again will not help."""
    raise ToolCancel("authentication failed")


def picky(user_id: str) -> None:
    """Refuse input that no schema can rule out."""
    raise ToolDiscard(f"there is no user {user_id}")


def limited() -> str:
    """Ask to be tried later, three times; that uses up no attempt."""
    if times("limited") <= 3:
        raise ToolSnooze(0.01, "rate limit")
    return "in the end"


TOOLS = (transient, locked, picky, limited)
ARGUMENTS = {"picky": {"user_id": "u-404"}}
CALLS: dict[str, Any] = {
    "calls": [{"tool": tool.__name__, "arguments": ARGUMENTS.get(tool.__name__)} for tool in TOOLS]
}


async def main() -> None:
    """Let an agent call each of them, and print what its model read and what it took."""
    script = (CALLS, {"text": "{{result}}"})
    agent = Agent("caller", "scripted", tools=tuple(tool.__name__ for tool in TOOLS), script=script)
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, ".toolcrib").mkdir()
        async with Project.open(folder, accept="all", data=Path(folder, "data")) as project:
            for tool in TOOLS:
                project.toolset.register(tool)
            run = await project.runs.run(None, agent, "Call.")
            print(run.answer)
            for call in sorted(project.calls.page(), key=lambda call: call.tool):
                print(f"{call.tool}: {call.state}, attempts {call.attempts}, snoozes {call.snoozes}")


if __name__ == "__main__":
    asyncio.run(main())
