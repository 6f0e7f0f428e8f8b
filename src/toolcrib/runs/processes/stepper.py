"""The process of a worker that makes the steps of all its runs, and that knows its tools.

So the supervisor, which keeps the leases, neither imports the libraries of model providers nor has tools.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from toolcrib.errors import UnavailableError
from toolcrib.runs.processes.children import GRACE_S, Child
from toolcrib.runs.register import Offer
from toolcrib.runs.sessions import ClaimedRun, StepLost

_log = logging.getLogger("toolcrib.runs")
_PAUSE_S = 1.0
"""Seconds until the next try if the process does not start."""


class Stepper:
    """Keeps the process running. `command` starts it, and `settings` is the first message to it.

    Its messages are offers, `{"tools": …, "refused": …, "providers": …}`, and `{"ended": ID}`; `loaded` in
    any says that it has the libraries of models. Further messages to it are a claimed run or `{"stop": ID}`.
    An ID is that of a run with the epoch of the claim.
    """

    def __init__(self, command: Sequence[str], settings: Mapping[str, Any]) -> None:
        self._command, self._settings = tuple(command), settings
        self.offer = Offer({})
        """The tools that the worker takes, as the process said last."""
        self.has_loaded = False
        """True once the process has loaded the libraries of models."""
        self._child: Child | None = None
        self._open: dict[str, asyncio.Future[None]] = {}
        self._keeper: asyncio.Task[None] | None = None
        self._ready = asyncio.Event()

    async def start(self) -> None:
        """Start the process; raises `UnavailableError` if it does not start."""
        await self._begin()
        self._keeper = asyncio.create_task(self._keep())

    async def advance(self, claim: ClaimedRun) -> None:
        """Have a step made. Cancelling this stops it. Raises `StepLost` if the process has died."""
        key = f"{claim.run.id} {claim.epoch}"
        while self._child is None:
            await self._ready.wait()
        child = self._child
        ended = self._open[key] = asyncio.get_running_loop().create_future()
        try:
            with suppress(OSError):  # Then its end is noticed, and ends this.
                await child.send({"key": key, "claim": claim.as_json()})
            await ended
        except asyncio.CancelledError:
            with suppress(OSError):
                await child.send({"stop": key})
            raise
        finally:
            self._open.pop(key, None)

    async def _begin(self) -> None:
        child = await Child.start(self._command, self._settings)
        self._take(child.first)
        self._child = child
        self._ready.set()

    async def _keep(self) -> None:
        """Read its messages, and start it again when it has ended."""
        while True:
            child = self._child
            if child is None:
                try:
                    await self._begin()
                except UnavailableError as error:
                    _log.warning("%s", error)
                    await asyncio.sleep(_PAUSE_S)
                continue
            with suppress(OSError, ValueError):
                while (message := await child.receive()) is not None:
                    self._take(message)
            self._child, self.has_loaded = None, False
            self._ready.clear()
            with suppress(TimeoutError):  # It may have closed its connection only.
                async with asyncio.timeout(GRACE_S):
                    await child.fate()
            await child.end()
            lost = StepLost(f"the process that made it {await child.fate()}")
            for future in self._open.values():
                if not future.done():
                    future.set_exception(lost)

    def _take(self, message: Mapping[str, Any]) -> None:
        self.has_loaded = message.get("loaded", self.has_loaded)
        if "tools" in message:
            self.offer = Offer(message["tools"], message["refused"], tuple(message["providers"]))
        elif (future := self._open.get(message.get("ended", ""))) is not None and not future.done():
            future.set_result(None)

    async def close(self) -> None:
        """End the process."""
        if self._keeper is not None:
            self._keeper.cancel()
            await asyncio.gather(self._keeper, return_exceptions=True)
        if self._child is not None:
            await self._child.end()
