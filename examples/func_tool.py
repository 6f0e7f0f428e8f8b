"""A function is a tool: its schema comes from its signature, its description from its docstring.

Run it: python examples/func_tool.py
"""

from __future__ import annotations

import asyncio
import tempfile
from datetime import UTC, datetime
from pathlib import Path
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from toolcrib import Agent, Project, ToolDiscard

MOON_LANDING = datetime(1969, 7, 20, 20, 17, tzinfo=UTC)


def landing_time(timezone: str) -> str:
    """Return the time of the first moon landing in a timezone, such as America/New_York."""
    try:
        return MOON_LANDING.astimezone(ZoneInfo(timezone)).isoformat()
    except (ZoneInfoNotFoundError, ValueError):
        raise ToolDiscard(f"there is no timezone {timezone}") from None


CLOCK = Agent(
    "clock",
    "scripted",  # With a key: "anthropic:claude-sonnet-5", and no script.
    instructions="Answer in one sentence.",
    tools=("landing_time",),
    script=(
        {"calls": [{"tool": "landing_time", "arguments": {"timezone": "Mars/Olympus"}}]},
        {"calls": [{"tool": "landing_time", "arguments": {"timezone": "UTC"}}], "text": "{{result}}"},
        {"text": "It was {{result}}."},
    ),
)


def main() -> None:
    """Ask an agent, and print what happened."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, ".toolcrib").mkdir()
        project = Project.open(folder, accept="all", data=Path(folder, "data"))
        project.toolset.register(landing_time)
        run = project.runs.run_sync(None, CLOCK, "When did they land on the moon?")
        print(run.answer)
        for step in project.runs.timeline(run.id)["iterations"]:
            print(step["number"], step["text"], [call["arguments"] for call in step["calls"]])
        asyncio.run(project.aclose())


if __name__ == "__main__":
    main()
