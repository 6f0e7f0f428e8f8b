"""Parallel tools: coroutines on the event loop, plain functions in threads.

Run it: python examples/parallel_execution.py
"""

from __future__ import annotations

import asyncio
import time

from toolcrib import Toolset

tools = Toolset()


@tools.tool
async def look_up(word: str) -> str:
    """Wait for a service without holding anybody up."""
    await asyncio.sleep(0.2)
    return f"{word}: found"


@tools.tool
def grind(word: str) -> str:
    """Block; a plain function runs in a thread, so the event loop goes on."""
    time.sleep(0.2)
    return f"{word}: ground"


async def main() -> None:
    """Ten calls of 0.2 seconds each, all at once."""
    words = ["oak", "ash", "elm", "fir", "yew"]
    started = time.perf_counter()
    calls = [tools.call(name, {"word": word}) for name in ("look_up", "grind") for word in words]
    results = await asyncio.gather(*calls)
    took = time.perf_counter() - started
    print(", ".join(str(result.value) for result in results))
    one_by_one = sum(result.duration_ms for result in results) / 1000
    print(f"{len(results)} calls of 0.2 s in {took:.1f} s; one after another they take {one_by_one:.1f} s")
    print("at once:", took < one_by_one / 2)


if __name__ == "__main__":
    asyncio.run(main())
