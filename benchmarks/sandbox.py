"""Confined processes beside bare ones."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from statistics import quantiles
from typing import Any

from benchmarks.confined import Run, cold, confined, first, job_of, warm, without_groups
from benchmarks.connections import connections, way_out
from benchmarks.everything_on import MODULE, open_project
from benchmarks.isolation import isolation
from benchmarks.memory import memory
from benchmarks.ordinary_user import as_ordinary_user
from benchmarks.reading import reading
from benchmarks.setting import Missing, Setting, reason_of
from benchmarks.table import OVER, PEER, WALL, Reach, Row, Table
from benchmarks.timing import Sampler, interleave
from toolcrib.sandbox.child.warm import PRELOADED
from toolcrib.sandbox.host.enforcement import groups

TRUE = ("/bin/true",)
PYTHON = (sys.executable, "-I", "-c", f"{MODULE}print(run(1))")
LOADED = (sys.executable, "-I", "-c", f"import {', '.join(PRELOADED)}\n{MODULE}print(run(1))")
BARE = "bare process"
BUBBLEWRAP = "bubblewrap, bare process"
SPARE = "a spare ready"
CALL = "Project.call"
TAIL = 6.0
"""Milliseconds that 95 of 100 calls with a spare should take at most."""

Cases = Mapping[str, Callable[[], Sampler]]
Reaches = Mapping[str, Reach | Sequence[Reach]]


def measure(setting: Setting) -> Iterator[Table]:
    """Yield commands, Python functions, callers at once, first calls, files, connections, memory."""
    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    function = _tool(setting.folder / "python", "counting", {"n": 1})
    in_venv = _lazily(lambda: _tool_of_venv(setting.folder / "of-venv"))
    command = _tool(setting.folder / "command", "spawning", {})
    yield _command(setting, loop, command)
    yield _python(setting, loop, function, in_venv)
    flat = Reach(1, f"{CALL}, 1 at once")
    yield from _callers(setting, loop, TRUE, command, {4: flat, 8: Reach(0.83, f"{BUBBLEWRAP}, 8 at once")})
    yield from _callers(
        setting, loop, PYTHON, function, {1: Reach(0.2), 4: flat, 8: Reach(0.33, f"{BARE}, 8 at once")}
    )
    yield _first(setting, loop, function, in_venv)
    yield reading(setting, loop)
    yield connections(setting, loop)
    yield isolation(setting, loop)
    yield memory(loop, confined(TRUE), in_venv)


def _callers(
    setting: Setting,
    loop: asyncio.AbstractEventLoop,
    command: tuple[str, ...],
    tool: Run,
    reaches: Mapping[int, Reach],
) -> Iterator[Table]:
    """Call back to back, by one, four and eight callers, each of which calls again once it has its answer.

    The second table has the processor time of the server in the same calls.
    """
    samplers, processor = dict[str, Sampler](), dict[str, list[float]]()
    rows, used = list[Row](), list[Row]()
    runs = {BARE: _bare(command), BUBBLEWRAP: _lazily(lambda: _bubblewrap(command)), CALL: tool}
    if command is not TRUE:
        del runs[BUBBLEWRAP]  # An interpreter needs other grants in it.
    for callers in (1, 4, 8):
        for kind, run in runs.items():
            name = f"{kind}, {callers} at once"
            rows.append(Row(name, reaches.get(callers, ()) if kind == CALL else (), kind == BUBBLEWRAP))
            samplers[name] = _at_once(loop, run, callers, processor.setdefault(name, []))
    what = "Commands" if command is TRUE else "Python functions, confined,"
    title = f"{what} back to back and side by side"
    table = Table(title, "ms", rows, ["Per call, back to back, spares as they come."])
    table.take(interleave(samplers, setting.effort(5), times=16 if setting.quick else 64))
    yield table
    ours = [row for row in rows if row.name.startswith(CALL)]
    for row in ours:
        measured = processor[row.name][1:] if row.seconds else []  # The first was to warm up.
        used.append(Row(row.name, Reach(2, WALL), seconds=measured, missing=row.missing))
    note = "Per call, of this process and all its threads, without the processes of the sandbox."
    yield Table(f"{title}: the server's processor time", "ms", used, [note], has_limit=False)


def _at_once(loop: asyncio.AbstractEventLoop, run: Run, callers: int, processor: list[float]) -> Sampler:
    async def many(times: int) -> float:
        async def caller() -> None:
            for _ in range(max(1, times // callers)):
                await run()

        began, before = time.perf_counter(), time.process_time()
        await asyncio.gather(*(caller() for _ in range(callers)))
        processor.append((time.process_time() - before) / times)
        return time.perf_counter() - began

    return lambda times: loop.run_until_complete(many(times))


def _command(setting: Setting, loop: asyncio.AbstractEventLoop, tool: Run) -> Table:
    """Measure /bin/true; what should be reached is for root without control groups."""
    ours = confined(TRUE)
    mine = "toolcrib.sandbox.run, cold" + (", without control groups" if groups()[0] is not None else "")
    cases: dict[str, Callable[[], Sampler]] = {
        BARE: lambda: cold(loop, _bare(TRUE)),
        BUBBLEWRAP: lambda: cold(loop, _bubblewrap(TRUE)),
        mine: lambda: without_groups(cold(loop, ours)),
        "toolcrib.sandbox.run, cold, in pooled control groups": lambda: _grouped(cold(loop, ours)),
        "toolcrib.sandbox.run, cold, as an ordinary user": as_ordinary_user,
        "toolcrib.sandbox.run, a spare ready": lambda: warm(loop, ours),
        "the same, with a list of hosts": lambda: warm(loop, confined(TRUE, **way_out(1))),
        "Project, tool of kind command, a spare ready": lambda: warm(loop, tool),
    }
    reaches: Reaches = {
        mine: [Reach(10, OVER), Reach(1.6, PEER)],
        "toolcrib.sandbox.run, a spare ready": Reach(5, OVER),
    }
    table = _table(setting, "Run /bin/true", cases, reaches, rounds=25, times=4)
    who = "root" if os.geteuid() == 0 else "an ordinary user"
    table.notes.append(f"Run by {who} unless the row says otherwise; output read through pipes.")
    table.rows[1].peer = True
    return table


def _python(setting: Setting, loop: asyncio.AbstractEventLoop, tool: Run, in_venv: Run) -> Table:
    name = "Project, tool of kind python"
    cases: dict[str, Callable[[], Sampler]] = {
        BARE: lambda: cold(loop, _bare(PYTHON)),
        "bare process that imports what a tool finds loaded": lambda: cold(loop, _bare(LOADED)),
        "toolcrib.sandbox.run, the interpreter started inside": lambda: cold(loop, confined(PYTHON)),
        f"{name}, cold": lambda: cold(loop, tool),
        f"{name}, cold, in a virtual environment": lambda: cold(loop, in_venv),
        f"{name}, a spare ready": lambda: warm(loop, tool),
        f"{name}, a spare ready, in a virtual environment": lambda: warm(loop, in_venv),
    }
    # What a virtual environment runs at start (`site`) belongs to the call, so its rows should reach nothing.
    bare = (f"{name}, cold", f"{name}, a spare ready")
    reaches: Reaches = {case: Reach(3 if SPARE in case else 15, WALL) for case in bare}
    table = _table(setting, "Run a Python function confined", cases, reaches, rounds=60, times=1)
    table.notes.append(
        "Each process runs what the interpreter's own `.pth` files say, as any start of it does. "
        "The virtual environment has none."
    )
    for row in table.rows:
        if len(row.seconds) > 1:
            tail = quantiles(row.seconds, n=20)[-1] * 1e3
            row.extra["p95 ms"] = f"{tail:.1f}" + (f" (≤ {TAIL:g})" if row.name == bare[1] else "")
    return table


def _first(setting: Setting, loop: asyncio.AbstractEventLoop, tool: Run, in_venv: Run) -> Table:
    cases: dict[str, Callable[[], Sampler]] = {
        BARE: lambda: first(loop, _bare(PYTHON)),
        "a command": lambda: first(loop, confined(TRUE)),
        "a tool of kind python": lambda: first(loop, tool),
        "a tool of kind python in a virtual environment": lambda: first(loop, in_venv),
    }
    reaches: Reaches = {"a tool of kind python in a virtual environment": Reach(200, WALL)}
    table = _table(setting, "The first confined call of a process", cases, reaches, rounds=15, times=1)
    table.notes.append("The launcher is started for it.")
    return table


def _table(
    setting: Setting,
    title: str,
    cases: Cases,
    reaches: Reaches,
    *,
    rounds: int,
    times: int,
) -> Table:
    """Measure the cases; one that cannot be made or fails once loses its row only."""
    ready = "the sandbox was made before"
    rows = {name: Row(name, reaches.get(name, ()), deferred=ready if SPARE in name else "") for name in cases}
    samplers = {}
    for name, make in cases.items():
        try:
            samplers[name] = make()
            samplers[name](1)
        except Exception as error:
            rows[name].missing = reason_of(error)
            samplers.pop(name, None)
    table = Table(title, "ms", list(rows.values()))
    table.take(interleave(samplers, setting.effort(rounds), times=1 if setting.quick else times))
    return table


def _grouped(sampler: Sampler) -> Sampler:
    pool, reason = groups()
    if pool is None:
        raise Missing(f"skipped: {reason}")
    return sampler


def _bare(command: tuple[str, ...]) -> Run:
    async def run() -> None:
        process = await asyncio.create_subprocess_exec(
            *command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env={}
        )
        await process.communicate()
        if process.returncode != 0:
            raise RuntimeError(f"{command[0]} ended with {process.returncode}")

    return run


def _bubblewrap(command: tuple[str, ...]) -> Run:
    """The same grants, as its manual shows it."""
    from tests.escape.contestants import bubblewrap_command, bwrap

    if bwrap() is None:
        raise Missing("skipped: there is no bwrap")
    return _bare((*bubblewrap_command(job_of(command), "/dev/null"), *command))


def _tool(root: Path, name: str, arguments: Mapping[str, Any], venv: str | None = None) -> Run:
    project = open_project(root, venv=venv)

    async def run() -> None:
        (await project.call(name, arguments)).unwrap()

    return run


def _tool_of_venv(root: Path) -> Run:
    base = os.path.realpath(getattr(sys, "_base_executable", sys.executable))
    command = [base, "-I", "-m", "venv", "--without-pip", str(root / "env")]
    subprocess.run(command, check=True, capture_output=True)
    return _tool(root, "counting", {"n": 1}, venv="env")


def _lazily(make: Callable[[], Run]) -> Run:
    """Return what is made when it is first run, so that a failure costs its own rows only."""
    made: list[Run] = []

    async def run() -> None:
        if not made:
            made.append(make())
        await made[0]()

    return run
