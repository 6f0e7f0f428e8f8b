"""Calls over HTTP at 16 connections: Toolcrib, Starlette, FastAPI, and a bare ASGI echo as the limit."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from statistics import median

from benchmarks.rest_servers import PATH
from benchmarks.setting import Setting, reason_of
from benchmarks.table import PEER, Reach, Row, Table
from benchmarks.timing import Effort, interleave

LIMIT = "ASGI echo"
SERVERS = {LIMIT: "echo", "toolcrib serve --http": "toolcrib", "Starlette, msgspec": "starlette"}
PEERS = {"FastAPI, pydantic": "fastapi"}
CONNECTIONS = 16
_CORES = sorted(os.sched_getaffinity(0))
BODY = b'{"args":{"a":1,"b":2}}'
ANSWER = b'{"ok":true,"value":3}'
NOTE = (
    "Every server runs in one process on a core of its own, with uvicorn, uvloop and httptools; the client, "
    "a bare asyncio protocol, on another core. All but the echo check the arguments. Toolcrib also checks "
    "Host and token, and writes two lines of its audit log for each call. The processor time is that of the "
    "server's process, which other work on the machine changes little: 100 µs are 10,000 calls a second on "
    "one core."
)


class Connection(asyncio.Protocol):
    """Sends one request after the other, as long as there are any left."""

    transport: asyncio.Transport

    def __init__(self, request: bytes, answer: bytes, left: list[None], closed: asyncio.Future[None]) -> None:
        self._request, self._answer, self._left, self._closed = request, answer, left, closed
        self._read = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        self._next()

    def _next(self) -> None:
        if self._left:
            self._left.pop()
            self.transport.write(self._request)
        else:
            self.transport.close()

    def data_received(self, data: bytes) -> None:
        self._read += data
        head, end, body = self._read.partition(b"\r\n\r\n")
        if not end or len(body) < len(self._answer):
            return
        if body != self._answer:
            self._closed.set_exception(RuntimeError(f"wrong answer: {head!r} {body!r}"))
            self.transport.abort()
        self._read = b""
        self._next()

    def connection_lost(self, _error: Exception | None) -> None:
        if not self._closed.done():
            self._closed.set_result(None)


class Server:
    """A running server."""

    connection = Connection

    def __init__(self, kind: str, folder: Path) -> None:
        folder.mkdir(exist_ok=True)
        self.process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.rest_servers", kind, str(folder)],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        separate(self.process.pid)
        assert self.process.stdout is not None
        words = self.process.stdout.readline().split()
        if len(words) != 2:
            raise EOFError(f"the server ended with {self.process.wait(20)}")
        self.port, self.token = int(words[0]), words[1]
        self.answer = BODY if kind == "echo" else ANSWER
        head = (
            f"POST {PATH} HTTP/1.1\r\nHost: 127.0.0.1:{self.port}\r\nAuthorization: Bearer {self.token}\r\n"
            f"Content-Type: application/json\r\nContent-Length: {len(BODY)}\r\n\r\n"
        )
        self.request = head.encode() + BODY
        self.processor: list[float] = []
        """Processor seconds of each request, by round."""

    def sample(self, times: int) -> float:
        """Seconds of so many requests over 16 connections."""
        before, began = self._processor_seconds(), time.perf_counter()
        asyncio.run(self.send(times))
        taken = time.perf_counter() - began
        self.processor.append((self._processor_seconds() - before) / times)
        return taken

    async def send(self, times: int) -> None:
        """Send so many requests."""
        loop = asyncio.get_running_loop()
        left: list[None] = [None] * times
        closed: list[asyncio.Future[None]] = [loop.create_future() for _ in range(CONNECTIONS)]
        for one in closed:
            await loop.create_connection(
                lambda one=one: self.connection(self.request, self.answer, left, one),  # type: ignore[misc]
                "127.0.0.1",
                self.port,
            )
        await asyncio.wait_for(asyncio.gather(*closed), 60)

    def _processor_seconds(self) -> float:
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def close(self) -> None:
        """End the server."""
        self.process.kill()
        self.process.wait()


def separate(server: int) -> None:
    """Give a server a core of its own: the scheduler often puts both on one, where the client counts too."""
    first, *others = _CORES
    if others:
        os.sched_setaffinity(server, {first})
        os.sched_setaffinity(0, others)


def take(table: Table, servers: Mapping[str, Server], effort: Effort, *, times: int) -> None:
    """Measure the servers under the names of their rows, and add their calls a second and processor time."""
    table.take(interleave({name: server.sample for name, server in servers.items()}, effort, times=times))
    for row in table.rows:
        if row.seconds:
            row.extra["calls/s"] = f"{1 / median(row.seconds):,.0f}"
            processor = median(servers[row.name].processor[1:])
            row.extra["the server's processor time, µs"] = f"{processor * 1e6:,.0f}"


def measure(setting: Setting) -> Iterator[Table]:
    """Yield one table; each round asks every server in turn."""
    kinds = SERVERS | (PEERS if setting.peers else {})
    reach = {"toolcrib": [Reach(2.5), Reach(0.77, PEER)]}
    rows = [Row(name, reach.get(kind, ()), name in PEERS) for name, kind in kinds.items()]
    table = Table(f"Invoke over HTTP, {CONNECTIONS} connections", "µs", rows, [NOTE])
    with ExitStack() as stack:
        servers: dict[str, Server] = {}
        for row in rows:
            try:
                servers[row.name] = server = Server(kinds[row.name], setting.folder / kinds[row.name])
            except Exception as error:
                row.missing = reason_of(error)
            else:
                stack.callback(server.close)
        take(table, servers, setting.effort(9), times=100 if setting.quick else 5_000)
    yield table
