"""What is handled together, and how one failure reaches those it concerns."""

from __future__ import annotations

import asyncio

from toolcrib.runs.serving import Together


async def test_what_comes_while_one_is_handled_is_handled_together() -> None:
    batches, go = list[list[str]](), asyncio.Event()

    async def handle(items: list[str]) -> list[str]:
        batches.append(items)
        await go.wait()
        if "bad" in items:
            raise OSError("broken")
        return [item.upper() for item in items]

    together = Together(handle, 2)
    adding = [asyncio.create_task(together.add("a"))]
    while not batches:  # noqa: ASYNC110 - the first one is alone
        await asyncio.sleep(0)
    adding += [asyncio.create_task(together.add(item)) for item in ("b", "bad", "gone", "c")]
    await asyncio.sleep(0)
    adding[3].cancel()  # Whoever added it waits no more; it is handled all the same.
    go.set()
    a, b, bad, gone, c = await asyncio.gather(*adding, return_exceptions=True)
    assert batches == [["a"], ["b", "bad"], ["gone", "c"]]
    assert (a, c) == ("A", "C")
    assert isinstance(b, OSError)
    assert isinstance(bad, OSError)
    assert isinstance(gone, asyncio.CancelledError)
    assert await together.add("later") == "LATER"
