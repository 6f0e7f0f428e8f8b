"""A call that is stored while it runs, because its caller does not wait for its end."""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from typing import Protocol

from toolcrib.core.context import Context
from toolcrib.core.decision import Cancel
from toolcrib.errors import Cancelled, ToolcribError
from toolcrib.runs import ClaimedCall
from toolcrib.runs.ending import Ending, Lost, ending_of
from toolcrib.runs.serving import whole
from toolcrib.spec import Result

_log = logging.getLogger("toolcrib.runs")


class CallKeeper(Protocol):
    """Keeps a call that runs in this process, as `ProjectCalls` does."""

    async def take_running(self, ctx: Context, running: asyncio.Task[None]) -> ClaimedCall: ...

    async def settle(self, claim: ClaimedCall, ending: Ending) -> None: ...


class AdoptedCall:
    """A direct call that runs in a task of this process, and is kept in the store from now on.

    The task must not end before `end`. Whoever cancels the call, and not only its run here, sets `stored` of
    its context to False before.
    """

    def __init__(self, calls: CallKeeper, ctx: Context, running: asyncio.Task[None]) -> None:
        self._calls, self._ctx, self._running = calls, ctx, running
        ctx.stored = True
        self._storing = asyncio.create_task(self._store())

    async def is_stored(self) -> bool:
        """Return True once the call is stored; False where it cannot be."""
        return await asyncio.shield(self._storing) is not None

    async def _store(self) -> ClaimedCall | None:
        try:
            return await self._calls.take_running(self._ctx, self._running)
        except Exception as error:  # The call goes on, and waits for this.
            if not isinstance(error, ToolcribError):
                _log.exception("a call that runs could not be stored")
            self._ctx.stored = False
            return None

    async def end(self, result: Result) -> None:
        """Record the end of the call, whole."""
        with suppress(asyncio.CancelledError):  # It has ended, and is being recorded.
            await whole(self._end(result))

    async def _end(self, result: Result) -> None:
        claim = await self._storing
        if claim is None:
            return
        ending: Ending
        if not isinstance(result.error, Cancelled):
            ending = ending_of(self._ctx, result)
        elif self._ctx.stored:
            ending = Lost("the process that ran it has stopped")
        else:
            ending = Cancel(result.error)
        await self._calls.settle(claim, ending)
