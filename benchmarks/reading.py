"""Reading a small file in this process: beneath a root that no path leads out of, beside a plain open."""

from __future__ import annotations

from benchmarks.setting import Setting
from benchmarks.table import Reach, Row, Table
from benchmarks.timing import interleave, repeat
from toolcrib.sandbox import Root, Roots

PLAIN = "open and read"
READ = "Roots.read"
HIDING = "Roots.read, with hidden files"
EACH = "Roots.read, the root opened for each call"
SIZE = 2_000
HIDDEN = (".env", ".toolcrib")


def reading(setting: Setting) -> Table:
    """One table; the file is in the page cache."""
    folder = setting.folder / "reading"
    path = folder / "src" / "small.txt"
    path.parent.mkdir(parents=True)
    path.write_bytes(b"x" * SIZE)
    name = str(path)
    # Closed by the end of the process.
    roots, hiding = Roots(Root(str(folder))), Roots(Root(str(folder), hidden=HIDDEN))

    def plain() -> bytes:
        with open(name, "rb") as file:
            return file.read()

    def each() -> bytes:
        with Roots(Root(str(folder))) as opened:
            return opened.read(name).data

    table = Table(
        "Read a small file in this process",
        "µs",
        [Row(PLAIN), Row(READ, reach=Reach(20, "wall")), Row(HIDING, reach=Reach(20, "wall")), Row(EACH)],
        [f"{SIZE:,} bytes, in the page cache."],
    )
    samplers = {
        PLAIN: repeat(plain),
        READ: repeat(lambda: roots.read(name)),
        HIDING: repeat(lambda: hiding.read(name)),
        EACH: repeat(each),
    }
    table.take(interleave(samplers, setting.effort(25)))
    return table
