"""Error types: the exception that a tool raises decides how its call continues.

Run it: python examples/retry_and_error_types.py
"""

from __future__ import annotations

import asyncio

from toolcrib import Result, Retry, RetryableError, ToolCancel, ToolDiscard, Toolset, ToolSnooze, get_run_id
from toolcrib.spec.views import text_view

tools = Toolset(retry=Retry(max_attempts=2))  # a failed attempt is repeated once, at once
tried: dict[str, int] = {}


def times(name: str) -> int:
    """Count the attempts of a tool."""
    tried[name] = tried.get(name, 0) + 1
    return tried[name]


@tools.tool
async def flaky() -> str:
    """Fail once; the second attempt works."""
    if times("flaky") == 1:
        raise ConnectionError("the line was cut")
    return "got through"


@tools.tool
async def broken() -> str:
    """Fail every time."""
    raise ConnectionError(f"the line was cut, attempt {times('broken')}")


@tools.tool("patient", retry=Retry(max_attempts=4))
async def patient() -> str:
    """Have four attempts of its own."""
    if times("patient") < 4:
        raise RetryableError("not yet")
    return "fourth time lucky"


@tools.tool
async def locked() -> str:
    """Give up: trying again will not help."""
    raise ToolCancel("authentication failed")


@tools.tool
async def picky(user_id: str) -> str:
    """Refuse input that no schema can rule out."""
    raise ToolDiscard(f"there is no user {user_id}")


@tools.tool
async def limited() -> str:
    """Ask to be tried later, three times; that uses up no attempt."""
    if times("limited") <= 3:
        raise ToolSnooze(0.01, "rate limit")
    return f"worked in run {get_run_id()}"


def tell(name: str, result: Result) -> None:
    """One line: what the model is told, and what it took."""
    code = "ok" if result.error is None else result.error.code
    print(f"{name}: {code}, attempts {result.attempts}, snoozes {result.snoozes} | {text_view(result)}")


async def main() -> None:
    """Call each of them once."""
    for name in ("flaky", "broken", "patient", "locked"):
        tell(name, await tools.call(name))
    tell("picky", await tools.call("picky", {"user_id": "u-404"}))
    tell("limited", await tools.call("limited", run_id="r-1"))


if __name__ == "__main__":
    asyncio.run(main())
