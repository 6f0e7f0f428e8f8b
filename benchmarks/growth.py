"""Starting a project of few and of many tools: one call, and a server until its first list."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import orjson

from benchmarks import manifests
from benchmarks.imports import process
from benchmarks.setting import Setting
from benchmarks.table import Row, Table, Target
from benchmarks.timing import Sampler, interleave

COUNTS = (10, 1_000, manifests.MANY)
MOST = Target(1.5)
"""The most that many tools may take, times ten tools."""
TOOL = """\
name: first
description: Ends at once.
kind: command
version: 1
outputs: {format: text}
exec:
  command: {entrypoint: "true"}
permissions:
  network: false
  fs: {read: [.], write: []}
"""
INITIALIZE = {
    "protocolVersion": "2025-11-25",
    "capabilities": {},
    "clientInfo": {"name": "bench", "version": "1"},
}
ASKED: list[dict[str, Any]] = [
    {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": INITIALIZE},
    {"jsonrpc": "2.0", "method": "notifications/initialized"},
    {"jsonrpc": "2.0", "id": 2, "method": "tools/list"},
]


def measure(setting: Setting) -> list[Table]:
    """Two tables: `toolcrib run`, and `toolcrib serve --stdio`."""
    os.environ |= {f"TOOLCRIB_{name}": os.fspath(setting.folder / name.lower()) for name in ("CACHE", "DATA")}
    counts = COUNTS[:1] if setting.quick else COUNTS
    roots = {f"{count:,} tools": _project(setting.folder / f"of{count}", count) for count in counts}
    runs = {name: process([*_COMMAND, "run", "first", "--root", str(root)]) for name, root in roots.items()}
    servers = {name: _server(root) for name, root in roots.items()}
    return [
        _table("toolcrib run of one tool among many", runs, setting),
        _table("toolcrib serve --stdio until its first list, of the meta-tools alone", servers, setting),
    ]


_COMMAND = [sys.executable, "-m", "toolcrib"]


def _project(root: Path, count: int) -> Path:
    """Make a project of the user's own with so many tools, and start it once, which keeps what is read."""
    root.mkdir(parents=True)
    subprocess.run([*_COMMAND, "init"], cwd=root, check=True, capture_output=True)
    tools = manifests.project(root, count - 1) / ".toolcrib" / "tools"
    (tools / "first").mkdir()
    (tools / "first" / "tool.yml").write_text(TOOL, encoding="utf-8")
    (root / ".toolcrib" / "config.yml").write_text("mcp: {max_listed: 5}\n", encoding="utf-8")
    process([*_COMMAND, "run", "first", "--root", str(root)])(1)
    return root


def _server(root: Path) -> Sampler:
    """Sample a server from its start until it has sent its list."""

    def sample(times: int) -> float:
        began = time.perf_counter()
        for _ in range(times):
            command = [*_COMMAND, "serve", "--stdio", "--root", str(root)]
            with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as server:
                assert server.stdin is not None
                assert server.stdout is not None
                server.stdin.write(b"".join(orjson.dumps(one) + b"\n" for one in ASKED))
                server.stdin.flush()
                while orjson.loads(server.stdout.readline()).get("id") != ASKED[-1]["id"]:
                    pass
                server.kill()
        return time.perf_counter() - began

    return sample


def _table(title: str, samplers: dict[str, Sampler], setting: Setting) -> Table:
    table = Table(title, "ms", [Row(name, target=MOST) for name in samplers])
    table.rows[0].target = None
    table.take(interleave(samplers, setting.effort(7), times=1))
    return table
