"""Processes of pods that run until a signal ends them."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Coroutine
from typing import Any

from toolcrib.core.signals import stopping


async def until_stopped(
    work: Coroutine[Any, Any, None], last: Callable[[], Coroutine[Any, Any, None]] | None = None
) -> None:
    """Run until the work ends, or a signal stops it. Raises the first of our errors that it raises.

    After a signal it goes on until `last` has ended; a second signal stops it at once.
    """
    task, stop = asyncio.ensure_future(work), asyncio.Event()
    with stopping(stop.set, (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)):
        await _first(task, asyncio.ensure_future(stop.wait()))
        if last is not None and not task.done():
            stop.clear()
            await _first(task, asyncio.ensure_future(last()), asyncio.ensure_future(stop.wait()))
        task.cancel()
        try:
            await task
        except asyncio.CancelledError:
            return
        except BaseExceptionGroup as group:
            error: BaseException = group
            while isinstance(error, BaseExceptionGroup):
                error = error.exceptions[0]
            raise error from None


async def _first(task: asyncio.Future[None], *others: asyncio.Future[Any]) -> None:
    await asyncio.wait([task, *others], return_when=asyncio.FIRST_COMPLETED)
    for other in others:
        other.cancel()
