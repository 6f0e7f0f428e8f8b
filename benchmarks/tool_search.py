"""Many tools over MCP: the size of the list, and how often `tools_search` finds the right tool, beside BM25.

    python -m benchmarks.tool_search FOLDER [--misses]

FOLDER holds public OpenAPI documents, named as in the first column of tool_questions.tsv, in JSON or YAML;
others only make the search harder. Every operation becomes a tool DOCUMENT_OPERATION of one project.
Questions stand alternately for tuning and for testing: the ranking was tuned by the first, third, … alone.
Those at the end were written when it was done.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import orjson
from tantivy import Document, Filter, Index, SchemaBuilder, TextAnalyzerBuilder, Tokenizer

from benchmarks.openapi import documents
from toolcrib.manifest.openapi import import_document, new_manifests, open_document, write_manifests
from toolcrib.project import Project
from toolcrib.project.mcp_catalog import McpCatalog
from toolcrib.search import words_of
from toolcrib.serve.mcp.lists.listing import CallerListing
from toolcrib.spec import Call, Catalog, Tool

QUESTIONS = Path(__file__).with_name("tool_questions.tsv")
DEPTHS = (1, 5, 10)
CALLER = "bench"
_STEMS = (
    TextAnalyzerBuilder(Tokenizer.whitespace())
    .filter(Filter.lowercase())
    .filter(Filter.stopword("english"))
    .filter(Filter.stemmer("english"))
    .build()
)


class Found(NamedTuple):
    """The answers to all questions."""

    ranks: list[int | None]
    """Place of the right tool in each answer, from 1; None where it is not."""
    answers: list[list[str]]
    seconds: float
    """Processor time of a search."""
    bytes: float
    """Size of a usual answer, with the schemas."""


class Question(NamedTuple):
    """A question, and the tools of which one answers it."""

    document: str
    answers: tuple[str, ...]
    text: str
    group: str
    """`for tuning`, `for testing`, or `later`."""


def questions() -> list[Question]:
    """Read the file of questions. Raises ValueError for a question that uses a word of the tool's name."""
    found: list[Question] = []
    later = False
    for line in QUESTIONS.read_text(encoding="utf-8").splitlines():
        if line.startswith("#"):
            later = later or line.startswith("# Written after")
            continue
        document, operations, text = line.split("\t")
        names = tuple(one if ":" in one else f"{document}:{one}" for one in operations.split(","))
        if same := stems(names[0]) & stems(text):
            raise ValueError(f"{text!r} uses {', '.join(same)} of {names[0]}")
        group = "later" if later else ("for tuning", "for testing")[len(found) % 2]
        found.append(Question(document, names, text, group))
    return found


def stems(text: str) -> set[str]:
    """Return the stems of the words of a text, but for those such as `of`."""
    return set(_STEMS.analyze(" ".join(words_of(text))))


def import_all(folder: Path, root: Path) -> dict[str, str]:
    """Make the project at `root` of all documents in the folder; return the tool of each operation."""
    names = {}
    tools = root / ".toolcrib" / "tools"
    tools.mkdir(parents=True, exist_ok=True)
    for path in documents(folder):
        document = open_document(path)
        found = import_document(document, prefix=f"{path.stem}_")
        plain = import_document(document).tools  # a long name with a prefix is cut
        names.update(
            {f"{path.stem}:{one.name}": tool.name for one, tool in zip(plain, found.tools, strict=True)}
        )
        write_manifests(new_manifests(found, path.name), tools)
    return names


def list_bytes(catalog: Catalog) -> int:
    """Return the bytes of all pages of `tools/list`, as a client gets it."""
    listing, size, cursor = CallerListing(catalog, caller=CALLER), 0, None
    while True:
        page = listing.page(cursor)
        size += len(page)
        cursor = orjson.loads(b"{" + page + b"}").get("nextCursor")
        if cursor is None:
            return size


async def search(catalog: McpCatalog, asked: Sequence[Question]) -> Found:
    """Ask every question."""
    ranks, answers, size, began = [], [], 0, time.process_time()
    for one in asked:
        call = Call("tools_search", {"query": one.text, "limit": max(DEPTHS)}, caller=CALLER)
        names = [tool["name"] for tool in (await catalog.invoke(call)).unwrap()]
        ranks.append(next((at for at, name in enumerate(names, 1) if name in one.answers), None))
        answers.append(names)
    seconds = (time.process_time() - began) / max(len(asked), 1)
    for one in asked:
        call = Call("tools_search", {"query": one.text}, caller=CALLER)
        size += len(orjson.dumps((await catalog.invoke(call)).unwrap()))
    return Found(ranks, answers, seconds, size / max(len(asked), 1))


