"""Opening a project of many manifests beside the YAML parser alone; taking up one that changes."""

from __future__ import annotations

import asyncio
import os
import random
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks.setting import Setting, find, reason_of
from benchmarks.table import Reach, Row, Table
from benchmarks.timing import Sampler, interleave, repeat

MANY = 10_000
COLD = {1_000: Reach(1.5), MANY: Reach(1.4)}
"""How many manifests, and the most that opening them may take of what the parser takes."""
FEW = 30
WARM = Reach(100, "wall")
CHANGED = Reach(20, "wall")
LIMIT = "list, read and ryaml.loads"
READ = "list and read only"
OPEN = "Project.open"
STAT = "list, and the times of each"
WATCH = "Project.watch, until the change is in force"
ONE = "write it, read it and ryaml.loads"

WORDS = [
    "anvil",
    "bench",
    "bolt",
    "broach",
    "chuck",
    "clamp",
    "collet",
    "drill",
    "file",
    "gauge",
    "grinder",
    "hammer",
    "jig",
    "lathe",
    "mandrel",
    "mill",
    "nut",
    "pin",
    "planer",
    "punch",
    "ream",
    "saw",
    "screw",
    "shaper",
    "spindle",
    "tap",
    "torch",
    "vice",
    "washer",
    "wrench",
]

HTTP = """\
exec:
  http:
    method: GET
    url: https://{name}.example.org/v1/search
    headers:
      Accept: application/json
      X-Key: ${{KEY_{number}}}
    query:
      q: ${{query}}
      count: ${{count}}
    response:
      json_path: results
      fields:
        - name: title
          path: title
        - name: url
          path: url
"""
COMMAND = """\
exec:
  command:
    entrypoint: /bin/echo
    args: ["--count", "${{count}}", "--", "${{query}}"]
    cwd: .
    env:
      LANG: C.UTF-8
      KEY: ${{KEY_{number}}}
    stdout:
      format: text
    exit_codes_ok: [0, 1]
    timeout_ms: 30000
"""
PYTHON = """\
exec:
  python:
    module: tool
    function: main
    kwargs:
      query: ${{query}}
      count: ${{count}}
      key: ${{KEY_{number}}}
    return: json
    timeout_ms: 30000
"""
KINDS = {"http": HTTP, "command": COMMAND, "python": PYTHON}

MANIFEST = """\
# A tool of the benchmark
name: {name}
description: {description}
kind: {kind}
version: 1

inputs:
  schema:
    type: object
    additionalProperties: false
    required: [query]
    properties:
      query:
        type: string
        description: "What to look for: {description}"
        minLength: 1
        maxLength: 400
      count:
        type: integer
        description: How many to give at most
        minimum: 1
        maximum: {most}
        default: 10
{options}
outputs:
  format: json
  schema:
    type: array
    items:
      type: object
      additionalProperties: false
      required: [title, url]
      properties:
        title: {{type: string}}
        url: {{type: string}}

{exec}
permissions:
  network: {network}
  fs:
    read: []
    write: []
  secrets:
    KEY_{number}:
      type: string
      required: true

approval:
  required: false

examples:
  - description: "Look for a {word}"
    params:
      query: "best {word} of the year"
      count: 5
    expected_output: |
      [
        {{"title": "All about the {word}", "url": "https://example.org/{word}"}}
      ]
"""
OPTION = """\
      option_{index}:
        type: {type}
        description: "Option {index}: {text}"
"""


def measure(setting: Setting) -> list[Table]:
    """Four tables: nothing is kept yet, of few and many; opened before; one of many changes."""
    os.environ["TOOLCRIB_CACHE"] = os.fspath(setting.folder / "cache")
    counts = [FEW] if setting.quick else list(COLD)
    roots = {count: project(setting.folder / str(count), count) for count in counts}
    # The parser's package does not export its names as type checkers want it.
    loads = find("ryaml", "loads")
    cold = [_cold(setting, roots[count], count, loads) for count in counts]
    return [*cold, _warm(setting, roots[counts[-1]], counts[-1]), _one(setting, roots[counts[-1]], loads)]


def project(root: Path, count: int) -> Path:
    """Make a project of so many tools."""
    write(root / ".toolcrib" / "tools", count)
    return root


def _cold(setting: Setting, root: Path, count: int, loads: Callable[[str], object]) -> Table:
    folder = root / ".toolcrib" / "tools"
    base, cache = os.fspath(folder), setting.folder / "cache"
    load = Row(OPEN, reach=COLD.get(count))
    samplers = {LIMIT: repeat(lambda: _parse(base, loads)), READ: repeat(lambda: _read(base))}
    try:
        samplers[OPEN] = _opener(root, count, lambda: shutil.rmtree(cache, ignore_errors=True))
    except Exception as error:
        load.missing = reason_of(error)
    size = sum(path.stat().st_size for path in folder.glob("*/tool.yml"))
    notes = [
        f"{size / count:,.0f} bytes each, one folder per tool; the files are in the page cache.",
        "What is kept for the next start is written within the time shown.",
    ]
    table = Table(f"Open a project of {count:,} manifests cold", "ms", [Row(LIMIT), Row(READ), load], notes)
    table.take(interleave(samplers, setting.effort(11 if count < MANY else 5), times=1))
    return table


