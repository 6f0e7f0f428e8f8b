"""Interleaved rounds A B C A B C: what disturbs the machine for a moment disturbs every row alike."""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

Sampler = Callable[[int], float]
"""Does its operation so many times and gives the seconds that took."""

_FIRST = 8
_LEAST = 3
_BUDGET_S = 10.0
"""After this time a table has no further round, if it has had three: a slow machine has fewer."""
_MOST = 1_000_000


@dataclass(frozen=True)
class Effort:
    """The time that a table may take."""

    rounds: int
    seconds: float
    """Aimed at for one sample; how often its operation is repeated follows from that."""


@dataclass
class Samples:
    """Seconds per operation of one row, one figure a round; or the reason that there are none."""

    seconds: list[float]
    failure: str | None = None


def repeat(operation: Callable[[], Any]) -> Sampler:
    """Sample a plain function."""

    def sample(times: int) -> float:
        count = range(times)
        began = time.perf_counter()
        for _ in count:
            operation()
        return time.perf_counter() - began

    return sample


def repeat_async(loop: asyncio.AbstractEventLoop, operation: Callable[[], Awaitable[Any]]) -> Sampler:
    """Sample something awaited, one after the other, on a loop that is not running."""

    async def run(times: int) -> float:
        count = range(times)
        began = time.perf_counter()
        for _ in count:
            await operation()
        return time.perf_counter() - began

    return lambda times: loop.run_until_complete(run(times))


def interleave(
    samplers: Mapping[str, Sampler], effort: Effort, *, times: int | None = None
) -> dict[str, Samples]:
    """Measure every sampler once a round; one that raises loses its row and disturbs no other.

    `times` fixes how often a sample does its operation; without it that follows from the effort.
    What exists beforehand is kept out of the garbage collector's sight, so that a row does not pay for
    what other rows imported; the collector itself stays on, as it is where tools run.
    """
    found = {name: Samples([]) for name in samplers}
    counts: dict[str, int] = {}
    for name, sampler in samplers.items():
        try:
            counts[name] = _count(sampler, effort.seconds) if times is None else _warm(sampler, times)
        except Exception as error:
            found[name].failure = f"failed: {type(error).__name__}: {error}"
    gc.collect()
    gc.freeze()
    try:
        began = time.perf_counter()
        for number in range(effort.rounds):
            if number >= _LEAST and time.perf_counter() - began > _BUDGET_S:
                break
            for name, count in list(counts.items()):
                try:
                    found[name].seconds.append(samplers[name](count) / count)
                except Exception as error:
                    found[name] = Samples([], f"failed: {type(error).__name__}: {error}")
                    del counts[name]
    finally:
        gc.unfreeze()
    return found


def _warm(sampler: Sampler, times: int) -> int:
    sampler(1)
    return times


def _count(sampler: Sampler, seconds: float) -> int:
    """Return how many operations fill one sample. The first ones import and compile what the others use."""
    sampler(_FIRST)
    times = 1
    while True:
        taken = sampler(times)
        if taken > seconds / 4 or times >= _MOST:
            return max(1, min(_MOST, round(times * seconds / max(taken, 1e-9))))
        times *= 4
