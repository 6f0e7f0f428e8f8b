"""One part of the benchmarks in a process of its own; `run` starts it."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

from benchmarks.setting import Setting, find
from benchmarks.table import Table

PARTS = {
    "imports": "benchmarks.imports",
    "calls": "benchmarks.calls",
    "registration": "benchmarks.registration",
    "manifests": "benchmarks.manifests",
    "growth": "benchmarks.growth",
    "search": "benchmarks.search",
    "bundles": "benchmarks.bundles",
    "mcp": "benchmarks.mcp_stdio",
    "mcp_http": "benchmarks.mcp_http",
    "rest": "benchmarks.rest",
    "guard": "benchmarks.guard",
    "sandbox": "benchmarks.sandbox",
    "durable": "benchmarks.durable",
    "pods": "benchmarks.pods",
    "bridge": "benchmarks.bridge",
}


def main() -> None:
    """Measure the part and write its tables as JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("name", choices=PARTS)
    parser.add_argument("output", type=Path)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--peers", action="store_true")
    args = parser.parse_args()
    measure: Callable[[Setting], list[Table]] = find(PARTS[args.name], "measure")
    tables = measure(Setting(args.quick, args.peers, args.folder))
    args.output.write_text(json.dumps([asdict(table) for table in tables]), encoding="utf-8")


if __name__ == "__main__":
    main()
