"""Reading a small file: by a file tool of a project, and beneath a root, beside a plain open."""

from __future__ import annotations

import asyncio

from benchmarks.setting import Setting, find
from benchmarks.table import WALL, Reach, Row, Table
from benchmarks.timing import interleave, repeat, repeat_async
from toolcrib.sandbox import Root, Roots

PLAIN = "open and read"
READ = "Roots.read"
HIDING = "Roots.read, with hidden files"
EACH = "Roots.read, the root opened for each call"
SIZE = 2_000
HIDDEN = (".env", ".toolcrib")
CALL = "Project.call of a tool of kind file"
MANIFEST = """\
name: small
description: Read the file.
kind: file
version: 1
outputs: {format: text}
exec:
  file: {action: read, path: src/small.txt}
permissions:
  network: false
  fs: {read: [src]}
"""


def reading(setting: Setting, loop: asyncio.AbstractEventLoop) -> Table:
    """One table; the file is in the page cache."""
    folder = setting.folder / "reading"
    path = folder / "src" / "small.txt"
    path.parent.mkdir(parents=True)
    path.write_bytes(b"x" * SIZE)
    name = str(path)
    tool = folder / ".toolcrib" / "tools" / "small" / "tool.yml"
    tool.parent.mkdir(parents=True)
    tool.write_text(MANIFEST, encoding="utf-8")
    project = find("toolcrib.project", "Project").open(folder, accept="all")

    async def call() -> None:
        assert len((await project.call("small", {})).unwrap()) == SIZE

    # Closed by the end of the process.
    roots, hiding = Roots(Root(str(folder))), Roots(Root(str(folder), hidden=HIDDEN))

    def plain() -> bytes:
        with open(name, "rb") as file:
            return file.read()

    def each() -> bytes:
        with Roots(Root(str(folder))) as opened:
            return opened.read(name).data

    table = Table(
        "Read a small file",
        "µs",
        [
            Row(PLAIN),
            Row(CALL, Reach(150, WALL)),
            Row(READ, Reach(20, WALL)),
            Row(HIDING, Reach(20, WALL)),
            Row(EACH),
        ],
        [f"{SIZE:,} bytes, in the page cache. The tool also writes two lines of the audit log a call."],
    )
    samplers = {
        PLAIN: repeat(plain),
        READ: repeat(lambda: roots.read(name)),
        HIDING: repeat(lambda: hiding.read(name)),
        EACH: repeat(each),
        CALL: repeat_async(loop, call),
    }
    table.take(interleave(samplers, setting.effort(25)))
    return table
