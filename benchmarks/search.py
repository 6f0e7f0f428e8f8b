"""Searching among many tools, beside the full-text search of SQLite alone on the same words."""

from __future__ import annotations

import asyncio
import os
import sqlite3
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from benchmarks.manifests import FEW, MANY, project
from benchmarks.setting import Setting, find, reason_of
from benchmarks.table import Reach, Row, Table
from benchmarks.timing import Sampler, interleave

LIMIT = "SQLite FTS5, the 25 best by bm25"
QUICK = Reach(20, "wall")
USUAL = (
    "anvil", "lathe 17", "grinder spindle", "hammer wr", "find torch", "number 42", "washer_88", "vice",
    "option", "jig mandrel pun",
)  # fmt: skip
SLIPS = ("anvli", "spidnle grinder", "hamer", "washr torch")
SOME = ("which anvil is best for hammers", "a torch that never was")
EVERY = ("find", "query")
"""Words that every tool has."""
ROWS = {
    "Project.search, usual words": USUAL,
    "Project.search, words with slips": SLIPS,
    "Project.search, some of the words": SOME,
    "Project.search, a word that every tool has": EVERY,
}
FIRST = "Project.open and the first search"


def measure(setting: Setting) -> list[Table]:
    """One table; the time is that of one search."""
    os.environ["TOOLCRIB_CACHE"] = os.fspath(setting.folder / "cache")
    count = FEW if setting.quick else MANY
    root = project(setting.folder / "project", count)
    rows = [Row(name, reach=QUICK) for name in ROWS] + [Row(FIRST)]
    samplers: dict[str, Sampler] = {}
    try:
        opened = find("toolcrib.project", "Project").open(root)
        samplers[LIMIT] = _each(_plain(opened.tools()), USUAL)
        for name, queries in ROWS.items():
            samplers[name] = _each(opened.search, queries)
        samplers[FIRST] = _first(root)
    except Exception as error:
        for row in rows:
            row.missing = reason_of(error)
    table = Table(
        f"Search {count:,} tools",
        "ms",
        [Row(LIMIT), *rows],
        [
            "The time of one search; each row has its own words, the limit the usual ones.",
            "`Project.search` ranks, counts all hits, and gives a page of 25.",
        ],
    )
    table.take(interleave(samplers, setting.effort(11), times=1))
    return [table]


def _each(search: Callable[[str], object], queries: Sequence[str]) -> Sampler:
    def sample(times: int) -> float:
        began = time.perf_counter()
        for _ in range(times):
            for query in queries:
                search(query)
        return (time.perf_counter() - began) / len(queries)

    return sample


def _first(root: Path) -> Sampler:
    def sample(times: int) -> float:
        taken = 0.0
        for _ in range(times):
            began = time.perf_counter()
            opened = find("toolcrib.project", "Project").open(root)
            opened.search(USUAL[0])
            taken += time.perf_counter() - began
            asyncio.run(opened.aclose())
        return taken

    return sample


def _plain(tools: Sequence[Any]) -> Callable[[str], object]:
    """The least there can be: one table in memory, ranked by SQLite."""
    database = sqlite3.connect(":memory:")
    database.execute(
        "CREATE VIRTUAL TABLE words USING fts5 (name, tags, description, arguments, prefix = '2 3')"
    )
    database.executemany(
        "INSERT INTO words VALUES (?, ?, ?, ?)",
        [
            (tool.name, " ".join(tool.tags), tool.description, " ".join(tool.input_schema["properties"]))
            for tool in tools
        ],
    )

    def search(query: str) -> object:
        words = " ".join(query.replace("_", " ").split()) + "*"
        ranked = "SELECT name FROM words WHERE words MATCH ? ORDER BY rank LIMIT 25"
        return database.execute(ranked, (words,)).fetchall()

    return search
