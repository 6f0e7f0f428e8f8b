"""Every OpenAPI document of a folder imported: operations, tools, reasons, time; each schema checked anew.

    python -m benchmarks.openapi FOLDER [--server URL] [--runs N] [--json]

Files that are no OpenAPI documents are passed over. A document is read and imported N times (3); the least
processor time counts. Not timed: every input and output schema is compiled by itself as JSON Schema 2020-12,
and each of its references must lead to a definition of its own. Exit 1 when one does not, when a document is
refused, or when fewer than 99 of 100 operations become tools.
"""

from __future__ import annotations

import argparse
import gc
import json
import re
import resource
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import orjson

from benchmarks.setting import Setting
from benchmarks.start import COMMAND
from benchmarks.table import WALL, Reach, Row, Table
from toolcrib.errors import DefinitionError, ManifestError
from toolcrib.manifest.openapi import Imported, import_document, open_document
from toolcrib.schema import SchemaCheck

MANY = 4_000
WANTED = 0.99
MOST_MS = 2.5
SIGN = re.compile(rb"[\"']?(?:openapi|swagger)[\"']?\s*:\s*[\"']?[0-9]")
HEAD = 1 << 20


@dataclass
class DocumentRow:
    """The figures of one document."""

    document: str
    version: str = ""
    operations: int = 0
    tools: int = 0
    losses: int = 0
    ms: float = 0.0
    """Processor time for reading and importing, all operations together."""
    bad: list[str] = field(default_factory=list)
    """Tools whose schemas are not valid or not closed."""
    reasons: dict[str, int] = field(default_factory=dict)
    refused: str = ""

    @property
    def each(self) -> float:
        """Milliseconds an operation."""
        return self.ms / self.operations if self.operations else self.ms


def documents(folder: Path) -> Iterator[Path]:
    """Files that say that they are OpenAPI documents."""
    for path in sorted([folder] if folder.is_file() else folder.rglob("*")):
        if path.suffix in (".json", ".yaml", ".yml") and path.is_file():
            with path.open("rb") as file:
                if SIGN.search(file.read(HEAD)):
                    yield path


def references(schema: Any) -> Iterator[str]:
    """Every reference in a schema; an enum or an example is data."""
    waiting = [schema]
    while waiting:
        value = waiting.pop()
        if isinstance(value, dict):
            for key, item in value.items():
                if key in ("$ref", "$dynamicRef", "$recursiveRef") and isinstance(item, str):
                    yield item
                elif key not in ("enum", "const", "examples"):
                    waiting.append(item)
        elif isinstance(value, list):
            waiting += value


def fault(schema: dict[str, Any]) -> str | None:
    """Return why a schema is not valid or not closed, None if it is."""
    try:
        SchemaCheck(schema)
    except DefinitionError as error:
        return error.message
    own = {f"#/$defs/{name}" for name in schema.get("$defs", {})}
    return next((f"it refers to {ref}" for ref in references(schema) if ref not in own), None)


def hold(found: Imported) -> list[str]:
    """The tools of a document whose schemas do not hold."""
    return [
        f"{tool.name}: {line}"
        for tool in found.tools
        for schema in (tool.input_schema, tool.output.schema)
        if schema is not None and (line := fault(schema))
    ]


def imported(path: Path, server: str, runs: int) -> DocumentRow:
    """Read and import one document."""
    row = DocumentRow(path.name)
    best = float("inf")
    found: Imported | None = None
    for _ in range(runs):
        gc.collect()
        started = time.process_time()
        try:
            document = open_document(path)
            found = import_document(document)
            if not found.tools and any("--server" in made.reason for made in found.operations):
                found = import_document(document, server=server)
        except ManifestError as error:
            row.refused = error.message
            return row
        best = min(best, time.process_time() - started)
    assert found is not None
    row.version, row.operations, row.tools = found.version, len(found.operations), len(found.tools)
    row.losses, row.ms, row.reasons = len(found.losses), best * 1000, found.reasons()
    row.bad = hold(found)
    return row


def table(rows: list[DocumentRow]) -> Iterator[str]:
    """The rows as Markdown, and their sum."""
    yield "| document | OpenAPI | operations | tools | lost in schemas | ms an operation | skipped because |"
    yield "|---|---|---:|---:|---:|---:|---|"
    for row in rows:
        reasons = "; ".join(f"{count}× {reason}" for reason, count in row.reasons.items())
        line = f"refused: {row.refused}" if row.refused else reasons
        cells = (row.document, row.version, row.operations, row.tools, row.losses, f"{row.each:.2f}", line)
        yield f"| {' | '.join(str(cell).replace('|', '/') for cell in cells)} |"
    total, tools = sum(row.operations for row in rows), sum(row.tools for row in rows)
    ms = sum(row.ms for row in rows) / max(total, 1)
    part = f"{tools / max(total, 1):.2%}"
    yield f"| {len(rows)} documents | | {total:,} | {tools:,} ({part}) | | {ms:.2f} | |"


