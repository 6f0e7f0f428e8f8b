"""Costs that may grow with the number of tools or of ended calls: each size in a process of its own."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from benchmarks.durable import fill
from benchmarks.manifests import name_of, project
from benchmarks.setting import Setting, find
from benchmarks.start import COMMAND, list_once
from benchmarks.table import WALL, Reach, Row, Table

SIZES = ((10, 0), (1_000, 0), (10_000, 0), (100_000, 0), (10, 1_000), (10, 1_000_000))
"""Numbers of tools, and of ended calls beside them."""
BASE = "10 tools"
FLAT = Reach(1.5, BASE)
COLD, PARSER = "open, nothing kept", "the YAML parser alone"
FIGURES: dict[str, tuple[str, str, dict[int, float]]] = {
    COLD: ("s", "What is kept for the next start is written too.", {100_000: 15}),
    "open again": ("ms", "", {10_000: 100, 100_000: 500}),
    "list page": ("ms", "10 tools of the catalogue, with their calls.", {}),
    "first call": ("ms", "The first of a process: the tool is read and bound.", {10_000: 200}),
    "call": ("ms", "A function registered in the project; no sandbox.", {}),
    "first search": ("ms", "The first of a process.", {100_000: 1_000}),
    "search": ("ms", "The best hit and the number of all.", {}),
    "reload": ("ms", "One manifest changes. 10 ms are spent waiting for the end of a burst.", {10_000: 20}),
    "memory": ("MB", "Private to a process that has opened, listed, called, searched.", {100_000: 315}),
    "memory behind meta-tools": ("MB", "Private to `toolcrib serve --stdio` after its list.", {10_000: 84}),
}
"""Unit, note, and what a number of tools should reach other than 1.5 times ten tools."""


PARSED = 5_000
"""Manifests that the parser alone reads at most; more would take it as much longer."""


def measure(setting: Setting) -> Iterator[Table | None]:
    """Yield a table for each figure: a row for each size. None says that the next size is done."""
    figures: dict[str, dict[str, list[float]]] = {}
    for tools, calls in ((10, 0), (30, 0), (10, 50)) if setting.quick else SIZES:
        name = f"{tools:,} tools" if not calls else f"{calls:,} ended calls, {tools:,} tools"
        figures[name] = _of_size(setting, tools, calls)
        shutil.rmtree(setting.folder / "grown", ignore_errors=True)
        yield None
    for name, (unit, note, reaches) in FIGURES.items():
        rows = [Row(size, _reach(size, reaches), seconds=found[name]) for size, found in figures.items()]
        for row in rows if name == COLD else ():
            row.reach = row.reach if row.reach != FLAT else ()
            times = min(row.seconds) / min(figures[row.name][PARSER])
            row.extra["× the YAML parser alone"] = f"{times:.2f}"
        yield Table(f"Growth: {name}", unit, rows, [note] * bool(note), has_limit=False)  # type: ignore[arg-type]


def _reach(size: str, reaches: dict[int, float]) -> Reach | Sequence[Reach]:
    given = next((Reach(most, WALL) for count, most in reaches.items() if size == f"{count:,} tools"), FLAT)
    return () if size == BASE else given


def _of_size(setting: Setting, tools: int, calls: int) -> dict[str, list[float]]:
    root = project(setting.folder / "grown" / "project", tools)
    (root / ".toolcrib" / "config.yml").write_text("mcp: {max_listed: 5}\n", encoding="utf-8")
    environment = {
        **os.environ,
        "TOOLCRIB_CACHE": f"{root.parent}/cache",
        "TOOLCRIB_DATA": f"{root.parent}/data",
    }
    found: dict[str, list[float]] = {}
    for stage in STAGES:
        command = [sys.executable, "-m", "benchmarks.growth", stage, str(root), str(calls)]
        done = subprocess.run(command, check=True, env=environment, stdout=subprocess.PIPE)
        found |= json.loads(done.stdout.splitlines()[-1])
    return found


def opening(root: Path, calls: int) -> dict[str, list[float]]:
    """Open the project again and again, after adding ended calls."""
    opens: Callable[..., Any] = find("toolcrib.project", "Project").open
    found: dict[str, list[float]] = {PARSER: [_parse(root)]}
    found[COLD] = _timed(lambda: _closed(opens(root, accept="all")), 1)
    if calls:
        opened = opens(root, accept="all")
        fill(opened.calls.stored, calls, "SQLite")
        _closed(opened)
    for name, use in (
        ("first call", _first_call),
        ("first search", lambda opened: opened.search("anvil")),
    ):
        found[name] = []
        for _ in range(3):
            opened = opens(root, accept="all")
            found[name] += _timed(lambda use=use, opened=opened: use(opened), 1)  # type: ignore[misc]
            _closed(opened)
    found["open again"] = _timed(lambda: _closed(opens(root, accept="all")), 3)
    return found


def opened_once(root: Path, _calls: int) -> dict[str, list[float]]:
    """Open the project once in this process, and use it."""
    return asyncio.run(_used(root, find("toolcrib.project", "Project").open(root, accept="all")))


async def _used(root: Path, opened: Any) -> dict[str, list[float]]:
    found: dict[str, list[float]] = {}

    async def add(a: int, b: int) -> int:
        return a + b

    opened.toolset.register("add", add)
    found["list page"] = _timed(lambda: opened.list_tools(limit=10), 5)
    found["search"] = _timed(lambda: opened.search("lathe spindle", limit=1), 5)
    found["call"] = []
    for _ in range(50):
        began = time.perf_counter()
        (await opened.call("add", {"a": 1, "b": 2})).unwrap()
        found["call"].append(time.perf_counter() - began)
    found["memory"] = [private(os.getpid())]
    seen = asyncio.Event()
    await opened.watch(lambda _: seen.set())
    file = root / ".toolcrib" / "tools" / name_of(3) / "tool.yml"
    text = file.read_text(encoding="utf-8")
    found["reload"] = []
    for number in range(5):
        await asyncio.sleep(0.05)
        seen.clear()
        began = time.perf_counter()
        file.write_text(f"{text}# {number}\n", encoding="utf-8")
        await asyncio.wait_for(seen.wait(), 60)
        found["reload"].append(time.perf_counter() - began)
    await opened.aclose()
    found["memory behind meta-tools"] = [_served(root)]
    return found


def _first_call(opened: Any) -> None:
    """Call a tool of a manifest as far as its arguments are checked: nothing is started."""
    result = asyncio.run(opened.call(name_of(0), {"count": 1}))
    assert result.error.code == "invalid_input", result


def _served(root: Path) -> float:
    """Return the memory of a server behind which the tools are."""
    command = [*COMMAND, "serve", "--stdio", "--root", str(root)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as server:
        list_once(server)
        size = private(server.pid)
        server.kill()
    return size


def private(pid: int) -> float:
    """Return the bytes that no other process has."""
    pairs = (line.split() for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()[1:])
    return float(sum(int(words[1]) * 1024 for words in pairs if words[0].startswith("Private_")))


def _parse(root: Path) -> float:
    """Return the seconds that the parser takes for all manifests; of many it reads only some."""
    loads = find("ryaml", "loads")
    folders = sorted(os.listdir(root / ".toolcrib" / "tools"))
    some = folders[:: -(-len(folders) // PARSED)]
    began = time.perf_counter()
    for folder in some:
        with open(root / ".toolcrib" / "tools" / folder / "tool.yml", "rb") as file:
            loads(file.read().decode())
    return (time.perf_counter() - began) * len(folders) / len(some)


def _closed(opened: Any) -> None:
    asyncio.run(opened.aclose())


def _timed(work: Callable[[], object], times: int) -> list[float]:
    taken = []
    for _ in range(times):
        began = time.perf_counter()
        work()
        taken.append(time.perf_counter() - began)
    return taken


STAGES = {"opening": opening, "opened": opened_once}

if __name__ == "__main__":
    print(json.dumps(STAGES[sys.argv[1]](Path(sys.argv[2]), int(sys.argv[3]))))
