"""A worker of durable calls in a process of its own: `python -m tests.durable_worker ADDRESS LEASE TOOL…`.

Its tools write what they do to the file `log` in the folder `CRIB_LOG`: one line at each start and end.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sqlite3
import sys
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.commands import Forked
from tests.databases import Address, open_database
from toolcrib import Toolset, ToolSnooze
from toolcrib.runs import (
    ClaimedCall,
    Dispatcher,
    DurableCalls,
    EmbeddedDispatcher,
    Offer,
    PgQueuerDispatcher,
    Worker,
)
from toolcrib.runs.ending import Ending, context_of, ending_of
from toolcrib.spec import Retry
from toolcrib.state import PROJECT, Database
from toolcrib.state.drivers.postgres import PostgresDatabase

ROOT = Path(__file__).resolve().parent.parent


def dispatcher_of(database: Database, silent_s: float) -> Dispatcher:
    """The dispatcher of a database, with its own bound on silence."""
    if isinstance(database, PostgresDatabase):
        return PgQueuerDispatcher(database, silent_s=silent_s)
    return EmbeddedDispatcher(database)


class Recorded(DurableCalls):
    """Durable calls that tell of records that were refused."""

    refused: Callable[[str], None] = staticmethod(lambda _id: None)

    def finish_all(self, results: Collection[tuple[ClaimedCall, bytes]]) -> list[ClaimedCall]:
        recorded = super().finish_all(results)
        for claim, _ in results:
            self._told(claim, claim in recorded)
        return recorded

    def hand_back(self, claim: ClaimedCall, reason: str = "") -> bool:
        return self._told(claim, super().hand_back(claim, reason))

    def _told(self, claim: ClaimedCall, was_recorded: bool) -> bool:
        if not was_recorded:
            self.refused(claim.id)
        return was_recorded


def open_calls(address: Address, lease_s: float) -> Recorded:
    """The durable calls at an address, on the dispatcher that belongs to it."""
    database = open_database(address, "state", PROJECT)
    return Recorded(database, lease_s=lease_s, dispatcher=dispatcher_of(database, lease_s))


def freeze(pid: int, database: Address) -> None:
    """Stop a process, but not in a transaction of a file: that would stop everybody."""
    while True:
        os.kill(pid, signal.SIGSTOP)
        if not isinstance(database, Path) or not _is_locked(database / "state.db"):
            return
        os.kill(pid, signal.SIGCONT)
        time.sleep(0.01)


def _is_locked(path: Path) -> bool:
    """Return True if a process has the right to write."""
    connection = sqlite3.connect(path, timeout=0.2, isolation_level=None)
    try:
        connection.execute("BEGIN IMMEDIATE")
    except sqlite3.OperationalError:
        return True
    finally:
        connection.close()
    return False


class Log:
    """Lines that processes add to one file."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "log"

    def add(self, *words: str) -> None:
        with self.path.open("a") as file:
            file.write(f"{' '.join(words)} {os.getpid()}\n")

    def lines(self, kind: str) -> list[list[str]]:
        """The words of each line of a kind."""
        text = self.path.read_text() if self.path.exists() else ""
        return [words[1:] for line in text.splitlines() if (words := line.split())[0] == kind]


def toolset(log: Log) -> Toolset:
    """The tools of a worker."""
    tools = Toolset()

    async def nap(ms: int = 0, n: int = 0) -> int:
        """Sleep."""
        log.add("start", str(n))
        await asyncio.sleep(ms / 1000)
        log.add("end", str(n))
        return os.getpid()

    async def hold(n: int = 0) -> int:
        """Run until the file `go` is there."""
        log.add("start", str(n))
        while not log.path.with_name("go").exists():  # noqa: ASYNC110 - another process makes it
            await asyncio.sleep(0.02)
        log.add("end", str(n))
        return os.getpid()

    async def snoozer(times: int) -> int:
        """Ask to be tried later, so many times."""
        run = len(log.lines("start"))
        log.add("start", "0")
        if run < times:
            raise ToolSnooze(0.0, "not yet")
        return run

    async def shaky(times: int) -> int:
        """Fail so many times."""
        run = len(log.lines("start"))
        log.add("start", "0")
        if run < times:
            raise OSError("away")
        return run

    for name, function in {"nap": nap, "nap2": nap, "hold": hold, "snoozer": snoozer}.items():
        tools.register(name, function)
    tools.register("shaky", shaky, retry=Retry(3))
    return tools


def worker_of(
    calls: DurableCalls, log: Log, names: Sequence[str] | Mapping[str, int], **options: Any
) -> Worker:
    """A worker with these tools; a mapping says how many calls of each may run at a time."""
    tools = toolset(log)

    async def attempt(claim: ClaimedCall) -> Ending:
        ctx = context_of(claim)
        return ending_of(ctx, await tools.invoke(ctx))

    return Worker(
        calls,
        attempt,
        lambda: Offer(names if isinstance(names, Mapping) else dict.fromkeys(names)),
        **{"concurrency": 20, **options},
    )


class WorkerProcess:
    """A worker that can be killed and frozen."""

    def __init__(
        self, address: Address, folder: Path, *tools: str, lease_s: float = 2.0, ahead_s: float = 0.0
    ) -> None:
        environment = {**os.environ, "CRIB_LOG": str(folder), "CRIB_AHEAD": str(ahead_s)}
        self.process = Forked(
            [sys.executable, "-m", "tests.durable_worker", str(address), str(lease_s), *tools],
            cwd=ROOT,
            env=environment,
        )
        self.pid = self.process.pid

    def send(self, number: signal.Signals) -> None:
        os.kill(self.pid, number)

    def end(self, number: signal.Signals = signal.SIGKILL) -> None:
        """End it and wait for that."""
        if self.process.poll() is None:
            self.send(signal.SIGCONT)
            self.send(number)
            self.process.wait()


async def main() -> None:
    """Serve until SIGTERM."""
    text, lease, *names = sys.argv[1:]
    address: Address = text if text.startswith("postgresql:") else Path(text)
    ahead_s = float(os.environ["CRIB_AHEAD"])
    if ahead_s:
        true_time = time.time
        time.time = lambda: true_time() + ahead_s
    log = Log(Path(os.environ["CRIB_LOG"]))
    calls = open_calls(address, float(lease))
    calls.refused = lambda call_id: log.add("refused", call_id)
    stop = asyncio.Event()

    def end() -> None:
        stop.set()
        log.add("stops")

    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, end)
    log.add("ready", "0")
    await worker_of(calls, log, names, concurrency=int(os.environ.get("CRIB_CONCURRENCY", "20"))).run(stop)


if __name__ == "__main__":
    asyncio.run(main())
