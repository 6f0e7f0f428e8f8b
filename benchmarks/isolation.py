"""A registered function in a process of its own, beside the standard library's way to one."""

from __future__ import annotations

import asyncio

from benchmarks.confined import Run, cold, warm
from benchmarks.setting import Setting
from benchmarks.sums import add
from benchmarks.table import Reach, Row, Table
from benchmarks.timing import interleave


def isolation(setting: Setting, loop: asyncio.AbstractEventLoop) -> Table:
    """A process a call: made for it, or ready before."""
    ours = _isolated()
    samplers = {
        "concurrent.futures, one process a call": cold(loop, _pooled),
        "isolation: process, cold": cold(loop, ours),
        "isolation: process, a spare ready": warm(loop, ours),
    }
    reaches = {"isolation: process, a spare ready": Reach(3, "wall")}
    rows = [Row(name, reach=reaches.get(name, ())) for name in samplers]
    rows[2].deferred = "the process was made before"
    table = Table("Call a registered function in a process of its own", "ms", rows)
    table.take(interleave(samplers, setting.effort(25), times=1))
    return table


async def _pooled() -> None:
    from concurrent.futures import ProcessPoolExecutor
    from multiprocessing import get_context

    with ProcessPoolExecutor(1, get_context("forkserver")) as pool:
        if await asyncio.get_running_loop().run_in_executor(pool, add, 1, 2) != 3:
            raise RuntimeError("a wrong sum")


def _isolated() -> Run:
    from toolcrib import Toolset

    tools = Toolset()
    tools.register("add", add, isolation="process")

    async def run() -> None:
        if await tools.execute("add", {"a": 1, "b": 2}) != 3:
            raise RuntimeError("a wrong sum")

    return run
