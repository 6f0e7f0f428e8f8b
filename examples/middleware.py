"""Middleware: wrappers around every call, the first one added outermost.

Run it: python examples/middleware.py
"""

from __future__ import annotations

import asyncio
import logging
import sys

from toolcrib import Call, Toolset
from toolcrib.errors import DeniedError
from toolcrib.middleware import Handler, logging_middleware, timeout_middleware
from toolcrib.spec import CallContext, Outcome


def working_hours(following: Handler) -> Handler:
    """A middleware of one's own: refuse some calls, change some results."""

    async def handle(call: Call, ctx: CallContext) -> Outcome:
        print(f"working_hours before {call.tool} {call.arguments!r}")
        if call.tool == "forge":
            raise DeniedError("the forge is cold")
        outcome = await following(call, ctx)
        outcome.value = f"{outcome.value}!"
        print(f"working_hours after {call.tool}")
        return outcome

    return handle


tools = Toolset()
tools.use(logging_middleware())
tools.use(working_hours)
tools.use(timeout_middleware(0.1))


@tools.tool
async def greet(name: str) -> str:
    """Greet somebody."""
    return f"Hello, {name}"


@tools.tool
async def forge() -> str:
    """Never run: a middleware refuses it."""
    return "iron"


@tools.tool
async def dawdle() -> str:
    """Take longer than the timeout middleware allows."""
    await asyncio.sleep(10)
    return "late"


async def main() -> None:
    """Call each tool once."""
    logging.basicConfig(stream=sys.stdout, level=logging.INFO, format="log: %(message)s")
    for name, arguments in (("greet", {"name": "Ada"}), ("forge", {}), ("dawdle", {})):
        result = await tools.call(name, arguments)
        print(f"{name} → {result.value if result.error is None else result.error.as_dict()['code']}")


if __name__ == "__main__":
    asyncio.run(main())
