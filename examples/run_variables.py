"""Run variables: values that a tool needs and the model must not choose.

Run it: python examples/run_variables.py
"""

from __future__ import annotations

import asyncio

from toolcrib import (
    Context,
    Toolset,
    get_run_context,
    get_run_id,
    get_session_id,
    get_variable,
    get_variable_or,
    get_variables,
    must_get_variable,
)

tools = Toolset()


@tools.tool
def continue_story(words: int = 100) -> str:
    """Continue the story of this run."""
    tenant = must_get_variable("tenant_id", str)  # raises if it is not set or not a text
    story = get_variable("story_id", str)  # None if it is not set or not a text
    chapters = get_variable_or("max_chapters", 10)
    return f"{words} words for {story} of {tenant}, at most {chapters} chapters, {sorted(get_variables())}"


@tools.tool
async def where_am_i(ctx: Context) -> dict[str, object]:
    """Tell the call apart. The parameter `ctx` is no argument: the model never sees it."""
    run = get_run_context()
    return {
        "run": get_run_id(),
        "session": get_session_id(),
        "same": run is not None and run.run_id == ctx.run_id,
        "attempt": ctx.attempt,
        "limit_ms": ctx.limit_ms,
    }


async def main() -> None:
    """Two runs of different tenants, one call without what it needs."""
    print("arguments the model may give:", list(tools.get("continue_story").input_schema["properties"]))
    for tenant in ("tenant-1", "tenant-2"):
        variables = {"tenant_id": tenant, "story_id": "story-123"}
        print(await tools.execute("continue_story", {"words": 50}, variables=variables))
    print(await tools.execute("where_am_i", run_id="run-7", session_id="session-1"))
    result = await tools.call("continue_story")
    assert result.error is not None
    print("without variables:", result.error.message)


if __name__ == "__main__":
    asyncio.run(main())
