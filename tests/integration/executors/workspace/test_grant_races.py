"""A tool that may write in the project swaps what another tool was granted with a link that leads out."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from typing import Any

import pytest

from tests.crib import Crib
from toolcrib import Project

SECONDS = 0.5
PATIENCE = 60.0
"""A busy machine gets this long to come to the least number of calls that succeed."""
LEAST = 5
SWAP = """
import ctypes, os, time

def run(pairs, seconds):
    renameat2 = ctypes.CDLL(None, use_errno=True).renameat2
    until = time.monotonic() + seconds
    while time.monotonic() < until and not os.path.exists("stop"):
        for first, second in pairs:
            if renameat2(-100, os.fsencode(first), -100, os.fsencode(second), 2) < 0:
                raise OSError(ctypes.get_errno(), "renameat2")
"""
SWAP_INPUT = {"pairs": {"type": "array"}, "seconds": {"type": "number"}}


@dataclass
class Counts:
    inside: int = 0
    outside: int = 0
    refused: int = 0


def arrange(crib: Crib, grant: str) -> None:
    """Tools of both kinds that read and write below one grant, and the tool that swaps."""
    crib.write("data/deep/file", "inside")
    crib.write("../outside/deep/file", "CANARY")
    crib.write("../outside/file", "outside")
    (crib.root / "other").symlink_to("../outside")
    (crib.root / "data/other").symlink_to("../../outside")
    crib.python(
        SWAP, "swap", SWAP_INPUT, config={"kwargs": {"pairs": "${pairs}", "seconds": "${seconds}"}},
        permissions={"fs": {"write": ["."]}}, limits={"timeout_ms": 120_000},
    )  # fmt: skip
    read, write = {"fs": {"read": [grant]}}, {"fs": {"write": [grant]}}
    crib.tool("read", "file", {"action": "read", "path": "data/deep/file"}, permissions=read)
    crib.tool(
        "write", "file", {"action": "write", "path": "data/deep/made", "content": "x"}, permissions=write
    )
    text: dict[str, Any] = {"outputs": {"format": "text"}}
    crib.tool("cat", "command", {"entrypoint": "cat", "args": ["data/deep/file"]}, permissions=read, **text)
    crib.tool(
        "touch", "command", {"entrypoint": "touch", "args": ["data/deep/made"]}, permissions=write, **text
    )


async def count(project: Project, crib: Crib, pair: tuple[str, str], seconds: float) -> dict[str, Counts]:
    """Call each tool again and again while the two places are swapped."""
    counts = {name: Counts() for name in ("read", "write", "cat", "touch")}
    swapping = asyncio.create_task(project.call("swap", {"pairs": [pair], "seconds": PATIENCE + seconds}))
    made = crib.root.parent / "outside/deep/made"
    start = time.monotonic()
    while (spent := time.monotonic() - start) < seconds or (
        spent < PATIENCE and any(one.inside < LEAST for one in counts.values())
    ):
        for name, one in counts.items():
            result = await project.call(name)
            await asyncio.sleep(0)
            one.outside += made.exists() or "CANARY" in str(result.value)
            one.inside += result.ok
            one.refused += not result.ok
            made.unlink(missing_ok=True)
    crib.write("stop", "")
    swapped = await swapping
    assert swapped.ok, swapped.error
    return counts


@pytest.mark.parametrize(
    ("grant", "pair"),
    [("data", ("data", "other")), ("data/deep", ("data", "other")), ("data", ("data/deep", "data/other"))],
    ids=["the grant", "above the grant", "below the grant"],
)
def test_nothing_outside_is_reached_while_a_grant_is_swapped(
    crib: Crib, grant: str, pair: tuple[str, str]
) -> None:
    arrange(crib, grant)

    async def race() -> dict[str, Counts]:
        async with crib.open() as project:
            return await count(project, crib, pair, SECONDS)

    counts = asyncio.run(race())
    assert {name: one.outside for name, one in counts.items()} == dict.fromkeys(counts, 0)
    assert all(one.inside >= LEAST for one in counts.values())
