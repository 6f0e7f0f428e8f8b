"""The process of a server that cannot be confined."""

from __future__ import annotations

import asyncio
import os
import select
import signal
import subprocess
import sys
import time
from pathlib import Path

from toolcrib.executors.mcp.process.unconfined import start_unconfined

PARENT = """\
import asyncio, sys
from toolcrib.executors.mcp.process.unconfined import start_unconfined

async def main():
    await start_unconfined("/bin/sleep", ["sleep", "600"], "/", {})
    print("begun", flush=True)
    await asyncio.sleep(600)

asyncio.run(main())
"""


async def test_it_gets_its_own_name_and_variables_and_the_usual_signals(tmp_path: Path) -> None:
    out = tmp_path / "out"
    script = f"(echo $0 $X; pwd; grep SigIgn /proc/self/status) > {out}.new; mv {out}.new {out}"
    stream = await start_unconfined("/bin/sh", ["its-name", "-c", script], str(tmp_path), {"X": "1"})
    async with asyncio.timeout(100):
        while not out.exists():  # noqa: ASYNC110 - another process makes it
            await asyncio.sleep(0.01)
    await stream.aclose()
    *shown, signals = out.read_text().splitlines()
    assert shown == ["its-name 1", str(tmp_path)]
    # glibc's posix_spawn, which make uses, leaves its own signals 32 and 33 ignored, and nohup the first.
    assert int(signals.split()[1], 16) & 0x7FFF_FFFE == 0


async def test_a_program_that_is_not_there_says_so(tmp_path: Path) -> None:
    stream = await start_unconfined("/no/such", ["such"], str(tmp_path), {})
    async with asyncio.timeout(100):
        while not stream.how():  # noqa: ASYNC110 - another process ends
            await asyncio.sleep(0.01)
    assert stream.how() == "it ended with exit code 1"
    await stream.aclose()


async def test_a_signal_without_a_name_is_reported_by_its_number(tmp_path: Path) -> None:
    stream = await start_unconfined("/bin/sh", ["sh", "-c", "kill -40 $$"], str(tmp_path), {})
    async with asyncio.timeout(100):
        while not stream.how():  # noqa: ASYNC110 - another process ends
            await asyncio.sleep(0.01)
    assert stream.how() == "it was ended by signal 40"
    await stream.aclose()


def test_it_ends_with_its_parent() -> None:
    with subprocess.Popen([sys.executable, "-c", PARENT], stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        assert parent.stdout.readline() == b"begun\n"
        (child,) = Path(f"/proc/{parent.pid}/task/{parent.pid}/children").read_text().split()
        is_sleep = Path(f"/proc/{child}/comm")
        deadline = time.monotonic() + 100
        while is_sleep.read_text() != "sleep\n":
            assert time.monotonic() < deadline
            time.sleep(0.01)
        ended = os.pidfd_open(int(child))
        parent.send_signal(signal.SIGKILL)
        assert select.select([ended], [], [], 30)[0]
        os.close(ended)