def _warm(setting: Setting, root: Path, count: int) -> Table:
    again = Row(OPEN, reach=WARM)
    samplers = {STAT: repeat(lambda: _stat(os.fspath(root / ".toolcrib" / "tools")))}
    try:
        samplers[OPEN] = _opener(root, count)
    except Exception as error:
        again.missing = reason_of(error)
    table = Table(f"Open it again: {count:,} manifests that are as they were", "ms", [Row(STAT), again])
    table.take(interleave(samplers, setting.effort(11), times=1))
    return table


def _one(setting: Setting, root: Path, loads: Callable[[str], object]) -> Table:
    path = root / ".toolcrib" / "tools" / name_of(FEW - 1) / "tool.yml"
    text, rounds = path.read_text(encoding="utf-8"), iter(range(1_000_000))

    def change() -> None:
        path.write_text(f"{text}# {next(rounds)}\n", encoding="utf-8")

    def alone() -> None:
        change()
        loads(path.read_bytes().decode())

    row = Row(WATCH, reach=CHANGED)
    table = Table(
        "One of them changes while the project is open",
        "ms",
        [Row(ONE), row],
        ["10 ms of it are spent waiting for the end of a burst of changes."],
    )
    with _watched(root, change) as sampler:
        table.take(interleave({ONE: repeat(alone), WATCH: sampler}, setting.effort(11), times=1))
    return table


@contextmanager
def _watched(root: Path, change: Callable[[], None]) -> Iterator[Sampler]:
    """Samples how long a change takes until it is in force."""
    loop = asyncio.new_event_loop()
    opened = find("toolcrib.project", "Project").open(root)
    seen = asyncio.Event()

    async def once() -> float:
        # The row before has written too.
        await asyncio.sleep(0.05)
        seen.clear()
        began = time.perf_counter()
        change()
        await asyncio.wait_for(seen.wait(), 10)
        return time.perf_counter() - began

    try:
        loop.run_until_complete(opened.watch(lambda _: seen.set()))
        yield lambda times: sum(loop.run_until_complete(once()) for _ in range(times))
    finally:
        loop.run_until_complete(opened.aclose())
        loop.close()


def write(folder: Path, count: int) -> None:
    """Write so many different manifests, always the same ones."""
    for number in range(count):
        path = folder / name_of(number) / "tool.yml"
        path.parent.mkdir(parents=True)
        path.write_text(manifest(number), encoding="utf-8")


def name_of(number: int) -> str:
    """The name of a tool, which is the name of its folder too."""
    return f"{WORDS[number % len(WORDS)]}_{number}"


def manifest(number: int) -> str:
    """One manifest; kind, options and words differ."""
    choice = random.Random(number)
    kind = choice.choice(list(KINDS))
    options = "".join(
        OPTION.format(
            index=index,
            type=choice.choice(["string", "integer", "number", "boolean"]),
            text=" ".join(choice.sample(WORDS, 4)),
        )
        for index in range(choice.randint(0, 5))
    )
    name = name_of(number)
    return MANIFEST.format(
        name=name,
        number=number,
        kind=kind,
        description=f"Find a {' '.join(choice.sample(WORDS, 6))}, number {number}",
        most=choice.randint(10, 100),
        options=options,
        exec=KINDS[kind].format(name=name.replace("_", "-"), number=number),
        network="true" if kind == "http" else "false",
        word=choice.choice(WORDS),
    )


# The limit must not pay for `pathlib`, nor for keeping what was parsed.


def _read(base: str) -> None:
    for name in sorted(os.listdir(base)):
        with open(f"{base}/{name}/tool.yml", "rb") as file:
            file.read()


def _parse(base: str, loads: Callable[[str], object]) -> None:
    for name in sorted(os.listdir(base)):
        with open(f"{base}/{name}/tool.yml", "rb") as file:
            loads(file.read().decode())


def _stat(base: str) -> None:
    for name in sorted(os.listdir(base)):
        os.stat(f"{base}/{name}/tool.yml")


def _opener(root: Path, count: int, before: Callable[[], object] = lambda: None) -> Sampler:
    """Samples `Project.open`, after a look whether it takes every manifest."""
    opens: Callable[[Path], Any] = find("toolcrib.project", "Project").open

    def once() -> float:
        before()
        began = time.perf_counter()
        opened = opens(root)
        taken = time.perf_counter() - began
        if len(opened.toolset.names) != count or opened.diagnostics:
            raise RuntimeError(f"{len(opened.toolset.names)} of {count} loaded; {opened.diagnostics[:3]}")
        asyncio.run(opened.aclose())
        return taken

    once()
    return lambda times: sum(once() for _ in range(times))
