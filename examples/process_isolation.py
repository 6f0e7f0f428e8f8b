"""A function in a process of its own may crash or hang: the call fails, and this process continues.

It keeps a crash away; it does not confine. What must be confined is a `command` or `python` manifest.

Run it: python examples/process_isolation.py
"""

from __future__ import annotations

import asyncio
import ctypes
import os

from toolcrib import Retry, Toolset

tools = Toolset(retry=Retry(max_attempts=1))


@tools.tool("add", isolation="process")
def add(a: int, b: int) -> int:
    """Add two numbers, elsewhere."""
    return a + b


@tools.tool("crash", isolation="process")
def crash() -> None:
    """Read where there is no memory."""
    ctypes.string_at(0)


@tools.tool("quit", isolation="process")
def leave() -> None:
    """End the process without a word."""
    os._exit(3)


@tools.tool("hang", isolation="process", timeout_ms=500)
def hang() -> None:
    """Never come back."""
    while True:
        pass


async def main() -> None:
    """Call all four."""
    print("add:", await tools.execute("add", {"a": 2, "b": 3}))
    for name in ("crash", "quit", "hang"):
        result = await tools.call(name)
        assert result.error is not None
        print(f"{name}: {result.error.code}: {result.error.message}")
    print("still here, and adding:", await tools.execute("add", {"a": 20, "b": 22}))


if __name__ == "__main__":
    asyncio.run(main())
