"""A server of a few tools on standard input and output. Its argument is the number of further tools."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path

from toolcrib import Context, ToolCancel, Toolset
from toolcrib.serve import run_stdio, serve_stdio

tools = Toolset()


def leave(mark: str, text: str) -> None:
    Path(mark).write_text(text)


@tools.tool(isolation="async")
async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@tools.tool(
    "describe.point",
    output_schema={"type": "object", "properties": {"x": {"type": "integer"}}, "required": ["x"]},
)
async def describe_point(x: int, y: int) -> dict[str, int]:
    """Give a point."""
    return {"x": x, "y": y}


@tools.tool(output_schema={"type": "array", "items": {"type": "integer"}})
async def count(to: int) -> list[int]:
    """Count."""
    return list(range(to))


@tools.tool(output_schema={"type": "object", "required": ["never"]})
async def break_promise() -> dict[str, int]:
    """Give what the schema does not allow."""
    return {"other": 1}


@dataclass
class Branch:
    """A part of a tree."""

    name: str
    grown: date
    parts: list[Branch] = field(default_factory=list)


@tools.tool
async def graft(branch: Branch, part: Branch = None) -> Branch:  # type: ignore[assignment] # as people write it
    """Add a part to a branch."""
    return Branch(branch.name, branch.grown, [*branch.parts, *filter(None, [part])])


@tools.tool
async def fail(reason: str) -> str:
    """Fail."""
    raise RuntimeError(reason)


@tools.tool
async def give_up() -> str:
    """Give up."""
    raise ToolCancel("no use")


@tools.tool
async def shout(text: str) -> str:
    """Print in every way there is, and give the text back."""
    print(text)
    sys.stdout.flush()
    os.write(1, b"raw\n")
    await asyncio.to_thread(subprocess.run, ["/bin/echo", text], check=True)
    return text


@tools.tool
async def read_input() -> str:
    """Read standard input, which must not be the client's."""
    return await asyncio.to_thread(sys.stdin.read)


@tools.tool
async def linger(mark: str) -> str:
    """Wait for ever; leave a mark at the start, and another when cancelled."""
    leave(mark, "started")
    try:
        await asyncio.sleep(600)
    except asyncio.CancelledError:
        leave(mark, "cancelled")
        raise
    return "never"


@tools.tool
def hang(mark: str) -> str:
    """Hang in a thread, where nothing can stop it."""
    leave(mark, "started")
    time.sleep(600)
    return "never"


@tools.tool
async def steps(context: Context, number: int) -> int:
    """Report progress."""
    for step in range(1, number + 1):
        context.progress(step, number, f"step {step}")
        await asyncio.sleep(0)
    return number


@tools.tool
async def big(size: int) -> str:
    """Give a long text."""
    return "x" * size


def main() -> None:
    for number in range(int(sys.argv[1]) if len(sys.argv) > 1 else 0):
        tools.register(f"extra_{number}", add)
    run_stdio(serve_stdio(tools, name="crib", version="9.9", page_size=int(os.environ.get("PAGE", "500"))))


if __name__ == "__main__":
    main()
