"""The cost of a connection through the proxy that enforces a list of hosts."""

from __future__ import annotations

import asyncio
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from benchmarks.confined import job_of, ran
from benchmarks.setting import Setting
from benchmarks.table import Reach, Row, Table
from benchmarks.timing import Sampler, interleave

SERVER = """
import asyncio, sys
async def answer(reader, writer):
    await reader.readuntil(b"\\r\\n\\r\\n")
    writer.write(b"HTTP/1.1 200 OK\\r\\nContent-Length: 2\\r\\nConnection: close\\r\\n\\r\\nok")
    writer.close()
async def main():
    server = await asyncio.start_server(answer, "127.0.0.1", 0, backlog=512)
    print(server.sockets[0].getsockname()[1], flush=True)
    await asyncio.to_thread(sys.stdin.read)
asyncio.run(main())
"""
CLIENT = """
import os, socket, sys, time
way, port, times = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
there, target = ("127.0.0.1", port), "/"
if way != "direct":
    host, _, other = os.environ["HTTP_PROXY"].removeprefix("http://").partition(":")
    there = (host, int(other))
if way == "get":
    target = f"http://127.0.0.1:{port}/"
ask = f"GET {target} HTTP/1.1\\r\\nHost: 127.0.0.1:{port}\\r\\nConnection: close\\r\\n\\r\\n".encode()
if way == "connect":
    ask = b"\\0not HTTP\\r\\n\\r\\n"
tunnel = f"CONNECT 127.0.0.1:{port} HTTP/1.1\\r\\n\\r\\n".encode()
began = time.perf_counter()
for _ in range(times):
    with socket.create_connection(there) as sock:
        if way == "connect":
            sock.sendall(tunnel)
            assert b" 200 " in sock.recv(999)
        sock.sendall(ask)
        answer = b""
        while part := sock.recv(999):
            answer += part
        assert answer.endswith(b"ok"), answer
print(time.perf_counter() - began)
"""
OVER_DIRECT = Reach(0.5, "over")
"""Milliseconds that a connection through the proxy may take over a direct one."""


def connections(setting: Setting, loop: asyncio.AbstractEventLoop) -> Table:
    """Requests by one confined program, each on a connection of its own; its own clock."""
    rows = {
        "direct, on the machine's network": Row("direct, on the machine's network"),
        "GET through the proxy of a host list": Row(
            "GET through the proxy of a host list", reach=OVER_DIRECT
        ),
        "a tunnel by CONNECT through the same": Row(
            "a tunnel by CONNECT through the same", reach=OVER_DIRECT
        ),
    }
    table = Table("One request on its own connection, from a sandbox", "ms", list(rows.values()))
    with _server() as port:
        ways = ({"network": "host"}, way_out(port), way_out(port))
        names = ("direct", "get", "connect")
        samplers = {
            row: _client(loop, name, port, way) for row, name, way in zip(rows, names, ways, strict=True)
        }
        table.take(interleave(samplers, setting.effort(15), times=5 if setting.quick else 200))
    return table


@contextmanager
def _server() -> Iterator[int]:
    """A web server in a process of its own; its port."""
    command = [sys.executable, "-I", "-c", SERVER]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdin is not None
        yield int(process.stdout.readline())
        process.stdin.close()


def way_out(port: int) -> dict[str, Any]:
    """The fields of a job whose program may reach one port of this machine."""
    from toolcrib.egress import Proxy, program_policy
    from toolcrib.spec import Network

    policy = program_policy(Network("hosts", (f"127.0.0.1:{port}",)))

    def outlet(listener: socket.socket) -> Proxy:
        return Proxy(listener, policy, on_refusal=lambda _: None)

    return {"network": "proxy", "outlet": outlet}


def _client(loop: asyncio.AbstractEventLoop, name: str, port: int, way: Mapping[str, Any]) -> Sampler:
    """Samples requests; the program that made them prints the times."""

    def sample(times: int) -> float:
        argv = (sys.executable, "-I", "-c", CLIENT, name, str(port), str(times))
        return float(loop.run_until_complete(ran(job_of(argv, **way))))

    return sample
