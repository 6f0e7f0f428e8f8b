"""Confined processes beside bare ones."""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.everything_on import MODULE, open_project
from benchmarks.setting import Setting, told
from benchmarks.table import Row, Table, Target
from benchmarks.timing import Sampler, interleave, repeat_async

if TYPE_CHECKING:
    from toolcrib.sandbox import Confinement

Run = Callable[[], Awaitable[Any]]

TRUE = ("/bin/true",)
PYTHON = (sys.executable, "-I", "-c", f"{MODULE}print(run(1))")


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
OVER_DIRECT = Target(0.5, "over")
"""Milliseconds that a connection through the proxy may take over a direct one."""


def measure(setting: Setting) -> list[Table]:
    """A table each for a command, a Python function and a connection out of the sandbox."""
    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    command = _table(
        setting,
        loop,
        "Run /bin/true",
        {
            "bare process": lambda: _bare(TRUE),
            "toolcrib.sandbox.run": lambda: _confined(TRUE),
            "the same, with a list of hosts": lambda: _confined(TRUE, **_way_out(1)),
            "Project, tool of kind command": lambda: _tool(setting.folder / "one", "spawning", {}),
        },
    )
    function = _table(
        setting,
        loop,
        "Run a Python function in a fresh interpreter",
        {
            "bare process": lambda: _bare(PYTHON),
            "toolcrib.sandbox.run": lambda: _confined(PYTHON),
            "Project, tool of kind python": lambda: _tool(setting.folder / "two", "counting", {"n": 1}),
        },
    )
    return [command, function, _connections(setting, loop)]


def _connections(setting: Setting, loop: asyncio.AbstractEventLoop) -> Table:
    """Requests by one confined program, each on a connection of its own; its own clock."""
    rows = {
        "direct, on the machine's network": Row("direct, on the machine's network"),
        "GET through the proxy of a host list": Row(
            "GET through the proxy of a host list", target=OVER_DIRECT
        ),
        "a tunnel by CONNECT through the same": Row(
            "a tunnel by CONNECT through the same", target=OVER_DIRECT
        ),
    }
    table = Table(
        "One request on its own connection, from a sandbox", "ms", list(rows.values()), tells_gap=True
    )
    with _server() as port:
        ways = ({"network": "host"}, _way_out(port), _way_out(port))
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


def _way_out(port: int) -> dict[str, Any]:
    """The fields of a job whose program may reach one port of this machine."""
    from toolcrib.egress import Proxy, program_policy
    from toolcrib.spec import Network

    policy = program_policy(Network("hosts", (f"127.0.0.1:{port}",)))

    def outlet(listener: socket.socket) -> Proxy:
        return Proxy(listener, policy, on_refusal=lambda _: None)

    return {"network": "proxy", "outlet": outlet}


def _client(loop: asyncio.AbstractEventLoop, name: str, port: int, way: Mapping[str, Any]) -> Sampler:
    """Samples requests; what they took is told by the program that made them."""

    def sample(times: int) -> float:
        argv = (sys.executable, "-I", "-c", CLIENT, name, str(port), str(times))
        return float(loop.run_until_complete(_ran(_job(argv, **way))))

    return sample


def _table(
    setting: Setting, loop: asyncio.AbstractEventLoop, title: str, cases: Mapping[str, Callable[[], Run]]
) -> Table:
    """Measure the cases; one that cannot be made or fails once loses its row only."""
    rows = {name: Row(name) for name in cases}
    samplers = {}
    for name, make in cases.items():
        try:
            run = make()
            loop.run_until_complete(_once(run))
        except Exception as error:
            rows[name].missing = told(error)
        else:
            samplers[name] = repeat_async(loop, run)
    table = Table(title, "ms", list(rows.values()), tells_gap=True)
    table.take(interleave(samplers, setting.effort(25), times=1 if setting.quick else 4))
    return table


async def _once(run: Run) -> None:
    await run()


def _bare(command: tuple[str, ...]) -> Run:
    async def run() -> None:
        process = await asyncio.create_subprocess_exec(
            *command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env={}
        )
        await process.communicate()
        if process.returncode != 0:
            raise RuntimeError(f"{command[0]} ended with {process.returncode}")

    return run


def _job(command: tuple[str, ...], **fields: Any) -> Confinement:
    from toolcrib.sandbox import Confinement

    # An interpreter outside the system's folders is granted, read-only.
    program = os.path.realpath(command[0])
    grants = () if program.startswith(("/usr/", "/bin/")) else (os.path.realpath(sys.base_prefix),)
    return Confinement(argv=(program, *command[1:]), cwd="/tmp", read=grants, **fields)


async def _ran(job: Confinement) -> bytes:
    """Run a command confined; what it wrote."""
    from toolcrib.sandbox import run as run_confined

    done = await run_confined(job)
    if done.exit_code != 0:
        raise RuntimeError(f"{job.argv[0]} ended with {done.exit_code}: {done.stderr[-300:]!r}")
    return done.stdout


def _confined(command: tuple[str, ...], **fields: Any) -> Run:
    job = _job(command, **fields)

    async def run() -> None:
        await _ran(job)

    return run


def _tool(root: Path, name: str, arguments: Mapping[str, Any]) -> Run:
    project = open_project(root)

    async def run() -> None:
        (await project.call(name, arguments)).unwrap()

    return run
