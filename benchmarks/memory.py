"""Memory that what is kept ready has to itself: the launchers, and a spare with its two processes."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from benchmarks.confined import Run, spare_waits
from benchmarks.growth import private
from benchmarks.setting import reason_of
from benchmarks.table import Reach, Row, Table
from toolcrib.sandbox import Warmth
from toolcrib.sandbox.child.warm import PRELOADED
from toolcrib.sandbox.host import pool as pools

BARE = "an interpreter that has loaded nothing"
FORKS = "two processes forked from one with the libraries, that wait"
LAUNCHER = "launcher for commands"
PYTHON_LAUNCHER = "launcher for Python, libraries loaded"
SPARE = "spare for a command"
PYTHON_SPARE = "spare for a Python tool in a virtual environment"
WAITING_FORKS = """
import gc, importlib, os, sys
gc.disable()
for name in sys.argv[1:]:
    importlib.import_module(name)
gc.collect()
gc.freeze()
if os.fork() or os.fork():
    os.wait()
else:
    os.write(1, b"waits\\n")
    os.read(0, 1)
"""
SETTLED = 1.5
"""Seconds in which a launcher has loaded its libraries."""


def memory(loop: asyncio.AbstractEventLoop, command: Run, tool: Run) -> Table:
    """One table, each figure taken once: private bytes as of /proc/PID/smaps_rollup."""
    rows = [
        Row(BARE),
        Row(FORKS),
        Row(LAUNCHER, reach=Reach(15, "wall")),
        Row(PYTHON_LAUNCHER, reach=Reach(20, "wall")),
        Row(SPARE, reach=Reach(2, "wall")),
        Row(PYTHON_SPARE, reach=Reach(2, "wall")),
    ]
    table = Table(
        "Memory of what is kept ready",
        "MB",
        rows,
        [
            "Private to the processes of the row; what they share with their launcher counts there.",
            "Of the two that are forked and do nothing more, each is a copy of what it has written to since.",
        ],
    )
    figures: dict[str, Callable[[], float]] = {
        BARE: _bare,
        FORKS: _forks,
        LAUNCHER: lambda: loop.run_until_complete(_launcher(command)),
        PYTHON_LAUNCHER: lambda: loop.run_until_complete(_launcher(tool)),
        SPARE: lambda: loop.run_until_complete(_spare(command)),
        PYTHON_SPARE: lambda: loop.run_until_complete(_spare(tool)),
    }
    for row in rows:
        try:
            row.seconds = [figures[row.name]()]
        except Exception as error:
            row.missing = reason_of(error)
    return table


def _bare() -> float:
    with _started("print(flush=True); input()") as process:
        size = private(process.pid)
        process.kill()
    return size


def _forks() -> float:
    """A process and its child, as a spare is, with nothing of ours in them."""
    with _started(WAITING_FORKS, *PRELOADED) as process:
        size = float(sum(private(pid) for pid in _below(process.pid)))
        # They wait for the end of its input.
        assert process.stdin is not None
        process.stdin.close()
    return size


def _started(code: str, *arguments: str) -> subprocess.Popen[bytes]:
    """An interpreter that has said that it waits."""
    command = [sys.executable, "-I", "-S", "-c", code, *arguments]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdout is not None
    process.stdout.readline()
    return process


async def _launcher(run: Run) -> float:
    """The one launcher after one call, with nothing of it shared with a child."""
    pools.shared().close()
    pools.shared().warmth = Warmth(spares=0)
    await run()
    await asyncio.sleep(SETTLED)
    return private(_only_launcher())


async def _spare(run: Run) -> float:
    """All processes below the launcher while one spare waits."""
    pools.shared().close()
    pools.shared().warmth = Warmth()
    await run()
    await asyncio.sleep(SETTLED)
    await spare_waits(run)
    await asyncio.sleep(0.2)
    launcher = _only_launcher()
    deadline = time.monotonic() + 2
    while len(_below(launcher)) != 2 and time.monotonic() < deadline:  # noqa: ASYNC110 - other processes
        await asyncio.sleep(0.05)
    return float(sum(private(pid) for pid in _below(launcher)))


def _only_launcher() -> int:
    (pid,) = pools.shared().pids().values()
    return pid


def _below(pid: int) -> list[int]:
    """Children, and their children."""
    children = [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    return [found for child in children for found in (child, *_below(child))]
