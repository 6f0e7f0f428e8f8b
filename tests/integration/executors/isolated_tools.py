"""Tools for a process of their own: at the top level of a module, so that a child can import them."""

from __future__ import annotations

import asyncio
import ctypes
import dataclasses
import datetime
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from toolcrib import RetryableError, ToolCancel, ToolDiscard, ToolSnooze, get_variables
from toolcrib.errors import ToolFailed


@dataclasses.dataclass
class Point:
    x: int
    when: datetime.date


def where(point: Point) -> dict[str, Any]:
    return {"pid": os.getpid(), "point": point, "type": type(point.when).__name__}


async def where_async(n: int) -> int:
    await asyncio.sleep(0)
    return n + 1


def variables() -> dict[str, Any]:
    return dict(get_variables())


def tell(text: str) -> str:
    print(text, end="")
    return text


def end(how: str) -> None:
    if how == "exit":
        os._exit(3)
    if how == "abort":
        os.abort()
    if how == "segv":
        ctypes.string_at(0)
    if how == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    if how == "rt":
        os.kill(os.getpid(), signal.SIGRTMIN + 5)
    if how == "sys.exit":
        sys.exit(4)
    time.sleep(60)


def give(what: str) -> Any:
    return {"lambda": lambda: 1, "bytes": b"x", "big": "x" * 5_000_000, "set": {2, 1}}[what]


def fail(how: str) -> None:
    raise {
        "cancel": ToolCancel("no use"),
        "discard": ToolDiscard("no such id"),
        "retry": RetryableError("busy"),
        "value": ValueError("bad"),
        "plain": RuntimeError("bad"),
        "failed": ToolFailed("bad"),
        "interrupt": KeyboardInterrupt(),
        "stop": StopIteration("x"),
    }[how]


def snooze_once(marker: str) -> str:
    if not Path(marker).exists():
        Path(marker).touch()
        raise ToolSnooze(0.01, "later")
    return "done"


def hang(pids: str, spin: bool = False, answer: bool = False) -> str:
    """Start a grandchild that holds every descriptor, write both ids down, and hang."""
    grandchild = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"], close_fds=False)
    Path(pids).write_text(f"{os.getpid()} {grandchild.pid}\n")
    while not answer:
        if not spin:
            time.sleep(60)
    return "answered"


def hang_and_stop(pids: str, often: bool = False) -> None:
    """The same, and stop the process above this one, which is there to end it."""
    keeper = os.getppid()
    grandchild = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    os.kill(keeper, signal.SIGSTOP)
    while ") T " not in Path(f"/proc/{keeper}/stat").read_text():  # It stops when it next runs.
        time.sleep(0.001)
    Path(pids).write_text(f"{os.getpid()} {grandchild.pid}\n")
    while often:
        os.kill(keeper, signal.SIGSTOP)
    time.sleep(60)


def start_and_die(pids: str) -> None:
    """End without an answer while a forked child still holds the pipe."""
    child = os.fork()
    if child == 0:
        time.sleep(60)
        os._exit(0)
    Path(pids).write_text(f"{os.getpid()} {child}\n")
    os._exit(5)


SEEN: list[str] = []
AT_IMPORT = os.environ.get("ISOLATED_TEST", "")


def surroundings(word: str) -> dict[str, Any]:
    """What the function finds: its environment, at import and now, its folders, and what calls have left."""
    SEEN.append(word)
    return {
        "env": os.environ.get("ISOLATED_TEST", ""),
        "at_import": AT_IMPORT,
        "cwd": str(Path.cwd()),
        "path": sys.path[-1],
        "seen": SEEN,
        "prefix": sys.prefix,
        "parent": os.getppid(),
    }


def pools() -> list[int]:
    """Processes of its own."""
    import multiprocessing

    with multiprocessing.get_context("fork").Pool(2) as pool:
        return pool.map(abs, [-1, -2])
