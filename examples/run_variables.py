"""Run variables: values that a tool needs and the model must not choose.

Run it: python examples/run_variables.py
"""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path

from toolcrib import (
    Agent,
    Context,
    Project,
    get_run_context,
    get_run_id,
    get_session_id,
    get_variable,
    get_variable_or,
    get_variables,
    must_get_variable,
)


def continue_story(words: int = 100) -> str:
    """Continue the story of this run."""
    tenant = must_get_variable("tenant_id", str)  # raises if it is not set or not a text
    story = get_variable("story_id", str)  # None if it is not set or not a text
    chapters = get_variable_or("max_chapters", 10)
    return f"{words} words for {story} of {tenant}, at most {chapters} chapters, {sorted(get_variables())}"


async def same_run(ctx: Context) -> bool:
    """Compare the ids. The parameter `ctx` is no argument: the model never sees it."""
    run = get_run_context()
    ids = (get_run_id(), get_session_id())
    return run is not None and (run.run_id, run.session_id) == ids == (ctx.run_id, ctx.session_id)


CALLS = [{"tool": "continue_story", "arguments": {"words": 50}}, {"tool": "same_run"}]
AGENT = Agent(
    "author",
    "scripted",
    tools=("continue_story", "same_run"),
    script=({"calls": CALLS}, {"text": "{{result}}"}),
)


async def main() -> None:
    """Two runs with variables, and one without what a tool needs."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, ".toolcrib").mkdir()
        async with Project.open(folder, accept="all", data=Path(folder, "data")) as project:
            project.toolset.register(continue_story)
            project.toolset.register(same_run)
            session = project.runs.create_session()
            given = {"tenant_id": "tenant-1", "story_id": "story-123"}
            for variables in (given, {**given, "max_chapters": 3}, None):
                run = await project.runs.run(session, AGENT, "Continue the story.", variables)
                print(run.answer)


if __name__ == "__main__":
    asyncio.run(main())
