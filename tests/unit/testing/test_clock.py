"""The clock double."""

from __future__ import annotations

import asyncio

from toolcrib.testing import FakeClock


async def test_it_jumps_and_remembers() -> None:
    clock, turns = FakeClock(10.0), []  # type: tuple[FakeClock, list[str]]

    async def other() -> None:
        turns.append("other")

    task = asyncio.create_task(other())
    await clock.sleep(600)
    clock.advance(5)

    assert clock.now() == 615.0
    assert clock.slept == [600]
    assert turns == ["other"]
    await task
