"""Many tools in bundles: search, a page, a put and the start, beside one query of tantivy alone."""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from benchmarks.manifests import FEW, WORDS
from benchmarks.setting import Setting, find, reason_of
from benchmarks.table import Reach, Row, Table
from benchmarks.timing import interleave, repeat

SIZES = {10_000: 3, 100_000: 20}
"""Numbers of tools, and the most milliseconds that 99 of 100 searches should take."""
LIMIT = "tantivy, the 25 last changed with one word, and the number of all"
SEARCH, PAGE, PUT = "Bundles.search, usual words", "Bundles.tools, a page of 25", "Store.put_tool"
START = "Project.open and the first page"
FIRST = "Project.open and the first search"
ANEW = "the same, the cache of the list deleted"
OTHERS = {
    "the same, words with slips": ("anvli", "spidnle grinder", "hamer", "washr torch"),
    "the same, some of the words": ("which anvil is best for hammers", "a torch that never was"),
    "the same, a word that every tool has": ("finds", "number"),
}
QUERIES = ("anvil", "lathe 17", "grinder spindle", "hammer wr", "number 42", "punch mandrel", "anvli", "jig")
SAMPLES = 400


def measure(setting: Setting) -> Iterator[Table]:
    """Yield a table for each size."""
    yield from (_measure(setting, size) for size in ((FEW,) if setting.quick else SIZES))


def _measure(setting: Setting, size: int) -> Table:
    most = SIZES.get(size, 20)
    rows = [
        Row(SEARCH, reach=Reach(3)),
        *(Row(name, Reach(20, "wall")) for name in OTHERS),
        Row(PAGE, reach=Reach(2, "wall")),
        Row(PUT, reach=Reach(3, "wall")),
        Row(START, reach=Reach(1_000, "wall")),
        Row(FIRST, reach=Reach(1_000, "wall")),
        Row(ANEW, reach=Reach(1_000, "wall")),
    ]
    table = Table(
        f"Bundles of {size:,} tools",
        "ms",
        [Row(LIMIT), *rows],
        [f"99 of 100 searches should take at most {most} ms.", "A put is on disk when it returns (fsync)."],
    )
    folder = setting.folder / f"bundles-{size}"
    os.environ["TOOLCRIB_DATA"], os.environ["TOOLCRIB_CACHE"] = str(folder / "data"), str(folder / "cache")
    try:
        bundle = _fill(folder / "data", size)
        (folder / "project" / ".toolcrib").mkdir(parents=True)
        project = find("toolcrib.project", "Project").open(folder / "project")
        searches = _in_turn(project.bundles.search, QUERIES)
        searches()

        def opened() -> object:
            return find("toolcrib.project", "Project").open(folder / "project").bundles.tools()

        def first() -> object:
            return find("toolcrib.project", "Project").open(folder / "project").bundles.search("anvil")

        def anew() -> object:
            for listing in (folder / "cache").glob("*/listing"):
                listing.unlink()
            return opened()

        samplers = {
            LIMIT: repeat(_plain(project.bundles.records_index)),
            SEARCH: repeat(searches),
            **{name: repeat(_in_turn(project.bundles.search, words)) for name, words in OTHERS.items()},
            PAGE: repeat(project.bundles.tools),
            PUT: repeat(_puts(project.bundles.store, bundle)),
            START: repeat(opened),
            FIRST: repeat(first),
            ANEW: repeat(anew),
        }
        for name in (START, FIRST, ANEW, PUT):
            table.take(interleave({name: samplers.pop(name)}, setting.effort(9), times=1))
        searches()
        table.take(interleave(samplers, setting.effort(11)))
        rows[0].extra["p99"] = f"{_ninety_nine(searches) * 1000:.2f} ms"
    except Exception as error:
        for row in rows:
            row.missing = reason_of(error)
    return table


def _fill(data: Path, size: int) -> str:
    """Write records as the store does, but without waiting for the disk each time."""
    store, bundle = find("toolcrib.bundles", "Store")(data), ""
    encoded = find("toolcrib.bundles.files", "encoded")
    record, file_of = find("toolcrib.bundles", "ToolRecord"), find("toolcrib.bundles.records", "file_of")
    chance = random.Random(1)
    for number in range(size):
        if number % 5_000 == 0:  # Half of what a bundle can have: there is room for the puts.
            bundle = find("toolcrib.spec.identifier", "new_id")()
            store.put_bundle(bundle, find("toolcrib.bundles", "BundleBody")(slug=f"many-{number}"))
        first, second = chance.choice(WORDS), chance.choice(WORDS)
        seconds = 1_700_000_000 + number
        moment = time.strftime("%Y-%m-%dT%H:%M:%S.000Z", time.gmtime(seconds))
        tool = record(
            id=find("toolcrib.spec.identifier", "new_id")(float(seconds)),
            bundle_id=bundle,
            slug=f"{first}-{second}-{number}",
            version="1",
            description=f"Finds the {first} of a {second}, number {number}",
            tags=(chance.choice(WORDS),),
            type="http",
            arg_schema={"type": "object", "properties": {chance.choice(WORDS): {"type": "string"}}},
            impl={"urlTemplate": "https://example.com"},
            created_at=moment,
            modified_at=moment,
        )
        path = data / "bundles" / bundle / "tools" / file_of(tool.slug, "1")
        path.write_bytes(encoded(tool))
    return str(bundle)


def _in_turn(search: Callable[[str], object], queries: Sequence[str]) -> Callable[[], object]:
    turn = [0]

    def once() -> object:
        turn[0] += 1
        return search(queries[turn[0] % len(queries)])

    return once


def _puts(store: Any, bundle: str) -> Callable[[], object]:
    body = find("toolcrib.bundles", "ToolBody")(display_name="New", type="go", impl={"goFunc": "x"})
    turn = [0]

    def once() -> object:
        turn[0] += 1
        return store.put_tool(bundle, f"put-{turn[0]}", "1", body)

    return once


def _plain(index: Any) -> Callable[[], object]:
    """The least there can be: one term, ordered by time, and the place of each hit."""
    from tantivy import Query

    found = index.reader.index
    searcher = found.searcher()

    def once() -> object:
        query = Query.term_query(found.schema, "all", "anvil", "basic")
        return [searcher.doc(address) for _, address in searcher.search(query, 25, True, "rank").hits]

    return once


def _ninety_nine(once: Callable[[], object]) -> float:
    taken = []
    for _ in range(SAMPLES):
        began = time.perf_counter()
        once()
        taken.append(time.perf_counter() - began)
    return sorted(taken)[int(SAMPLES * 0.99)]
