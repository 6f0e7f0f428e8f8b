"""A project from Python: manifest tools and your own functions, with one policy and one audit log.

Run it: python examples/project_from_python.py
"""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path

from toolcrib import Project
from toolcrib.guard.audit.check import verify

MANIFEST = """\
name: count_lines
description: Count the lines of a file of the project
kind: command
version: 1
inputs:
  schema:
    type: object
    additionalProperties: false
    required: [path]
    properties:
      path: {type: string, description: "The file, from the project root"}
outputs: {format: text}
exec:
  command: {entrypoint: wc, args: ["-l", "--", "${path}"]}
permissions:
  fs: {read: [notes]}
"""


def make_project(root: Path) -> None:
    """A project by hand; `toolcrib init` does the same with more words."""
    (root / ".toolcrib" / "tools" / "count_lines").mkdir(parents=True)
    (root / ".toolcrib" / "tools" / "count_lines" / "tool.yml").write_text(MANIFEST)
    (root / "notes").mkdir()
    (root / "notes" / "todo.txt").write_text("oil the lathe\nsharpen the saw\n")
    (root / "private.txt").write_text("not for tools\n")


async def use(root: Path) -> None:
    """Call a confined command and a registered function, then read the log."""
    async with Project.open(root, accept="all") as project:

        @project.toolset.tool
        def shout(text: str) -> str:
            """Say it louder."""
            return text.upper()

        print("tools:", [tool.name for tool in project.tools()])
        print("granted:", (await project.call("count_lines", {"path": "notes/todo.txt"})).unwrap().strip())
        result = await project.call("count_lines", {"path": "private.txt"})
        assert result.error is not None
        print("not granted:", result.error.code, "|", result.error.details["stderr"])
        print("own function:", (await project.call("shout", {"text": "done"})).unwrap())

    log = root / ".toolcrib" / "audit" / "tools.log"
    for line in log.read_text().splitlines():
        print("audit:", line.split("] ")[1].split(" prev=")[0])
    print("log intact:", verify(log).ok)


def main() -> None:
    """In a folder that goes away again."""
    with tempfile.TemporaryDirectory() as folder:
        make_project(Path(folder))
        asyncio.run(use(Path(folder)))


if __name__ == "__main__":
    main()
