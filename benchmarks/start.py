"""The cost of a start: imports, `toolcrib run` among many tools, and a server until its first list."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson

from benchmarks import manifests
from benchmarks.setting import Setting
from benchmarks.table import OVER, WALL, Reach, Row, Table
from benchmarks.timing import Sampler, interleave

BARE = "python -c pass"
TOOLSET = "from toolcrib import Toolset"
PEERS = (
    "from anthropic import beta_async_tool",
    "from mcp.server import MCPServer",
    "from fastmcp import FastMCP",
    "from pydantic_ai import FunctionToolset",
    "from agents import function_tool",
)
RUN, SERVE = (10, 1_000, 10_000), (4, 1_000, 10_000)
"""Numbers of tools."""
COMMAND = [sys.executable, "-m", "toolcrib"]
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


def measure(setting: Setting) -> Iterator[Table]:
    """Yield the tables of imports, `toolcrib run`, and `toolcrib serve --stdio`."""
    os.environ |= {f"TOOLCRIB_{name}": os.fspath(setting.folder / name.lower()) for name in ("CACHE", "DATA")}
    imports = [
        Row(BARE),
        Row("import toolcrib", Reach(30, OVER)),
        Row(TOOLSET, Reach(60, OVER)),
        Row("toolcrib --help", Reach(150, WALL)),
    ]
    samplers = {row.name: _python(row.name) for row in imports[1:3]} | {BARE: _python("pass")}
    samplers["toolcrib --help"] = process([*COMMAND, "--help"])
    notes = ["Bytecode and files are cached."]
    yield _table(Table("Start a fresh process", "ms", imports, notes), samplers, setting, 15)
    if setting.peers:
        rows = [Row(BARE), Row(TOOLSET), *(Row(peer, peer=True) for peer in PEERS)]
        peers = {row.name: _python(row.name) for row in rows[1:]} | {BARE: _python("pass")}
        yield _table(Table("Import beside the peers", "ms", rows), peers, setting, 5)
    counts = sorted({*RUN[:1], *SERVE[:1]} if setting.quick else {*RUN, *SERVE})
    roots = {count: _project(setting.folder / f"of{count}", count) for count in counts}
    yield _runs(roots, setting)
    yield _servers(roots, setting)


def _runs(roots: dict[int, Path], setting: Setting) -> Table:
    samplers, rows = {BARE: _python("pass")}, [Row(BARE)]
    for count in RUN:
        if count in roots:
            name = f"{count:,} tools"
            flat = [] if count == RUN[0] else [Reach(1.2, f"{RUN[0]:,} tools")]
            rows.append(Row(name, [Reach(300, WALL), *flat]))
            samplers[name] = process([*COMMAND, "run", "first", "--root", str(roots[count])])
    return _table(Table("toolcrib run of one tool among many", "ms", rows), samplers, setting, 7)


def _servers(roots: dict[int, Path], setting: Setting) -> Table:
    echo = "echo written by hand"
    samplers = {echo: _server([sys.executable, "-m", "benchmarks.stdio_server", "echo"])}
    rows = [Row(echo)]
    for count in SERVE:
        if count in roots:
            name = f"{count:,} tools"
            few = count == SERVE[0]
            reach = Reach(3.5) if few else Reach(1.3, f"{SERVE[0]:,} tools")
            # Of more than five tools it lists the meta-tools.
            rows.append(Row(name, reach, deferred="" if few else "tools are read when one is asked for"))
            samplers[name] = _server([*COMMAND, "serve", "--stdio", "--root", str(roots[count])])
    table = Table("toolcrib serve --stdio until its first list", "ms", rows)
    return _table(table, samplers, setting, 7)


def _project(root: Path, count: int) -> Path:
    """Make a project of the user's own with so many tools, and start it once, which keeps what is read."""
    root.mkdir(parents=True)
    subprocess.run([*COMMAND, "init"], cwd=root, check=True, capture_output=True)
    tools = manifests.project(root, count - 1) / ".toolcrib" / "tools"
    (tools / "first").mkdir()
    (tools / "first" / "tool.yml").write_text(TOOL, encoding="utf-8")
    (root / ".toolcrib" / "config.yml").write_text("mcp: {max_listed: 5}\n", encoding="utf-8")
    process([*COMMAND, "run", "first", "--root", str(root)])(1)
    return root


def _server(command: list[str]) -> Sampler:
    """Sample a server from its start until it has sent its list."""

    def sample(times: int) -> float:
        began = time.perf_counter()
        for _ in range(times):
            with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as server:
                list_once(server)
                server.kill()
        return time.perf_counter() - began

    return sample


def _table(table: Table, samplers: dict[str, Sampler], setting: Setting, rounds: int) -> Table:
    table.take(interleave(samplers, setting.effort(rounds), times=1))
    return table


def _python(code: str) -> Sampler:
    return process([sys.executable, "-c", code])


def process(command: list[str]) -> Sampler:
    """Sample a process from start to end."""

    def sample(times: int) -> float:
        began = time.perf_counter()
        for _ in range(times):
            subprocess.run(command, check=True, capture_output=True)
        return time.perf_counter() - began

    return sample


def list_once(server: subprocess.Popen[bytes]) -> None:
    """Begin a session with a server, and wait for its list of tools."""
    assert server.stdin is not None
    assert server.stdout is not None
    server.stdin.write(b"".join(orjson.dumps(one) + b"\n" for one in ASKED))
    server.stdin.flush()
    while orjson.loads(server.stdout.readline()).get("id") != ASKED[-1]["id"]:
        pass
