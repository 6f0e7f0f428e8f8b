"""One part of the benchmarks in a process of its own; `run` starts it."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterable
from pathlib import Path

from benchmarks.setting import Setting, find
from benchmarks.table import Table

PARTS = {
    "start": "benchmarks.start",
    "calls": "benchmarks.calls",
    "registration": "benchmarks.registration",
    "growth": "benchmarks.growth",
    "bundles": "benchmarks.bundles",
    "openapi": "benchmarks.openapi",
    "mcp": "benchmarks.mcp_stdio",
    "mcp_http": "benchmarks.mcp_http",
    "rest": "benchmarks.rest",
    "http": "benchmarks.http_tools",
    "gateway": "benchmarks.gateway",
    "guard": "benchmarks.guard",
    "sandbox": "benchmarks.sandbox",
    "durable": "benchmarks.durable",
    "pods": "benchmarks.pods",
    "bridge": "benchmarks.bridge",
}


def main() -> None:
    """Measure the part and write its tables as JSON, a line each as soon as it is whole.

    An empty line shows that a part goes on whose table takes long.
    """
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("name", choices=PARTS)
    parser.add_argument("output", type=Path)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--peers", action="store_true")
    args = parser.parse_args()
    measure: Callable[[Setting], Iterable[Table | None]] = find(PARTS[args.name], "measure")
    with args.output.open("w", encoding="utf-8") as file:
        for table in measure(Setting(args.quick, args.peers, args.folder)):
            print(json.dumps(table.json()) if table else "", file=file, flush=True)


if __name__ == "__main__":
    main()
