"""A project of many manifests, always the same ones."""

from __future__ import annotations

import random
from pathlib import Path

MANY = 10_000
FEW = 30

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


def project(root: Path, count: int) -> Path:
    """Make a project of so many tools."""
    write(root / ".toolcrib" / "tools", count)
    return root


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
