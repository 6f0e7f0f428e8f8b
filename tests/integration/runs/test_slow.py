"""A slow worker is not a dead one: on a tenth of a core each call ends once, and none is given up."""

from __future__ import annotations

import asyncio
import collections
import os
import signal
import threading
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from tests.machines import Machine
from toolcrib import Project

TOOLS = '''
import os, time
from toolcrib import Context, ToolSnooze
from toolcrib.spec import Retry


def press(plate: int) -> str:
    """Press a plate; twice would spoil it."""
    with open(os.environ["LEDGER"], "a") as ledger:
        ledger.write(f"{plate}\\n")
    time.sleep(0.02)
    return f"plate {plate} pressed"


def look(plate: int) -> int:
    """Look at a plate."""
    return plate


def later(plate: int, ctx: Context) -> int:
    """Ask once to be tried later."""
    if not ctx.snoozes:
        raise ToolSnooze(0.1, "not yet")
    return plate


def shaky(plate: int, ctx: Context) -> int:
    """Fail at the first attempt."""
    if ctx.attempt == 1:
        raise OSError("away")
    return plate


def register(project):
    project.toolset.register("press", press)
    project.toolset.register("look", look, idempotent=True)
    project.toolset.register("later", later)
    project.toolset.register("shaky", shaky, retry=Retry(2))
'''
NAMES = ("press", "look", "later", "shaky")
TENTH = (0.9, 0.1)
"""Seconds that all processes of a worker are stopped, and that they run, in turns."""
FREEZES = (6.3, 0.7)
RATES = [
    pytest.param(24, TENTH, id="tenth"),
    pytest.param(200, TENTH, id="tenth-full", marks=pytest.mark.soak),
    pytest.param(200, FREEZES, id="freezes-full", marks=pytest.mark.soak),
]


def family(pid: int) -> list[int]:
    """A process with all below it."""
    below = collections.defaultdict[int, list[int]](list)
    for one in Path("/proc").iterdir():
        with suppress(OSError, ValueError):
            fields = (one / "stat").read_text().rpartition(")")[2].split()
            below[int(fields[1])].append(int(one.name))
    found, left = [], [pid]
    while left:
        found.append(left.pop())
        left += below[found[-1]]
    return found


@contextmanager
def slowed(pid: int, stopped_s: float, running_s: float) -> Iterator[None]:
    """Stop a worker and let it go on, again and again."""
    over = threading.Event()

    def send(number: signal.Signals) -> None:
        for one in family(pid):
            with suppress(OSError):
                os.kill(one, number)

    def stutter() -> None:
        while not over.is_set():
            send(signal.SIGSTOP)
            over.wait(stopped_s)
            send(signal.SIGCONT)
            over.wait(running_s)

    thread = threading.Thread(target=stutter)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.soak)])
def machine(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Machine]:
    url = None
    if request.param == "postgres":
        url = request.getfixturevalue("postgres").url(f"test_{uuid.uuid4().hex}")
    made = Machine(tmp_path / "machine", url)
    made.env["LEDGER"] = str(tmp_path / "ledger")
    (made.root / "plates.py").write_text(TOOLS)
    made.trust()
    yield made
    made.end()


@pytest.mark.timeout(1800)
@pytest.mark.parametrize(("number", "rate"), RATES)
async def test_calls_on_a_tenth_of_a_core_end_once_and_none_is_unknown(
    machine: Machine, tmp_path: Path, number: int, rate: tuple[float, float]
) -> None:
    slow = machine.worker("--app", "plates:register")
    machine.worker("--app", "joinery:cuts")  # It looks after what others have lost.
    database = machine.env.get("DATABASE_URL", "sqlite")
    async with Project.open(machine.root, data=machine.data, database=database) as project:
        with slowed(slow.pid, *rate):
            ids = [
                await asyncio.to_thread(project.submit, NAMES[plate % 4], {"plate": plate})
                for plate in range(number)
            ]
            stored = project.calls.stored
            calls = [await stored.wait(call_id) for call_id in ids]
        assert collections.Counter(call.state for call in calls) == {"done": number}
        endings = [one.ending for call_id in ids for one in stored.attempts(call_id)]
        assert "lost" not in endings
    pressed = (tmp_path / "ledger").read_text().split()
    assert sorted(map(int, pressed)) == list(range(0, number, 4))
