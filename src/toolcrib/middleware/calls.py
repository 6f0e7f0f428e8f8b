"""Middleware that logs calls, limits their time, and repeats them."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from typing import Any

from toolcrib.errors import TimedOut, ToolcribError
from toolcrib.middleware.handler import Handler, Middleware, tool_of
from toolcrib.spec import Call, CallContext, Outcome


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
                # A TimeoutError of the tool itself is not this limit.
                if not limit.expired():
                    raise
                raise TimedOut(
                    f"{call.tool} took longer than {seconds:g} s (the toolset's timeout middleware)",
                    details={"limitMs": int(seconds * 1000), "limit": "middleware"},
                ) from None

        return handle

    return wrap


def retry_middleware(
    max_attempts: int = 3, *, delay_s: float = 0.5, sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
) -> Middleware:
    """Repeat calls that fail with a retryable error, after `delay_s`, twice that, and so on.

    Only calls of tools with `annotations.read_only` or `annotations.idempotent` are repeated. The first of
    these attempts has all those of the tool's own `retry`. A server that asks for a longer wait gets it, but
    not more than the time that the call may take.
    """

    def retry(following: Handler) -> Handler:
        async def handle(call: Call, ctx: CallContext) -> Outcome:
            tool: Any = tool_of(ctx)
            safe = tool is not None and (tool.annotations.read_only or tool.annotations.idempotent)
            for attempt in range(1, max_attempts if safe else 1):
                try:
                    return await following(call, ctx)
                except ToolcribError as error:
                    asked = float(error.details.get("retryAfterS") or 0)
                    if not error.retryable or asked > ctx.limit_ms / 1000:
                        raise
                    await sleep(max(delay_s * 2 ** (attempt - 1), asked))
            return await following(call, ctx)

        return handle

    return retry
