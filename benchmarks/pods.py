"""Commands of a pod through files: one after the other, beside requests for others, and many at once."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any

from benchmarks.setting import Setting, find, reason_of
from benchmarks.table import Reach, Row, Table

BARE, ONE, BURST = (
    "subprocess.run of the same line",
    "request to result",
    "50 requests at once, the whole batch",
)
CROWDED = "request to result, 200 requests for others pending"
FOREIGN, MANY, IDLE_S = 200, 50, 5.0


def measure(setting: Setting) -> list[Table]:
    """A sidecar in a process of its own, and our client here."""
    rows = [
        Row(BARE),
        Row(ONE, reach=Reach(6, "wall")),
        Row(CROWDED, reach=Reach(6.6, "wall")),
        Row(BURST, reach=Reach(500, "wall")),
    ]
    table = Table("A command of a pod, through files", "ms", rows, ["The line is `true`, run by `sh -c`."])
    loop = asyncio.new_event_loop()
    try:
        with _sidecar(setting.folder / "pod") as process:
            loop.run_until_complete(_measured(table, setting, setting.folder / "pod"))
            share = _idle(process.pid, 1.0 if setting.quick else IDLE_S)
            rows[1].extra["idle, of one core"] = f"{share:.2%} (≤ 0.50%)"
    except Exception as error:
        for row in rows:
            row.missing = reason_of(error)
    finally:
        loop.close()
    return [table]


@contextmanager
def _sidecar(folder: Path) -> Iterator[subprocess.Popen[bytes]]:
    (folder / "workspace").mkdir(parents=True)
    words = ["sidecar", "--ipc", str(folder / "ipc"), "--workspace", str(folder / "workspace")]
    with subprocess.Popen([sys.executable, "-P", "-m", "toolcrib", *words]) as process:
        try:
            yield process
        finally:
            process.terminate()


async def _measured(table: Table, setting: Setting, folder: Path) -> None:
    spool = find("toolcrib.pods.spool", "Spool")(folder / "ipc", "tools")
    exec_protocol, request = (
        find("toolcrib.pods.protocol", "EXEC"),
        find("toolcrib.pods.protocol", "ExecRequest"),
    )
    numbers = count()

    async def one() -> Any:
        key = str(next(numbers))
        result = await client.ask(key, request(key, "true"), 60)
        assert result.exit_code == 0, result
        return result

    async def burst() -> None:
        await asyncio.gather(*(one() for _ in range(MANY)))

    async with find("toolcrib.pods.ipc", "Client")(spool, exec_protocol).opened() as client:
        await burst()  # The sidecar has started.
        rounds = setting.effort(9).rounds
        samples = await _rounds({ONE: one, CROWDED: one, BURST: burst}, rounds, folder / "ipc" / "tools")
        samples[BARE] = [_bare() for _ in range(rounds)]
    spool.close()
    for row in table.rows:
        row.seconds = samples.get(row.name, row.seconds)


async def _rounds(operations: dict[str, Any], rounds: int, requests: Path) -> dict[str, list[float]]:
    found: dict[str, list[float]] = {name: [] for name in operations}
    for _ in range(rounds):
        # Each begins with the spare sandboxes that the burst has left.
        for name, operation in operations.items():
            with _foreign(requests, FOREIGN if name == CROWDED else 0):
                await asyncio.sleep(0.5)  # The sidecar reads these, and makes its spare sandboxes again.
                times = 1 if name == BURST else 20
                began = time.perf_counter()
                for _ in range(times):
                    await operation()
                found[name].append((time.perf_counter() - began) / times)
    return found


@contextmanager
def _foreign(folder: Path, count: int) -> Iterator[None]:
    """Have so many requests for others in a folder."""
    files = [folder / f"exec-request-f{number}.json" for number in range(count)]
    for file in files:
        file.write_text('{"command":"true","target":"other"}')
    yield
    for file in files:
        file.unlink()


def _bare() -> float:
    began = time.perf_counter()
    for _ in range(20):
        subprocess.run(["/bin/sh", "-c", "true"], capture_output=True, check=True)
    return (time.perf_counter() - began) / 20


def _idle(pid: int, seconds: float) -> float:
    def used() -> float:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    before = used()
    time.sleep(seconds)
    return (used() - before) / seconds
