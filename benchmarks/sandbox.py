"""Confined processes beside bare ones."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

from benchmarks.everything_on import MODULE, open_project
from benchmarks.setting import Setting, told
from benchmarks.sums import add
from benchmarks.table import Row, Table
from benchmarks.timing import interleave, repeat_async

Run = Callable[[], Awaitable[Any]]

TRUE = ("/bin/true",)
PYTHON = (sys.executable, "-I", "-c", f"{MODULE}print(run(1))")


def measure(setting: Setting) -> list[Table]:
    """One table for a command, one for a Python function, one for a registered function."""
    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    command = _table(
        setting,
        loop,
        "Run /bin/true",
        {
            "bare process": lambda: _bare(TRUE),
            "toolcrib.sandbox.run": lambda: _confined(TRUE),
            "Project, tool of kind command": lambda: _tool(setting.folder / "one", "spawning", {}),
        },
    )
    function = _table(
        setting,
        loop,
        "Run a Python function in a fresh interpreter",
        {
            "bare process": lambda: _bare(PYTHON),
            "toolcrib.sandbox.run": lambda: _confined(PYTHON),
            "Project, tool of kind python": lambda: _tool(setting.folder / "two", "counting", {"n": 1}),
        },
    )
    registered = _table(
        setting,
        loop,
        "Call a registered function in a process of its own",
        {
            "concurrent.futures, one process a call": _pooled,
            "isolation: process, nothing kept ready": lambda: _isolated(spares=0),
            "isolation: process, call upon call": lambda: _isolated(spares=8),
        },
    )
    return [command, function, registered]


def _table(
    setting: Setting, loop: asyncio.AbstractEventLoop, title: str, cases: Mapping[str, Callable[[], Run]]
) -> Table:
    """Measure the cases; one that cannot be made or fails once loses its row only."""
    rows = {name: Row(name) for name in cases}
    samplers = {}
    for name, make in cases.items():
        try:
            run = make()
            loop.run_until_complete(_once(run))
        except Exception as error:
            rows[name].missing = told(error)
        else:
            samplers[name] = repeat_async(loop, run)
    table = Table(title, "ms", list(rows.values()), tells_gap=True)
    table.take(interleave(samplers, setting.effort(25), times=1 if setting.quick else 4))
    return table


async def _once(run: Run) -> None:
    await run()


def _bare(command: tuple[str, ...]) -> Run:
    async def run() -> None:
        process = await asyncio.create_subprocess_exec(
            *command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env={}
        )
        await process.communicate()
        if process.returncode != 0:
            raise RuntimeError(f"{command[0]} ended with {process.returncode}")

    return run


def _confined(command: tuple[str, ...]) -> Run:
    from toolcrib.sandbox import Confinement
    from toolcrib.sandbox import run as run_confined

    # An interpreter outside the system's folders is granted, read-only.
    program = os.path.realpath(command[0])
    grants = () if program.startswith(("/usr/", "/bin/")) else (os.path.realpath(sys.base_prefix),)
    job = Confinement(argv=(program, *command[1:]), cwd="/tmp", read=grants)

    async def run() -> None:
        done = await run_confined(job)
        if done.exit_code != 0:
            raise RuntimeError(f"{program} ended with {done.exit_code}: {done.stderr[-300:]!r}")

    return run


def _tool(root: Path, name: str, arguments: Mapping[str, Any]) -> Run:
    project = open_project(root)

    async def run() -> None:
        (await project.call(name, arguments)).unwrap()

    return run


def _pooled() -> Run:
    """The standard library's way to a process that is used once."""
    from concurrent.futures import ProcessPoolExecutor
    from multiprocessing import get_context

    loop = asyncio.get_event_loop()

    async def run() -> None:
        with ProcessPoolExecutor(1, get_context("forkserver")) as pool:
            if await loop.run_in_executor(pool, add, 1, 2) != 3:
                raise RuntimeError("a wrong sum")

    return run


def _isolated(spares: int) -> Run:
    from toolcrib import Toolset
    from toolcrib.sandbox import Warmth
    from toolcrib.sandbox.pool import shared

    tools = Toolset()
    tools.register("add", add, isolation="process")

    async def run() -> None:
        if shared().warmth.spares != spares:
            shared().warmth = Warmth(spares=spares)
            shared().drop_spares()
        if await tools.execute("add", {"a": 1, "b": 2}) != 3:
            raise RuntimeError("a wrong sum")

    return run
