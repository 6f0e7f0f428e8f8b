"""MCP `tools/call` over standard input and output: our server, the SDK's, and a bare echo as the limit."""

from __future__ import annotations

import os
import select
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import IO, Any

import orjson

from benchmarks.setting import Setting, reason_of
from benchmarks.stdio_server import ECHO
from benchmarks.table import PEER, Reach, Row, Table
from benchmarks.timing import Sampler, interleave

LIMIT = "echo written by hand"
SESSION, MODERN = "2025-11-25", "2026-07-28"
WAIT = 20.0
"""Seconds until a server that says nothing counts as hanging."""
IN_FLIGHT = 16
NOTE = (
    "Each round's figure is the median of its calls, one after the other, as a client over bare pipes sees "
    "them. Ready: from starting the process to the first answer. `toolcrib serve` also writes two lines of "
    "its audit log for each call."
)
NOTE_PROXY = (
    "The limit is the echo without a proxy; the others start it as their one server and pass each call on, "
    "ours confined, with arguments checked and two lines of its audit log. FastMCP keeps one session open."
)
ROOT = str(Path(__file__).resolve().parent.parent)

FILE = """\
from toolcrib import Toolset

tools = Toolset()


@tools.tool
async def add(a: int, b: int) -> int:
    return a + b
"""
Message = dict[str, Any]


