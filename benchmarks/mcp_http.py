"""MCP `tools/call` over streamable HTTP at 16 connections: Toolcrib, the SDK's server, a bare ASGI echo."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import orjson

from benchmarks.rest import CONNECTIONS, Server, take
from benchmarks.rest import Connection as RestConnection
from benchmarks.setting import Setting, reason_of
from benchmarks.table import Reach, Row, Table

LIMIT = "ASGI echo"
SERVERS = {LIMIT: "echo", "toolcrib serve --http": "toolcrib", "mcp MCPServer": "mcpserver"}
VERSION = "2026-07-28"
_META = "io.modelcontextprotocol/"
NOTE = (
    "Protocol 2026-07-28, one process a server, with uvicorn, uvloop, httptools. Toolcrib also checks Host "
    "and token, and writes two lines of its audit log for each call."
)


class Connection(RestConnection):
    """Reads answers of any length."""

    def data_received(self, data: bytes) -> None:
        """Send the next request once the answer has come as a whole."""
        self._read += data
        head, end, body = self._read.partition(b"\r\n\r\n")
        length = head.lower().rpartition(b"content-length:")[2].split(b"\r\n")[0]
        if not end or len(body) < int(length):
            return
        if not head.startswith(b"HTTP/1.1 200") or self._answer not in body:
            self._closed.set_exception(RuntimeError(f"wrong answer: {head!r} {body!r}"))
            self.transport.abort()
        self._read = b""
        self._next()


class McpServer(Server):
    """A running server of MCP."""

    connection = Connection

    def __init__(self, kind: str, folder: Path) -> None:
        super().__init__(kind, folder)
        meta = {
            f"{_META}protocolVersion": VERSION,
            f"{_META}clientInfo": {"name": "bench", "version": "1"},
            f"{_META}clientCapabilities": {},
        }
        params = {"name": "add", "arguments": {"a": 1, "b": 2}, "_meta": meta}
        body = orjson.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params})
        head = (
            f"POST /mcp HTTP/1.1\r\nHost: 127.0.0.1:{self.port}\r\nAuthorization: Bearer {self.token}\r\n"
            f"Content-Type: application/json\r\nAccept: application/json, text/event-stream\r\n"
            f"MCP-Protocol-Version: {VERSION}\r\nMcp-Method: tools/call\r\nMcp-Name: add\r\n"
            f"Content-Length: {len(body)}\r\n\r\n"
        )
        self.request = head.encode() + body
        self.answer = b'"id":1'


def measure(setting: Setting) -> Iterator[Table]:
    """Yield one table; each round asks every server in turn."""
    reach = {"toolcrib": Reach(2.5)}
    rows = [Row(name, reach.get(kind, ()), kind == "mcpserver") for name, kind in SERVERS.items()]
    table = Table(f"MCP over HTTP, {CONNECTIONS} connections", "µs", rows, [NOTE])
    with ExitStack() as stack:
        servers: dict[str, McpServer] = {}
        for row in rows:
            kind = SERVERS[row.name]
            try:
                servers[row.name] = server = McpServer(kind, setting.folder / f"mcp-{kind}")
                asyncio.run(server.send(1))
            except Exception as error:
                servers.pop(row.name, None)
                row.missing = reason_of(error)
            else:
                stack.callback(server.close)
        take(table, servers, setting.effort(9), times=100 if setting.quick else 3_000)
    yield table
