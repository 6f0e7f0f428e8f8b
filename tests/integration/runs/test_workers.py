"""`toolcrib worker`: processes that crash, freeze, drain and die, while every call is recorded once."""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import pytest

from tests.commands import PROGRAM, Forked, complete
from tests.crib import Crib
from tests.durable_worker import freeze
from tests.patience import patient
from toolcrib import Project

TOOLS = '''
import ctypes, os, threading, time


def nap(seconds: float) -> int:
    """Sleep without giving up the thread."""
    time.sleep(seconds)
    return os.getpid()


def gated() -> int:
    """Run until the file `go` is there."""
    while not os.path.exists("go"):
        time.sleep(0.02)
    return os.getpid()


def leave(code: int) -> None:
    """End the process."""
    os._exit(code)


def segfault() -> None:
    """Read where nothing is."""
    ctypes.string_at(0)


def hold() -> None:
    """Hold the lock of the interpreter."""
    ctypes.PyDLL(None).sleep(60)


def eat() -> int:
    """Take more memory than there is for it."""
    return len(bytearray(4 << 30))


def flood() -> str:
    """Return more than fits in a message to the worker."""
    return "x" * (65 << 20)


def wide() -> str:
    """Return 24 MiB of text that is three times as long in ASCII."""
    return "\\u044f" * (12 << 20)


class Desk:
    name = "desk"
    description = "Say if it is open."
    input_schema = {"type": "object", "properties": {}}
    is_open = False

    def open(self):
        self.is_open = True

    def execute(self, arguments):
        return self.is_open


def every(project):
    while os.path.exists("gate"):
        open("waits", "w").close()
        time.sleep(0.02)
    for function in (leave, segfault, eat, flood, wide):
        project.toolset.register(function.__name__, function)
    project.toolset.register(Desk())
    project.toolset.register("nap", nap, idempotent=True)
    project.toolset.register("gated", gated, idempotent=True)
    project.toolset.register("hold", hold, timeout_ms=300)


def large(project):
    bytearray(200 << 20)


def some(*letters):
    def register(project):
        for letter in letters:
            project.toolset.register(f"nap_{letter}", nap, idempotent=True)

    return register


ab, bc, ca, abc = some("a", "b"), some("b", "c"), some("c", "a"), some("a", "b", "c")
'''


class Workers:
    """Workers of one project, as processes. All are ended with the test."""

    def __init__(self, crib: Crib) -> None:
        self.crib = crib
        self.running: list[Forked] = []
        crib.write("shop_tools.py", TOOLS)

    def start(self, app: str, *options: str) -> Forked:
        words = ["worker", "--root", str(self.crib.root), "--app", f"shop_tools:{app}"]
        worker = Forked([PROGRAM, *words, *options], cwd=self.crib.root, stderr=subprocess.PIPE, text=True)
        self.running.append(worker)
        return worker

    @staticmethod
    def ready(worker: Forked) -> None:
        assert worker.stderr is not None
        assert worker.stderr.readline().startswith("serving ")

    def kill(self, worker: Forked) -> None:
        self.running.remove(worker)
        worker.kill()
        worker.communicate()

    def end(self) -> None:
        while self.running:
            self.kill(self.running[0])


@pytest.fixture
def workers(crib: Crib) -> Iterator[Workers]:
    made = Workers(crib)
    try:
        yield made
    finally:
        made.end()


@pytest.fixture
async def client(workers: Workers) -> AsyncIterator[Project]:
    """The project in a process that runs none of its tools."""
    async with workers.crib.open() as project:
        namespace: dict[str, Callable[[Project], None]] = {}
        exec(TOOLS, namespace)
        namespace["every"](project)
        namespace["abc"](project)
        yield project


async def ended(project: Project, ids: list[str]) -> None:
    """Wait for calls without serving any."""
    async with asyncio.timeout(patient(100)):
        for call_id in ids:
            await project.calls.stored.wait(call_id)


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(patient(100)):
        while not holds():  # noqa: ASYNC110 - what is awaited is in a database
            await asyncio.sleep(0.05)


