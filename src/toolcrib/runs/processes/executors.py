"""Executor processes: each runs one attempt at a time, so a tool that crashes takes no other call along."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from toolcrib.core.decision import Fail
from toolcrib.errors import InvalidOutput, TimedOut, UnavailableError
from toolcrib.runs.calls import ClaimedCall
from toolcrib.runs.ending import Ending, Lost, from_json
from toolcrib.runs.processes.children import GRACE_S, MAX_LINE, Child
from toolcrib.runs.serving import whole

_log = logging.getLogger("toolcrib.runs")

_PAUSE_S = 1.0
"""Seconds until the next try if a process does not start."""


class Executors:
    """Keeps `count` processes ready. `command` starts one, and `settings` is the first message to it.

    A further message is a claimed call; its answers are `{"limit_s": …}` and then the ending. `begin` is
    called with each call that was taken while processes were missing, before it runs.
    """

    def __init__(
        self,
        command: Sequence[str],
        settings: Mapping[str, Any],
        count: int,
        begin: Callable[[ClaimedCall], None],
    ) -> None:
        self._begin = begin
        self._start = partial(Child.start, tuple(command), settings)
        self._idle: asyncio.Queue[Child] = asyncio.Queue()
        self._count = count
        self._keepers: list[asyncio.Task[None]] = []

    async def start(self) -> None:
        """Start all processes; raises `UnavailableError` if the first one does not start."""
        self._idle.put_nowait(await self._start())
        for _ in range(self._count - 1):
            self._keepers.append(asyncio.create_task(self._replace()))

    def are_complete(self) -> bool:
        """Return True if no process is missing, so that a call which is taken begins at once."""
        return all(keeper.done() for keeper in self._keepers)

    async def run(self, claim: ClaimedCall) -> Ending:
        """Run one attempt in an idle process. Cancelling this ends the attempt, or else its process."""
        process = await self._idle.get()
        try:
            if not claim.begun:
                await asyncio.to_thread(self._begin, claim)
        except BaseException:
            self._idle.put_nowait(process)
            raise
        try:
            ending = await _run(process, claim)
        except asyncio.CancelledError:
            # Whole: a call that is cancelled once more, as with its lease, must not lose the process.
            await whole(self._stop(process))
            raise
        self._return(process, alive=process.alive)
        return ending

    async def _stop(self, process: Child) -> None:
        self._return(process, alive=await _stop_attempt(process))

    def _return(self, process: Child, *, alive: bool) -> None:
        if alive:
            self._idle.put_nowait(process)
        else:
            self._keepers = [task for task in self._keepers if not task.done()]
            self._keepers.append(asyncio.create_task(self._replace(process)))

    async def _replace(self, dead: Child | None = None) -> None:
        if dead is not None:
            await dead.end()
        while True:
            try:
                self._idle.put_nowait(await self._start())
            except UnavailableError as error:
                _log.warning("%s", error)
                await asyncio.sleep(_PAUSE_S)
            else:
                return

    async def close(self) -> None:
        """End all processes; no attempt may run any more."""
        for keeper in self._keepers:
            keeper.cancel()
        await asyncio.gather(*self._keepers, return_exceptions=True)
        while not self._idle.empty():
            await self._idle.get_nowait().end()


async def _run(process: Child, claim: ClaimedCall) -> Ending:
    """Run one attempt, and end the process if that takes too long."""
    try:
        await process.send({**claim._asdict(), "arguments": claim.arguments.decode()})
        limit_s: float | None = None
        while True:
            async with asyncio.timeout(limit_s):
                answer = await process.receive()
            if answer is None:
                break
            if "end" in answer:
                return from_json(answer)
            limit_s = float(answer["limit_s"]) + GRACE_S
    except TimeoutError:
        # It missed its own limit, so it may hang in foreign code: only the end of the process ends the tool.
        process.kill()
        return Fail(TimedOut(f"{claim.tool} did not end at its limit, so its process was ended"))
    except ValueError:
        # The rest of a line that is too long would be taken for the next answer.
        process.kill()
        return Fail(InvalidOutput(f"the result of {claim.tool} is longer than {MAX_LINE >> 20} MiB"))
    except OSError:
        pass
    process.alive = False
    return Lost(f"the process that ran it {await process.fate()}")


async def _stop_attempt(process: Child) -> bool:
    """Cancel the attempt; True if the process can run another one."""
    try:
        await process.send({"stop": True})
        async with asyncio.timeout(GRACE_S):
            while (answer := await process.receive()) is not None:
                if "end" in answer:
                    return True
    except (OSError, TimeoutError, ValueError):
        pass
    process.kill()
    return False
