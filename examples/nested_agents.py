"""Nested agents on three levels: each calls the next one as a tool, and all share the run's variables.

Run it: python examples/nested_agents.py
"""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path

from toolcrib import Agent, Project, must_get_variable


def read_notes(topic: str) -> str:
    """Return the notes on a topic. The project is a variable of the run, inherited on every level."""
    return f"notes on {topic} of {must_get_variable('project_id', str)}"


RESEARCHER = Agent(
    "researcher",
    "scripted",
    description="Finds facts.",
    tools=("read_notes",),
    script=(
        {"calls": [{"tool": "read_notes", "arguments": {"topic": "{{prompt}}"}}]},
        {"text": "found {{result}}"},
    ),
)
WRITER = Agent(
    "writer",
    "scripted",
    description="Writes a text.",
    agents=("researcher",),
    script=(
        {"calls": [{"tool": "researcher", "arguments": {"prompt": "{{prompt}}"}}]},
        {"text": "wrote what was {{result}}"},
    ),
)
MANAGER = Agent(
    "manager",
    "scripted",
    agents=("writer",),
    script=(
        {"calls": [{"tool": "writer", "arguments": {"prompt": "lathes"}}]},
        {"text": "The writer {{result}}."},
    ),
)


async def main() -> None:
    """Run the one at the top, and print the tree."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, ".toolcrib").mkdir()
        async with Project.open(folder, accept="all", data=Path(folder, "data")) as project:
            project.toolset.register(read_notes)
            project.agents.add(RESEARCHER)
            project.agents.add(WRITER)
            run = await project.runs.run(None, MANAGER, "Write about lathes.", {"project_id": "proj-123"})
            print(run.answer)
            for one in project.runs.tree(run.id):
                print("  " * one.depth + f"{one.agent}: {one.state} after {one.iteration} steps")


if __name__ == "__main__":
    asyncio.run(main())