def measure(setting: Setting) -> Iterator[Table]:
    """Yield one table: a document of many operations, its schemas in other files."""
    count = 40 if setting.quick else MANY
    document = setting.folder / "api" / "openapi.json"
    document.parent.mkdir()
    loads = _write(document.parent, count)
    cases: list[tuple[Row, Callable[[], object]]] = [
        (Row("orjson.loads of each file"), loads),
        (Row("import_document", Reach(5, WALL)), lambda: _import(document, count)),
        (Row("toolcrib import openapi", Reach(5, WALL)), lambda: _command(document)),
    ]
    for _ in range(1 if setting.quick else 2):
        for row, work in cases:
            began = _processor()
            work()
            row.seconds.append(_processor() - began)
    notes = ["Processor time. The command writes a manifest for each operation."]
    yield Table(f"OpenAPI: {count:,} operations", "s", [row for row, _ in cases], notes)


def _processor() -> float:
    """Return the processor seconds of this process and of those that it has started and that have ended."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in used)


def _command(document: Path) -> None:
    with tempfile.TemporaryDirectory(dir=document.parent.parent) as root:
        Path(root, ".toolcrib").mkdir()
        command = [*COMMAND, "import", "openapi", str(document), "--root", root]
        subprocess.run(command, check=True, capture_output=True)


def _import(path: Path, count: int) -> None:
    found = import_document(open_document(path))
    if len(found.tools) != count:
        raise RuntimeError(f"{len(found.tools)} of {count} operations became tools")


def _write(folder: Path, count: int) -> Callable[[], object]:
    """Write a document whose operations refer to schemas in ten files; return what reads all of them."""
    for number in range(10):
        item: dict[str, Any] = {
            f"field_{n}": {"type": "string", "description": f"Field {n}"} for n in range(20)
        }
        item["parent"] = {"$ref": "#/Item"}
        schemas = {"Item": {"type": "object", "properties": item, "required": ["field_0"]}}
        (folder / f"schemas_{number}.json").write_text(json.dumps(schemas))
    paths: dict[str, Any] = {}
    for number in range(count):
        reference = {"schema": {"$ref": f"schemas_{number % 10}.json#/Item"}}
        parameter = {"name": "page", "in": "query", "schema": {"type": "integer", "minimum": 1}}
        paths[f"/items_{number}"] = {
            "post": {
                "operationId": f"change_item_{number}",
                "summary": f"Change item {number}",
                "parameters": [parameter],
                "requestBody": {"required": True, "content": {"application/json": reference}},
                "responses": {"200": {"description": "Changed", "content": {"application/json": reference}}},
            }
        }
    head = {"openapi": "3.1.0", "info": {"title": "Bench", "version": "1"}}
    whole = {**head, "servers": [{"url": "https://api.example.com"}], "paths": paths}
    (folder / "openapi.json").write_text(json.dumps(whole))
    return lambda: [orjson.loads(path.read_bytes()) for path in folder.iterdir()]


def main(arguments: list[str]) -> int:
    """Print the table; 1 when the bar is missed."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.openapi", description=(__doc__ or "").split("\n")[0]
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("--server", default="https://api.example.com", help="for documents that name none")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args(arguments)
    rows = [imported(path, options.server, options.runs) for path in documents(options.folder)]
    if options.json:
        print(json.dumps([asdict(row) for row in rows], indent=1))
    else:
        print("\n".join(table(rows)))
    bad = [f"{row.document}: {line}" for row in rows for line in row.bad]
    refused = [f"{row.document}: {row.refused}" for row in rows if row.refused]
    slow = [row for row in rows if row.operations and row.each > MOST_MS]
    for line in (*bad[:20], *refused[:20]):
        print(line, file=sys.stderr)
    versions = Counter(row.version for row in rows)
    line = (
        f"{len(bad)} schemas bad or open, {len(refused)} refused, {len(slow)} over {MOST_MS} ms an operation"
    )
    print(f"{line}; versions {dict(versions)}", file=sys.stderr)
    total, tools = sum(row.operations for row in rows), sum(row.tools for row in rows)
    return 1 if bad or refused or tools < WANTED * total else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
