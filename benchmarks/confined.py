"""Confined processes to be sampled: with a sandbox made for each call, or with one that waits ready."""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections.abc import Awaitable, Callable
from typing import Any
from unittest.mock import patch

from benchmarks.timing import Sampler
from toolcrib.sandbox import Confinement, Warmth
from toolcrib.sandbox import run as run_confined
from toolcrib.sandbox.host import pool as pools

Run = Callable[[], Awaitable[Any]]
PATIENCE = 0.5
"""Seconds to wait for a spare before it is called for again."""
SETTLED = 0.03
"""Seconds after which what was ended is gone, and what was ordered is made."""


def job_of(command: tuple[str, ...], **fields: Any) -> Confinement:
    """The job of one command without grants."""
    # An interpreter outside the system's folders is granted, read-only.
    program = os.path.realpath(command[0])
    grants = () if program.startswith(("/usr/", "/bin/")) else (os.path.realpath(sys.base_prefix),)
    return Confinement(argv=(program, *command[1:]), cwd="/tmp", read=grants, **fields)


async def ran(job: Confinement) -> bytes:
    """Run a job; what it wrote."""
    done = await run_confined(job)
    if done.exit_code != 0:
        raise RuntimeError(f"{job.argv[0]} ended with {done.exit_code}: {done.stderr[-300:]!r}")
    return done.stdout


def confined(command: tuple[str, ...], **fields: Any) -> Run:
    """Run one command in the sandbox, its output collected."""
    job = job_of(command, **fields)

    async def run() -> None:
        await ran(job)

    return run


def cold(loop: asyncio.AbstractEventLoop, run: Run) -> Sampler:
    """Sample with a sandbox made for each call; the launcher that makes it runs already."""
    return _sampler(loop, run, no_spares, nothing)


def warm(loop: asyncio.AbstractEventLoop, run: Run) -> Sampler:
    """Sample with a spare that is ready before each call."""

    async def prepare() -> None:
        await no_spares()
        pools.shared().warmth = Warmth()

    return _sampler(loop, run, prepare, lambda: spare_waits(run))


def first(loop: asyncio.AbstractEventLoop, run: Run) -> Sampler:
    """Sample the first call of a process: nothing of the sandbox runs yet."""

    async def end_all() -> None:
        pools.shared().close()

    return _sampler(loop, run, nothing, end_all)


def without_groups(sampler: Sampler) -> Sampler:
    """Sample as on a machine that has no control groups for us."""

    def sample(times: int) -> float:
        pools.shared().drop_spares()
        with patch.object(pools, "group_for", lambda *_: None):
            return sampler(times)

    return sample


async def nothing() -> None:
    """Prepare nothing."""


async def no_spares() -> None:
    """End all spares, those of other rows too that are still on order."""
    pools.shared().warmth = Warmth(spares=0)
    await asyncio.sleep(SETTLED)
    pools.shared().drop_spares()


async def spare_waits(run: Run) -> None:
    """Call until a spare is ready for the next call, and the one before is cleared away."""
    for _ in range(5):
        await run()
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline:
            if pools.shared().waiting():
                await asyncio.sleep(SETTLED)
                return
            await asyncio.sleep(0.002)
    raise RuntimeError("no spare became ready")


def _sampler(loop: asyncio.AbstractEventLoop, run: Run, prepare: Run, before: Run) -> Sampler:
    """Time the calls alone: `prepare` comes before the sample, `before` before each of its calls."""

    async def sample(times: int) -> float:
        await prepare()
        spent = 0.0
        for _ in range(times):
            await before()
            began = time.perf_counter()
            await run()
            spent += time.perf_counter() - began
        return spent

    return lambda times: loop.run_until_complete(sample(times))
