"""Processes of pods that run until they are told to stop."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Coroutine
from typing import Any

from toolcrib.core.signals import stopping
from toolcrib.errors import ToolcribError


async def until_stopped(work: Coroutine[Any, Any, None]) -> None:
    """Run until the work ends or a signal stops it. Raises the first of our errors that it raises."""
    task = asyncio.ensure_future(work)
    with stopping(task.cancel, (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)):
        try:
            await task
        except asyncio.CancelledError:
            return
        except BaseExceptionGroup as group:
            known, _ = group.split(ToolcribError)
            while isinstance(known, BaseExceptionGroup):
                known = known.exceptions[0]  # type: ignore[assignment]
            raise known or group from None
