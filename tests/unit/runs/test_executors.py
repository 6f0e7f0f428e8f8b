"""Executor processes: one that is stopped comes back, or another one in its place."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path

import pytest

from tests.patience import patient
from toolcrib.runs import ClaimedCall
from toolcrib.runs.ending import Done, Lost
from toolcrib.runs.processes.executors import Executors

PROCESS = """
import json, os, socket, sys
lines = socket.socket(fileno=int(sys.argv[-1])).makefile("rwb")
settings = json.loads(lines.readline())
def say(answer):
    lines.write(json.dumps(answer).encode() + b"\\n")
    lines.flush()
say({"ready": True})
for line in lines:
    tool = json.loads(line).get("tool")
    if tool == "deadly":
        sys.exit()
    elif tool == "signalled":
        os.kill(os.getpid(), 40)
    elif tool == "stubborn":
        open(settings["begun"], "w").close()
    elif tool == "quick":
        say({"limit_s": 60})
        say({"end": "done", "result": "{}"})
"""
"""Runs the tool `quick`; `stubborn` never ends, and its process ignores that it is to stop."""

SHORT = """
import asyncio, logging, os, resource, sys
from toolcrib.runs import ClaimedCall
from toolcrib.runs.processes.executors import Executors

def claim(tool):
    return ClaimedCall("id", tool, b"{}", "local", 1, 1, 0, {}, None, None)

async def main():
    executors = Executors((sys.executable, "-c", sys.argv[1]), {"begun": os.devnull}, 1, lambda _: None)
    await executors.start()
    failed = asyncio.Event()
    handler = logging.Handler()
    handler.emit = lambda _: failed.set()
    logging.getLogger("toolcrib.runs").addHandler(handler)
    run = asyncio.create_task(executors.run(claim("deadly")))
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (3, hard))
    print(type(await run).__name__)
    await failed.wait()
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    print(type(await executors.run(claim("quick"))).__name__)
    await executors.close()

asyncio.run(main())
"""
"""Has no descriptor free when an executor process must be replaced."""


def claim(tool: str) -> ClaimedCall:
    return ClaimedCall("id", tool, b"{}", "local", 1, 1, 0, {}, None, None)


async def test_a_call_cancelled_twice_costs_no_process(tmp_path: Path) -> None:
    begun = tmp_path / "begun"
    executors = Executors((sys.executable, "-c", PROCESS), {"begun": str(begun)}, 1, lambda _: None)
    await executors.start()
    try:
        run = asyncio.create_task(executors.run(claim("stubborn")))
        async with asyncio.timeout(patient(20)):
            while not begun.exists():  # noqa: ASYNC110 - another process makes it
                await asyncio.sleep(0.01)
        # As by a person, and then by the worker, which no longer has the lease.
        for _ in range(2):
            run.cancel()
            await asyncio.sleep(0)
        with pytest.raises(asyncio.CancelledError):
            await run
        async with asyncio.timeout(patient(20)):
            assert await executors.run(claim("quick")) == Done(b"{}")
    finally:
        await executors.close()


async def test_a_signal_without_a_name_is_reported_by_its_number() -> None:
    executors = Executors((sys.executable, "-c", PROCESS), {}, 1, lambda _: None)
    await executors.start()
    try:
        assert await executors.run(claim("signalled")) == Lost(
            "the process that ran it was ended by signal 40"
        )
        assert await executors.run(claim("quick")) == Done(b"{}")
    finally:
        await executors.close()


async def test_a_process_that_cannot_be_started_now_is_started_later() -> None:
    command = (sys.executable, "-c", SHORT, PROCESS)
    done = await asyncio.to_thread(subprocess.run, command, capture_output=True, text=True, timeout=20)
    assert done.stdout.split() == ["Lost", "Done"], done.stderr