def test_a_project_that_takes_more_than_its_memory_is_reported(workers: Workers) -> None:
    worker = workers.start("large", "--concurrency", "1", "--memory-mb", "128")
    assert worker.stderr is not None
    said = worker.stderr.read()
    assert ("more memory than --memory-mb" in said, "Traceback" in said) == (True, False), said


@pytest.mark.timeout(120)
async def test_a_tool_that_crashes_takes_only_its_own_call_along(workers: Workers, client: Project) -> None:
    workers.ready(workers.start("every", "--concurrency", "2", "--memory-mb", "1024"))
    bad = {
        "exit": client.submit("leave", {"code": 3}),
        "segfault": client.submit("segfault"),
        "eat": client.submit("eat"),
        "hold": client.submit("hold"),
    }
    good = [client.submit("nap", {"seconds": 0.1}) for _ in range(10)]
    desk = client.submit("desk")
    await ended(client, [*bad.values(), *good, desk])
    assert client.calls.find(desk).outcome().value is True, "a program's tool is open in each process"
    assert {client.calls.find(call_id).state for call_id in good} == {"done"}
    found = {name: client.calls.find(call_id) for name, call_id in bad.items()}
    errors = {name: json.loads(call.error or "")["message"] for name, call in found.items()}
    assert {name: call.state for name, call in found.items()} == {
        "exit": "unknown",
        "segfault": "unknown",
        "eat": "failed",
        "hold": "failed",
    }
    assert "exited with code 3" in errors["exit"]
    assert "SIGSEGV" in errors["segfault"]
    assert errors["eat"] == "MemoryError"
    assert "its process was ended" in errors["hold"]


@pytest.mark.timeout(120)
async def test_a_result_that_is_too_long_takes_no_process_from_later_calls(
    workers: Workers, client: Project
) -> None:
    workers.ready(workers.start("every", "--concurrency", "1"))
    flood, nap, wide = client.submit("flood"), client.submit("nap", {"seconds": 0}), client.submit("wide")
    await ended(client, [flood, nap, wide])
    found = client.calls.find(flood)
    assert (found.state, client.calls.find(nap).state) == ("failed", "done")
    assert client.calls.find(wide).state == "done"
    assert json.loads(found.error or "")["message"] == "the result of flood is longer than 64 MiB"


@pytest.mark.timeout(120)
async def test_a_call_that_waits_for_a_process_is_not_lost_with_its_worker(
    workers: Workers, client: Project
) -> None:
    first = workers.start("every", "--concurrency", "1")
    workers.ready(first)
    gate, waits = workers.crib.write("gate", ""), workers.crib.root / "waits"
    await ended(client, [client.submit("leave", {"code": 3})])
    await until(waits.exists)  # The process that replaces the one that ended.
    call_id = client.submit("leave", {"code": 4})
    await until(lambda: client.calls.find(call_id).state == "running")
    workers.kill(first)
    gate.unlink()
    workers.ready(workers.start("every", "--concurrency", "1"))
    await ended(client, [call_id])
    endings = [(one.ending, one.reason) for one in client.calls.stored.attempts(call_id)]
    assert endings == [("handed_back", ""), ("lost", "the process that ran it has exited with code 4")]


@pytest.mark.timeout(240)
async def test_calls_outlive_workers_that_are_killed(workers: Workers, client: Project) -> None:
    chance, sets = random.Random(11), ["ab", "bc", "ca", "abc"]
    for name in sets:
        workers.start(name, "--concurrency", "2")
    ids = [client.submit(f"nap_{'abc'[n % 3]}", {"seconds": 0.15}) for n in range(120)]
    done = 0
    for _ in range(5):
        done += 15
        await until(lambda: sum(client.calls.find(one).ended for one in ids) >= done)  # noqa: B023
        victim = chance.choice(workers.running)
        workers.kill(victim)
        workers.start(chance.choice(sets), "--concurrency", "2")
    await ended(client, ids)
    stored = client.calls.stored
    for call_id in ids:
        assert client.calls.find(call_id).state == "done"
        assert [change.kind for change in stored.changes(call_id)].count("done") == 1
    lost = [one for call_id in ids for one in stored.attempts(call_id) if one.ending == "lost"]
    assert lost, "no worker was killed in the middle of a call"