class Client:
    """Newline-delimited JSON over pipes: as little client as there can be, so that the server shows."""

    def __init__(self, command: Sequence[str], protocol: str, data: str) -> None:
        self.meta = _meta(protocol)
        began = time.perf_counter()
        self.process = subprocess.Popen(
            [sys.executable, "-m", *command],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={**os.environ, "TOOLCRIB_DATA": data},
        )
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.to: IO[bytes] = self.process.stdin
        self.back: IO[bytes] = self.process.stdout
        try:
            self._greet(protocol)
            answer = self.ask(self.call(1))
        except BaseException:
            self.close()
            raise
        self.ready = time.perf_counter() - began
        """Seconds from starting the process to the answer of the first call."""
        if answer["result"]["structuredContent"] != {"result": 4}:
            self.close()
            raise RuntimeError(f"wrong answer: {answer}")

    def _greet(self, protocol: str) -> None:
        if protocol != SESSION:
            return
        hello = {
            "protocolVersion": protocol,
            "capabilities": {},
            "clientInfo": {"name": "bench", "version": "0"},
        }
        self.ask({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": hello})
        self.send(orjson.dumps({"jsonrpc": "2.0", "method": "notifications/initialized"}))

    def call(self, number: int) -> Message:
        """A `tools/call` request."""
        params = {"name": "add", "arguments": {"a": number, "b": 3}, **self.meta}
        return {"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": params}

    def send(self, line: bytes) -> None:
        """Send one message."""
        self.to.write(line + b"\n")
        self.to.flush()

    def ask(self, message: Message) -> Message:
        """Send a request and wait for its answer, for a limited time."""
        self.send(orjson.dumps(message))
        if not select.select([self.back], [], [], WAIT)[0]:
            raise TimeoutError(f"no answer within {WAIT:g} s")
        line = self.back.readline()
        if not line:
            raise EOFError(f"the server ended with {self.process.wait(WAIT)}")
        answer: Message = orjson.loads(line)
        if "result" not in answer:
            raise RuntimeError(f"refused: {answer}")
        return answer

    def round_trips(self, times: int) -> list[float]:
        """Seconds of each of so many calls, one after the other."""
        lines = [orjson.dumps(self.call(number)) for number in range(times)]
        send, receive, now = self.send, self.back.readline, time.perf_counter
        taken = []
        for line in lines:
            began = now()
            send(line)
            receive()
            taken.append(now() - began)
        return taken

    def crowd(self, times: int) -> float:
        """Calls a second with 16 of them under way."""
        lines = [orjson.dumps(self.call(number)) for number in range(times + IN_FLIGHT)]
        began = time.perf_counter()
        for line in lines[:IN_FLIGHT]:
            self.send(line)
        for line in lines[IN_FLIGHT:]:
            self.back.readline()
            self.send(line)
        for _ in range(IN_FLIGHT):
            self.back.readline()
        return len(lines) / (time.perf_counter() - began)

    def close(self) -> None:
        """End the server."""
        self.process.kill()
        self.process.wait()
        self.to.close()
        self.back.close()


def _meta(protocol: str) -> Message:
    if protocol == SESSION:
        return {}
    prefix = "io.modelcontextprotocol/"
    about = {
        f"{prefix}protocolVersion": protocol,
        f"{prefix}clientInfo": {"name": "bench", "version": "0"},
        f"{prefix}clientCapabilities": {},
    }
    return {"_meta": about}


def measure(setting: Setting) -> Iterator[Table]:
    """Yield two tables; each round asks every server in turn."""
    file = setting.folder / "app.py"
    file.write_text(FILE, encoding="utf-8")
    servers = {LIMIT: (["benchmarks.stdio_server", "echo"], SESSION)}
    rows = [Row(LIMIT)]
    for protocol in (SESSION, MODERN):
        commands = {
            "Toolset in memory": ["benchmarks.stdio_server", "toolcrib"],
            "toolcrib serve app.py --stdio": ["toolcrib", "serve", str(file), "--stdio"],
        }
        peers = {
            "mcp MCPServer": ["benchmarks.stdio_server", "sdk"],
            "FastMCP": ["benchmarks.stdio_server", "fastmcp"],
        }
        for name, command in (commands | (peers if setting.peers else {})).items():
            servers[f"{name}, {protocol}"] = (command, protocol)
            reach = () if name in peers else Reach(3.5 if "memory" in name else 6)
            rows.append(Row(f"{name}, {protocol}", reach, name in peers))
    table = Table("MCP tools/call over stdio", "µs", rows, [NOTE])
    _take(table, servers, setting)
    yield table
    yield _proxies(setting)


def _proxies(setting: Setting) -> Table:
    """Return the table of servers that pass each call on to the echo."""
    project = setting.folder / "proxy"
    (project / ".toolcrib").mkdir(parents=True)
    read = {"fs": {"read": [*sorted({ROOT, sys.prefix, sys.base_prefix})]}}
    server = {"command": ECHO[0], "args": ECHO[1:], "cwd": ROOT, "prefix": False, "permissions": read}
    (project / ".toolcrib" / "config.yml").write_bytes(orjson.dumps({"mcp_servers": {"echo": server}}))
    servers = {
        LIMIT: (["benchmarks.stdio_server", "echo"], SESSION),
        "toolcrib serve --stdio": (["benchmarks.stdio_server", "toolcrib_proxy", str(project)], SESSION),
        "FastMCP": (["benchmarks.stdio_server", "fastmcp_proxy"], SESSION),
    }
    rows = [Row(LIMIT), Row("toolcrib serve --stdio", Reach(0.33, PEER))]
    rows += [Row("FastMCP", peer=True)] * setting.peers
    table = Table("MCP tools/call through a proxy, over stdio", "µs", rows, [NOTE_PROXY])
    _take(table, servers, setting)
    return table


def _take(table: Table, servers: dict[str, tuple[list[str], str]], setting: Setting) -> None:
    """Start the servers, and fill the rows."""
    with ExitStack() as stack:
        data = stack.enter_context(TemporaryDirectory())
        clients: dict[str, Client] = {}
        for row in table.rows:
            try:
                clients[row.name] = client = Client(*servers[row.name], data)
            except Exception as error:
                row.missing = reason_of(error)
            else:
                stack.callback(client.close)
        samplers = {name: _sampler(client) for name, client in clients.items()}
        table.take(interleave(samplers, setting.effort(15), times=20 if setting.quick else 300))
        for row in table.rows:
            if row.seconds:
                rate = clients[row.name].crowd(50 if setting.quick else 2_000)
                row.extra[f"calls/s, {IN_FLIGHT} under way"] = f"{rate:,.0f}"
                row.extra["ready, ms"] = f"{clients[row.name].ready * 1e3:,.0f}"


def _sampler(client: Client) -> Sampler:
    return lambda times: median(client.round_trips(times)) * times
