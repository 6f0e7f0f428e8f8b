"""Servers that fork, and event loops that are closed while calls run."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.integration.sandbox.ground import eventually, processes_with

SOURCE = str(Path(__file__).parents[3] / "src")
FORKING = """
import asyncio, os, sys
sys.path.insert(0, sys.argv[1])
from toolcrib.sandbox import Confinement, run
from toolcrib.sandbox.host.pool import shared
job = Confinement(argv=("true",), cwd="/")
for _ in range(3):
    assert asyncio.run(run(job)).exit_code == 0
mine = shared().pids()
pid = os.fork()
assert asyncio.run(run(job)).exit_code == 0
assert (shared().pids() == mine) is (pid != 0)
if pid:
    assert os.waitpid(pid, 0)[1] == 0
    assert asyncio.run(run(job)).exit_code == 0
    print("fine")
"""


def test_a_forked_server_has_launchers_of_its_own() -> None:
    # From 3.12 on Python warns of a fork beside threads; that is what this is about.
    python = [sys.executable, "-W", "ignore::DeprecationWarning"]
    done = subprocess.run([*python, "-c", FORKING, SOURCE], capture_output=True, text=True, check=False)
    assert done.stdout == "fine\n", done.stderr
    assert not done.stderr


CLOSING = """
import asyncio, gc, logging, os, sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from toolcrib.sandbox import Confinement, run
from toolcrib.sandbox.host.pool import shared
from toolcrib.sandbox.stream import open_stream
logging.disable()
job = Confinement(argv=("/bin/sh", "-c", "sleep 60; : " + sys.argv[2]), cwd="/tmp", timeout_ms=60_000)
def knows(path):
    try:
        return sys.argv[2].encode() in path.read_bytes()
    except OSError:  # It has ended meanwhile.
        return False
def running():
    return sum(map(knows, Path("/proc").glob("[0-9]*/cmdline"))) - 1
def calls():
    loop = asyncio.new_event_loop()
    kept = [loop.create_task(run(job)) for _ in range(3)]
    kept.append(loop.run_until_complete(open_stream(job)))
    while running() < 4:
        loop.run_until_complete(asyncio.sleep(0.05))
    loop.close()
    return kept
kept = calls()
held = len(os.listdir("/proc/self/fd"))
if sys.argv[3] == "forked":
    pid = os.fork()
    if pid == 0:
        kept.clear()
        gc.collect()
        os._exit(0)
    os.waitpid(pid, 0)
    print(held, flush=True)
    sys.stdin.readline()
kept.clear()
gc.collect()
print(held - len(os.listdir("/proc/self/fd")), flush=True)
sys.stdin.readline()
"""


@pytest.mark.parametrize("how", ["collected", "forked"])
def test_calls_of_a_closed_event_loop_end_when_they_are_collected(how: str) -> None:
    marker = f"marker-{how}-{os.getpid()}"
    python = [sys.executable, "-W", "ignore"]
    pipe = subprocess.PIPE
    with subprocess.Popen([*python, "-c", CLOSING, SOURCE, marker, how], stdin=pipe, stdout=pipe) as server:
        assert server.stdin is not None
        assert server.stdout is not None
        if how == "forked":  # They are not the child's to end.
            assert server.stdout.readline()
            assert len(processes_with(marker)) == 1 + 4
            server.stdin.write(b"\n")
            server.stdin.flush()
        freed = int(server.stdout.readline())
        assert freed >= 4 * 2  # at least control socket and process of each
        assert eventually(lambda: len(processes_with(marker)) == 1, 10)
        server.stdin.close()
    assert not server.returncode