@pytest.mark.timeout(120)
async def test_the_late_results_of_a_frozen_worker_are_refused(workers: Workers, client: Project) -> None:
    frozen = workers.start("every", "--concurrency", "4")
    workers.ready(frozen)
    pids = set[object]()
    while len(pids) < 4:  # Until all processes have started.
        warm = [client.submit("nap", {"seconds": 0.1}) for _ in range(4)]
        await ended(client, warm)
        pids = {client.calls.find(one).outcome().value for one in warm}
    ids = [client.submit("gated") for _ in range(4)]
    await until(lambda: all(client.calls.find(one).worker for one in ids))
    freeze(frozen.pid, workers.crib.root / ".toolcrib")  # Its executors go on.
    workers.crib.write("go", "")
    workers.ready(workers.start("every", "--concurrency", "4"))
    await ended(client, ids)
    winners = {client.calls.find(call_id).worker for call_id in ids}
    os.kill(frozen.pid, signal.SIGCONT)
    again = [client.submit("nap", {"seconds": 0.0}) for _ in range(20)]
    await ended(client, again)
    frozen.terminate()
    assert frozen.wait() == 0
    assert len(winners) == 1
    for call_id in ids:
        attempts = client.calls.stored.attempts(call_id)
        assert [one.ending for one in attempts] == ["lost", "done"]
        assert client.calls.find(call_id).worker in winners


@pytest.mark.timeout(120)
async def test_a_worker_drains_and_gives_back_what_takes_too_long(workers: Workers, client: Project) -> None:
    worker = workers.start("every", "--concurrency", "2", "--grace", f"{patient(2):.0f}")
    workers.ready(worker)
    short, long = client.submit("gated"), client.submit("nap", {"seconds": 600})
    await until(lambda: all(client.calls.find(one).state == "running" for one in (short, long)))
    worker.terminate()
    later = client.submit("nap", {"seconds": 0})
    workers.crib.write("go", "")
    assert worker.wait() == 0
    assert client.calls.find(short).state == "done"
    states = {one: client.calls.find(one).state for one in (long, later)}
    assert states == {long: "ready", later: "ready"}
    assert [one.ending for one in client.calls.stored.attempts(long)] == ["handed_back"]
    assert client.calls.find(long).attempts == 0


@pytest.mark.timeout(120)
async def test_status_shows_workers_the_queue_and_what_nobody_serves(
    workers: Workers, client: Project
) -> None:
    workers.ready(workers.start("ab", "--concurrency", "1"))
    client.submit("nap_c", {"seconds": 0})
    status = client.calls.status()
    assert [(one["kind"], one["tools"]) for one in status["workers"]] == [("worker", ["nap_a", "nap_b"])]
    assert [(one["tool"], one["ready"]) for one in status["queue"]] == [("nap_c", 1)]
    assert status["unserved"] == ["nap_c"]
    shown = await forked(PROGRAM, "status", "--root", str(workers.crib.root))
    assert shown.returncode == 1
    assert "no worker has nap_c" in shown.stderr


async def forked(*words: str) -> subprocess.CompletedProcess[str]:
    return await asyncio.to_thread(complete, words, capture_output=True, text=True)


async def test_what_a_dead_process_left_goes_on_where_the_project_is_opened(
    workers: Workers, client: Project, tmp_path: Path
) -> None:
    script = tmp_path / "dies.py"
    script.write_text(
        "import asyncio, os\n"
        "from toolcrib import Project\n"
        "def nap(seconds: float) -> int:\n    os._exit(9)\n"
        "async def main():\n"
        f"    async with Project.open({str(workers.crib.root)!r}) as project:\n"
        "        project.toolset.register('nap', nap, idempotent=True)\n"
        "        await project.calls.wait(project.submit('nap', {'seconds': 0}))\n"
        "asyncio.run(main())\n"
    )
    assert (await forked(sys.executable, str(script))).returncode == 9
    (left,) = client.calls.page()
    assert left.state == "running"
    async with asyncio.timeout(100):
        assert (await client.calls.wait(left.id)).state == "done"
    assert [one.ending for one in client.calls.stored.attempts(left.id)] == ["lost", "done"]