def listed_ranks(project: Project, asked: Sequence[Question]) -> list[int | None]:
    """Return the places of the right tools by `toolcrib list WORDS`."""
    ranks = list[int | None]()
    for one in asked:
        names = [tool.name for tool in project.bundles.search(one.text, limit=max(DEPTHS)).tools]
        ranks.append(next((at for at, name in enumerate(names, 1) if name in one.answers), None))
    return ranks


def plain_ranks(tools: Sequence[Tool], asked: Sequence[Question]) -> list[int | None]:
    """Return the places of the right tools by plain BM25 over names, descriptions and arguments."""
    schema = SchemaBuilder().add_text_field("name", stored=True, tokenizer_name="raw")
    index = Index(schema.add_text_field("text", tokenizer_name="stems").build())
    index.register_tokenizer("stems", _STEMS)
    writer = index.writer(num_threads=1)
    for tool in tools:
        words = words_of(" ".join((tool.name, tool.description, *tool.input_schema.get("properties", ()))))
        writer.add_document(Document(name=tool.name, text=" ".join(words)))
    writer.commit()
    index.reload()
    searcher, ranks = index.searcher(), list[int | None]()
    for one in asked:
        query, _ = index.parse_query_lenient(" ".join(words_of(one.text)), ["text"])
        hits = [searcher.doc(address)["name"][0] for _, address in searcher.search(query, max(DEPTHS)).hits]
        ranks.append(next((at for at, name in enumerate(hits, 1) if name in one.answers), None))
    return ranks


def rates(ranks: Sequence[Sequence[int | None]], asked: Sequence[Question]) -> Iterator[str]:
    """Return the rows of the table: the part of the questions answered at each depth, by each search."""
    groups: dict[str, list[int]] = {"for tuning": [], "for testing": [], "later": []}
    for at, one in enumerate(asked):
        groups[one.group].append(at)
        groups.setdefault(one.document.partition("_")[0], []).append(at)
    depths = [f"{name}top {depth}" for name in ("", "list ", "BM25 ") for depth in DEPTHS]
    yield f"| questions | number | {' | '.join(depths)} |"
    yield f"|---|---:|{'---:|' * len(depths)}"
    for name, group in groups.items():
        reached = [
            sum((one[at] or 99) <= depth for at in group) / len(group) for one in ranks for depth in DEPTHS
        ]
        yield f"| {name} | {len(group)} | {' | '.join(f'{part:.1%}' for part in reached)} |"


async def measure(folder: Path, *, misses: bool) -> None:
    """Print the tables."""
    asked = questions()
    with tempfile.TemporaryDirectory(prefix="toolcrib-bench-") as work:
        os.environ.update(TOOLCRIB_DATA=f"{work}/data", TOOLCRIB_CACHE=f"{work}/cache")
        root = Path(work, "project")
        names = import_all(folder, root)
        if missing := {name for one in asked for name in one.answers} - names.keys():
            raise SystemExit(f"{folder} has no operation for {', '.join(sorted(missing))}")
        asked = [one._replace(answers=tuple(names[name] for name in one.answers)) for one in asked]
        async with Project.open(root, accept="all") as project:
            tools = project.tools()
            plain, catalog = list_bytes(project), McpCatalog(project)
            shown = list_bytes(catalog)
            found = await search(catalog, asked)
            beside = listed_ranks(project, asked), plain_ranks(tools, asked)
    print(f"{len(tools):,} tools of {folder}\n")
    print(f"tools/list: every tool {plain:,} bytes; meta-tools {shown:,} bytes ({shown / plain:.2%})")
    print(
        f"tools_search: {found.bytes:,.0f} bytes an answer, {found.seconds * 1000:.1f} ms of processor time\n"
    )
    print("\n".join(rates((found.ranks, *beside), asked)))
    for one, rank, got in zip(asked, found.ranks, found.answers, strict=True) if misses else ():
        if (rank or 99) > DEPTHS[1]:
            print(f"\n{one.text}\n  wanted {one.answers[0]} ({rank})\n  found {', '.join(got[:5])}")


def main() -> None:
    """Read the arguments."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--misses", action="store_true", help="print the questions that were not answered")
    options = parser.parse_args()
    asyncio.run(measure(options.folder, misses=options.misses))


if __name__ == "__main__":
    main()
