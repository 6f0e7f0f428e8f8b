"""Loading a folder of manifests cold, beside the YAML parser alone on the same files."""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from pathlib import Path

from benchmarks.setting import Setting, find, told
from benchmarks.table import Row, Table, Target
from benchmarks.timing import interleave, repeat

MANY = 1_000
FEW = 30
LIMIT = "list, read and ryaml.loads"
READ = "list and read only"
LOAD = "toolcrib.manifest.load_tools"

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
    """One table; its operation is the whole folder."""
    count = FEW if setting.quick else MANY
    folder = setting.folder / "tools"
    size = write(folder, count)
    base = os.fspath(folder)
    # The parser's package does not export its names as type checkers want it.
    loads = find("ryaml", "loads")
    samplers = {LIMIT: repeat(lambda: _parse(base, loads)), READ: repeat(lambda: _read(base))}
    load = Row(LOAD, target=Target(1.5))
    try:
        samplers[LOAD] = repeat(_loader(folder, count))
    except Exception as error:
        load.missing = told(error)
    table = Table(
        f"Load {count:,} manifests cold",
        "ms",
        [Row(LIMIT), Row(READ), load],
        [f"{size / count:,.0f} bytes each, one folder per tool; the files are in the page cache."],
    )
    table.take(interleave(samplers, setting.effort(11), times=1))
    return [table]


def write(folder: Path, count: int) -> int:
    """Write so many different manifests, always the same ones; gives their size in bytes."""
    size = 0
    for number in range(count):
        text = manifest(number)
        path = folder / name_of(number) / "tool.yml"
        path.parent.mkdir(parents=True)
        path.write_text(text, encoding="utf-8")
        size += len(text.encode())
    return size


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
    for name in sorted(os.listdir(base)):  # noqa: PTH208 - see above
        with open(f"{base}/{name}/tool.yml", "rb") as file:  # noqa: PTH123 - see above
            file.read()


def _parse(base: str, loads: Callable[[str], object]) -> None:
    for name in sorted(os.listdir(base)):  # noqa: PTH208 - see above
        with open(f"{base}/{name}/tool.yml", "rb") as file:  # noqa: PTH123 - see above
            loads(file.read().decode())


def _loader(folder: Path, count: int) -> Callable[[], object]:
    """`load_tools` on the folder, after a look whether it takes every manifest."""
    from toolcrib.manifest import load_tools

    loaded = load_tools(folder)
    if len(loaded.tools) != count or loaded.diagnostics:
        raise RuntimeError(
            f"{len(loaded.tools)} of {count} loaded; {[str(d) for d in loaded.diagnostics[:3]]}"
        )
    return lambda: load_tools(folder)
