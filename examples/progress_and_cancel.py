"""A tool that reports its progress and is cancelled half-way.

Run it: python examples/progress_and_cancel.py
"""

from __future__ import annotations

import asyncio
from contextlib import aclosing

from toolcrib import Context, Result, Toolset
from toolcrib.spec import CallEvent

tools = Toolset()


@tools.tool
async def saw(planks: int, ctx: Context) -> str:
    """Saw planks, one after the other."""
    try:
        for number in range(1, planks + 1):
            await asyncio.sleep(0.02)
            ctx.progress(number, planks, "planks sawn")
    except asyncio.CancelledError:
        print("the saw stops")
        raise
    return f"{planks} planks"


async def main() -> None:
    """Listen to one call, cancel another at the third plank."""

    async for event in tools.stream("saw", {"planks": 2}):
        if isinstance(event, Result):
            print(event.value)
        elif event.kind == "progress":
            print(f"{event.done} of {event.total} {event.message}")

    async with aclosing(tools.stream("saw", {"planks": 1000})) as events:
        async for event in events:
            if isinstance(event, CallEvent) and event.done == 3:
                break  # Leaving the stream cancels the call.
    print("the call was cancelled")


if __name__ == "__main__":
    asyncio.run(main())
