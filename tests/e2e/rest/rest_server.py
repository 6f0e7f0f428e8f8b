"""A REST server with functions of its own: `python -m tests.e2e.rest.rest_server --root ROOT --data DATA`."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from toolcrib import Context, Project, ToolDiscard
from toolcrib.errors import HostNotAllowed
from toolcrib.serve.process import run_until_end
from toolcrib.serve.rest import HttpSettings, serve_http


def touch(path: str) -> None:
    Path(path).touch()


def exists(path: str) -> bool:
    return Path(path).exists()


def append(path: str) -> None:
    with Path(path).open("a") as file:
        file.write("x\n")


async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


async def count_up(to: int, ctx: Context, size: int = 1) -> str:
    """Count, and report each number."""
    for number in range(1, to + 1):
        ctx.progress(number, to, "counting")
        ctx.chunk(f"{number} " * size)
        if number % 100 == 0:
            await asyncio.sleep(0)
    return "counted"


async def hold(mark: str, ctx: Context) -> str:
    """Leave `mark.begun`, wait until the file `mark` is there, and append a line to `mark.runs`."""
    ctx.chunk("begun")
    touch(f"{mark}.begun")
    try:
        while not exists(mark):  # noqa: ASYNC110 - another process makes it
            await asyncio.sleep(0.01)
    except asyncio.CancelledError:
        touch(f"{mark}.cancelled")
        raise
    append(f"{mark}.runs")
    return "held"


def name_file(ctx: Context) -> None:
    """Report a file whose name is not UTF-8."""
    ctx.progress(1, message="\udcff.txt")
    ctx.chunk("\udcff.txt")


def fail() -> None:
    """Fail."""
    raise ValueError("it broke")


def discard() -> None:
    """Find the input wrong."""
    raise ToolDiscard("no such city")


def reach() -> None:
    """Ask for a host that is not allowed."""
    raise HostNotAllowed("evil.example is not allowed")


async def main(root: str, data: str, body_s: float) -> int:
    async with Project.open(root, data=Path(data)) as project:
        for function in (add, count_up, hold, name_file, fail, discard, reach):
            project.toolset.register(function)
        project.toolset.register("dotted.name", add, isolation="async")
        project.functions.register("Hold", hold)
        await serve_http(
            project,
            HttpSettings(port=0, body_s=body_s),
            lambda addresses, link: print(f"{addresses[0]}\n{link}", flush=True),
        )
    return 0


if __name__ == "__main__":
    options = dict(zip(sys.argv[1:], sys.argv[2:], strict=False))
    run_until_end(main(options["--root"], options["--data"], float(options.get("--body-s", 30))))
