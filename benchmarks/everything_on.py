"""A project with everything on: settings, policy, audit, a secret to be masked, timeout."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from toolcrib import Project

RULES = 100
LOOKING = 10
SECRET = "BENCH_KEY"

KEYED = f"""\
name: keyed
description: Declares a secret, so that every result is searched for it
kind: command
version: 1
exec:
  command:
    entrypoint: /bin/true
permissions:
  network: false
  secrets:
    {SECRET}:
      type: string
"""
SPAWNING = """\
name: spawning
description: Do nothing, confined
kind: command
version: 1
outputs:
  format: text
exec:
  command:
    entrypoint: /bin/true
permissions:
  network: false
"""
PYTHON = """\
name: counting
description: Count, confined
kind: python
version: 1
inputs:
  schema:
    type: object
    properties:
      n: {type: integer}
    required: [n]
exec:
  python:
    module: counting
    function: run
    args: ["${n}"]
    cwd: .
permissions:
  network: false
  fs:
    read: ["."]
"""
MODULE = """\
def run(n):
    return n + 1
"""


class OneSecret:
    """Gives the one secret there is."""

    def get(self, name: str) -> str | None:
        """Its value."""
        return "drill-press-4711" if name == SECRET else None


def policy(rules: int, looking: int) -> str:
    """A policy of so many rules; some look at the arguments of `add`, the others are of other tools."""
    plain = [f"    - {{effect: deny, tools: [other{n}_*], reason: no}}" for n in range(rules - looking)]
    when = "when: {properties: {a: {minimum: 1000}}, required: [a]}"
    closer = [f"    - {{effect: deny, tools: [a*], {when}, reason: too much {n}}}" for n in range(looking)]
    return "policy:\n  rules:\n" + "\n".join(plain + closer) + "\n"


def open_project(
    root: Path, functions: Sequence[Callable[..., Any]] = (), venv: str | None = None
) -> Project:
    """Make a project folder, open it, and register functions in it. `venv` is where the Python tool runs."""
    from toolcrib.project import Project

    python = PYTHON if venv is None else PYTHON.replace("    cwd: .\n", f"    cwd: .\n    venv: {venv}\n")

    tools = root / ".toolcrib" / "tools"
    for name, manifest in (("keyed", KEYED), ("spawning", SPAWNING), ("counting", python)):
        (tools / name).mkdir(parents=True)
        (tools / name / "tool.yml").write_text(manifest, encoding="utf-8")
    (tools / "counting" / "counting.py").write_text(MODULE, encoding="utf-8")
    config = "limits:\n  timeout_ms: 60000\n" + policy(RULES, 0)
    (root / ".toolcrib" / "config.yml").write_text(config, encoding="utf-8")
    project = Project.open(root, secrets=OneSecret(), accept="all")
    if project.diagnostics:
        raise RuntimeError("; ".join(map(str, project.diagnostics)))
    for function in functions:
        project.toolset.register(function)
    return project
