"""Waiting longer after each failure: with jitter, the pause after attempt n is n⁴ seconds, give or take.

A clock that only notes the pauses takes the place of the real one, so that the example ends at once.

Run it: python examples/backoff.py
"""

from __future__ import annotations

import asyncio
import time

from toolcrib import Retry, Toolset


class NotingClock:
    """Waits for nothing and remembers for how long."""

    def __init__(self) -> None:
        self.pauses: list[float] = []

    def now(self) -> float:
        """Monotonic seconds."""
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        """Note the pause."""
        self.pauses.append(seconds)


async def main() -> None:
    """Let a tool fail six times."""
    clock = NotingClock()
    tools = Toolset(retry=Retry(max_attempts=6, jitter=0.1), clock=clock)

    @tools.tool
    async def unreliable() -> str:
        """Call a service that is down."""
        raise ConnectionError("the service is down")

    @tools.tool("steady", retry=Retry(max_attempts=3, backoff_ms=500))
    async def steady() -> str:
        """Call it with the same pause each time."""
        raise ConnectionError("the service is down")

    result = await tools.call("unreliable")
    for number, pause in enumerate(clock.pauses, 1):
        print(f"after attempt {number}: {pause:.2f} s, within 10 % of {number**4}")
    print("attempts:", result.attempts)

    clock.pauses.clear()
    await tools.call("steady")
    print("fixed:", clock.pauses)


if __name__ == "__main__":
    asyncio.run(main())
