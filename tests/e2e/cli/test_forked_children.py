"""Served functions start processes, and their signals and descriptors never reach the server."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from mcp import StdioServerParameters
from mcp.client import Client

from tests.commands import PROGRAM, Forked, run, shared_server
from tests.e2e.cli.test_cli import ENVIRONMENT, Done
from tests.http_server import http_server

APP = '''
import multiprocessing
import os
import signal
import subprocess
import sys
import time

from toolcrib import Toolset

tools = Toolset()


@tools.tool
def pool(kind: str) -> list:
    """Use a pool of processes, a program that reads standard input, and a child that a signal ends."""
    with multiprocessing.get_context(kind).Pool(2) as pool:
        found = pool.map(str, range(2))
    code = "import sys; print(len(sys.stdin.read()))"
    read = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=50)
    child = os.fork()
    if child == 0:
        time.sleep(600)
        os._exit(0)
    os.kill(child, signal.SIGTERM)
    ended = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    sleeper = subprocess.Popen(["sleep", "600"])
    sleeper.terminate()
    return [*found, read.stdout.strip(), ended, sleeper.wait(50)]


if __name__ == "__main__":
    tools.run()
'''
FOUND = ["0", "1", "0", -15, -15]
KINDS = ["fork", "fork", "spawn"]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "work/app.py"
    path.parent.mkdir()
    path.write_text(APP)
    return path


@pytest.fixture
def env(tmp_path: Path) -> dict[str, str]:
    return ENVIRONMENT | {"TOOLCRIB_DATA": str(tmp_path / "data")}


@pytest.mark.parametrize("served", [True, False])
async def test_over_standard_input_and_output(served: bool, file: Path, env: Any) -> None:
    program = shared_server().program() if served else shared_server().program("python")
    words = ["serve", "app.py"] if served else [str(file)]
    server = StdioServerParameters(command=str(program), args=words, cwd=file.parent, env=env)
    async with Client(server) as client:
        for kind in KINDS:
            assert (await client.call_tool("pool", {"kind": kind})).structured_content == {"result": FOUND}


def test_over_http(file: Path) -> None:
    with http_server(file) as server:
        for kind in KINDS:
            called = server.send("POST", "/tools/invoke/pool", {"args": {"kind": kind}})
            assert called.json == {"ok": True, "value": FOUND}


def test_in_a_command_and_in_a_worker(file: Path, env: Any) -> None:
    def toolcrib(*words: str) -> Done:
        return Done(run(words, file.parent, env, accepted=False))

    assert toolcrib("run", "app.py", "pool", "kind=fork", "--json").document["value"] == FOUND
    words = [PROGRAM, "worker", "app.py", "--concurrency", "1"]
    with Forked(words, cwd=file.parent, env=env) as worker:
        try:
            for kind in KINDS:
                call = toolcrib("calls", "submit", "app.py", "pool", f"kind={kind}").out.strip()
                ended = toolcrib("calls", "wait", call, "--root", "app.py", "--json")
                assert ended.document["result"]["value"] == FOUND, ended.document
        finally:
            worker.terminate()
