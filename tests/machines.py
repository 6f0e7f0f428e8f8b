"""Machines of people who share the runs of one database: each has a data folder and a copy of the project."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

from tests.commands import PROGRAM, Forked, complete
from tests.crib import accept
from tests.patience import wait_for

AGENT = """\
name: joiner
model: scripted
tools: [cut, turn]
script:
  - calls: [{tool: cut, arguments: {plank: "{{prompt}}"}}]
  - calls: [{tool: turn, arguments: {piece: "{{result}}"}}]
  - text: "Ready: {{result}}"
"""
APP = '''
from toolcrib.spec import Annotations


def cut(plank: str) -> str:
    """Cut a plank."""
    return f"{plank} cut"


def turn(piece: str) -> str:
    """Turn a piece."""
    return f"{piece} turned"


def both(project):
    for function in (cut, turn):
        project.toolset.register(function.__name__, function, annotations=Annotations(read_only=True))


def cuts(project):
    project.toolset.register("cut", cut, annotations=Annotations(read_only=True))


def turns(project):
    project.toolset.register("turn", turn, annotations=Annotations(read_only=True))
'''
STAMP = """\
name: stamp
description: Stamp a letter.
kind: command
version: 1
inputs:
  schema:
    type: object
    additionalProperties: false
    required: [letter]
    properties:
      letter: {type: string}
exec:
  command: {entrypoint: printf, args: ["%s stamped", "${letter}"]}
permissions: {fs: {write: [out]}}
outputs: {format: text}
"""
"""It may write, so it needs trust."""


def until(holds: Callable[[], object], within_s: float = 100.0) -> None:
    """Wait until something holds."""
    wait_for(holds, "what is waited for", within_s, 0.1)


class Machine:
    """A person's machine. Without a database the runs are in the file of its project."""

    def __init__(self, home: Path, database: str | None = None, root: Path | None = None) -> None:
        self.root, self.data = root or home / "project", home / "data"
        if not self.root.exists():
            (self.root / "out").mkdir(parents=True)
            for path, text in (
                ("agents/joiner.yml", AGENT),
                ("tools/stamp/tool.yml", STAMP),
            ):
                file = self.root / ".toolcrib" / path
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_text(text)
            (self.root / "joinery.py").write_text(APP)
        self.data.mkdir(parents=True, exist_ok=True)
        more = {} if database is None else {"DATABASE_URL": database}
        self.env = {**os.environ, "TOOLCRIB_DATA": str(self.data), **more}
        self._running: list[Forked] = []

    def trust(self) -> None:
        """Trust the project and its tools as they are now."""
        accept(self.root, self.data)

    def worker(self, *options: str, ready: bool = True) -> Forked:
        """Start a worker, and wait until it serves."""
        command = [PROGRAM, "worker", "--concurrency", "1", *options]
        worker = Forked(command, cwd=self.root, env=self.env, stderr=subprocess.PIPE, text=True)
        self._running.append(worker)
        if ready:
            assert worker.stderr is not None
            said = ""
            while not said.startswith("serving "):
                said = worker.stderr.readline()
                assert said, worker.wait()
        return worker

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        """Run a command to its end."""
        return complete([PROGRAM, *words], cwd=self.root, env=self.env, capture_output=True, text=True)

    def end(self) -> None:
        """End its workers at once."""
        for worker in self._running:
            worker.kill()
            worker.communicate()
