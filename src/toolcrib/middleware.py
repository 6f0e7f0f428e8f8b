"""Middleware: wrappers around every call of a toolset, the first one added outermost."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable

from toolcrib.errors import TimedOut
from toolcrib.spec import Call, CallContext, Outcome

__all__ = ["Handler", "Middleware", "logging_middleware", "timeout_middleware"]

Handler = Callable[[Call, CallContext], Awaitable[Outcome]]
"""Runs a call whose arguments are checked; raises if it fails."""
Middleware = Callable[[Handler], Handler]
"""Takes the next handler and returns the handler around it."""


def logging_middleware(logger: logging.Logger | None = None, level: int = logging.INFO) -> Middleware:
    """Log the start of each call, and its end with the milliseconds it took. Arguments are not logged."""
    log = logger or logging.getLogger("toolcrib.calls")

    def wrap(following: Handler) -> Handler:
        async def handle(call: Call, ctx: CallContext) -> Outcome:
            started = time.perf_counter()
            log.log(level, "call %s started by %s", call.tool, call.caller)
            try:
                outcome = await following(call, ctx)
            except BaseException as error:
                took = (time.perf_counter() - started) * 1000
                log.log(level, "call %s failed after %.1f ms: %s", call.tool, took, type(error).__name__)
                raise
            log.log(level, "call %s done after %.1f ms", call.tool, (time.perf_counter() - started) * 1000)
            return outcome

        return handle

    return wrap


def timeout_middleware(seconds: float) -> Middleware:
    """Limit the whole call, retries and snoozes included, to `seconds`."""

    def wrap(following: Handler) -> Handler:
        async def handle(call: Call, ctx: CallContext) -> Outcome:
            limit = asyncio.timeout(seconds)
            try:
                async with limit:
                    return await following(call, ctx)
            except TimeoutError:
                if not limit.expired():
                    raise
                raise TimedOut(
                    f"{call.tool} took longer than {seconds:g} s (the toolset's timeout middleware)",
                    details={"limit_ms": int(seconds * 1000), "limit": "middleware"},
                ) from None

        return handle

    return wrap
