"""A tool that reports its progress and is cancelled half-way.

Run it: python examples/progress_and_cancel.py
"""

from __future__ import annotations

import asyncio

from toolcrib import Context, Toolset

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

    def heard(done: float, total: float | None, message: str) -> None:
        print(f"{done} of {total} {message}")

    print(await tools.execute("saw", {"planks": 2}, on_progress=heard))

    third = asyncio.Event()

    def listen(done: float, *_: object) -> None:
        if done == 3:
            third.set()

    task = asyncio.create_task(tools.call("saw", {"planks": 1000}, on_progress=listen))
    await third.wait()
    task.cancel()
    try:
        await task
    except asyncio.CancelledError:
        print("the call was cancelled")


if __name__ == "__main__":
    asyncio.run(main())
