"""Approvals, rates and recorded calls as processes share them: races, kills, restarts, ten thousand."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import pytest

from tests.databases import Address
from tests.guarded import START, approvals, ask, state, vault
from tests.patience import patient
from tests.processes import FORKS
from toolcrib.errors import ApprovalDenied, ConflictError, IdempotencyConflict, RateLimited, StateUnavailable
from toolcrib.guard import Approval, Permit
from toolcrib.guard.approvals.approvals import Approvals
from toolcrib.guard.idempotency import RecordedCalls
from toolcrib.guard.rates import Rates

WORKERS = 4
ROUNDS = 50
CALL: dict[str, Any] = {"tool": "pay", "caller": "a", "arguments": b"{}"}


def together(target: Callable[..., None], address: Address, *more: Any) -> list[Any]:
    """Run in four processes at once; what each put into the queue."""
    queue, gate = FORKS.Queue(), FORKS.Barrier(WORKERS)
    workers = [FORKS.Process(target=target, args=(address, gate, queue, *more)) for _ in range(WORKERS)]
    for worker in workers:
        worker.start()
    found = [queue.get(timeout=110) for _ in workers]
    for worker in workers:
        worker.join()
        assert worker.exitcode == 0
    return found


def aside(target: Callable[..., None], address: Address) -> BaseProcess:
    """A process that says when it is ready, and then only waits."""
    ready = FORKS.Event()
    worker = FORKS.Process(target=target, args=(address, ready))
    worker.start()
    assert ready.wait(patient(30))
    return worker


def kill(worker: BaseProcess) -> None:
    assert worker.pid is not None
    os.kill(worker.pid, signal.SIGKILL)
    worker.join()


def retried(call: Callable[[], object]) -> None:
    """Call until the death of a process is known: on a server its silence must last for a while."""
    end = time.monotonic() + patient(30)
    while True:
        try:
            call()
        except (RateLimited, IdempotencyConflict) as error:
            if not error.retryable or time.monotonic() > end:
                raise
            time.sleep(0.05)
        else:
            return


# --- approvals


def _take(address: Address, gate: Any, queue: Any) -> None:
    service = approvals(address)
    got = []
    for number in range(ROUNDS):
        gate.wait(100)
        if isinstance(service.seek(ask(number)), Permit):
            got.append(number)
    queue.put(got)


def test_of_four_processes_that_race_for_one_yes_exactly_one_gets_it(address: Address) -> None:
    service = approvals(address)
    for number in range(ROUNDS):
        waiting = service.seek(ask(number))
        assert isinstance(waiting, Approval)
        service.approve(waiting.id, "ada")
    got = together(_take, address)
    assert sorted(number for some in got for number in some) == list(range(ROUNDS))
    # Those who came too late asked anew: one question each.
    assert len(service.list("pending", 500)) == ROUNDS
    assert len(service.list("used", 500)) == ROUNDS


def _ask(address: Address, gate: Any, queue: Any) -> None:
    service = approvals(address)
    gate.wait(100)
    found = [service.seek(ask(number)) for number in range(50)]
    queue.put([one.id for one in found if isinstance(one, Approval)])


def test_four_processes_that_ask_the_same_wait_for_one_approval_each(address: Address) -> None:
    ids = together(_ask, address)
    assert ids == [ids[0]] * WORKERS
    assert len(set(ids[0])) == 50


def _decide(address: Address, gate: Any, queue: Any) -> None:
    service = approvals(address)
    waiting = service.list("pending", 500)
    gate.wait(100)
    won = 0
    for one in waiting:
        try:
            if os.getpid() % 2:
                service.deny(one.id, "x")
            else:
                service.approve(one.id, "x")
            won += 1
        except ConflictError:
            continue
    queue.put(won)


def test_of_four_who_decide_one_is_heard(address: Address) -> None:
    service = approvals(address)
    for number in range(50):
        service.seek(ask(number))
    assert sum(together(_decide, address)) == 50


def _ask_and_wait(address: Address, ready: Any) -> None:
    service = approvals(address)
    waiting = service.seek(ask())
    assert isinstance(waiting, Approval)
    ready.set()
    asyncio.run(service.wait(waiting.id))


def test_a_killed_caller_finds_its_yes_when_it_comes_again(address: Address) -> None:
    worker = aside(_ask_and_wait, address)
    kill(worker)
    service = approvals(address)
    (waiting,) = service.list("pending")
    service.approve(waiting.id, "ada")
    assert isinstance(approvals(address).seek(ask()), Permit)


def test_a_caller_that_waits_in_another_process_is_let_go(address: Address) -> None:
    worker = aside(_ask_and_wait, address)
    service = approvals(address)
    (waiting,) = service.list("pending")
    service.deny(waiting.id, "ada")
    worker.join()
    assert worker.exitcode == 0
    with pytest.raises(ApprovalDenied):
        service.seek(ask())


def test_a_decision_whose_process_died_before_the_project_heard_of_it_counts(address: Address) -> None:
    service = approvals(address)
    waiting = service.seek(ask())
    assert isinstance(waiting, Approval)
    pid = os.fork()
    if pid == 0:
        mine = approvals(address)
        mine._requests.settle = lambda _: os.kill(os.getpid(), signal.SIGKILL)  # type: ignore[method-assign, assignment]  # dies there
        mine.approve(waiting.id, "ada")
    assert os.WTERMSIG(os.waitpid(pid, 0)[1]) == signal.SIGKILL
    with state(address).read() as tx:
        assert tx.one("SELECT status FROM approvals") == ("pending",)
    assert service.find(waiting.id).status == "approved"
    assert isinstance(service.seek(ask()), Permit)
    again = service.seek(ask())
    assert isinstance(again, Approval)
    assert again.id != waiting.id


def test_a_database_that_came_with_the_project_is_refused(tmp_path: Path) -> None:
    theirs = Approvals(state(tmp_path, "theirs"), vault(tmp_path))
    theirs.seek(ask())
    ours = Approvals(state(tmp_path, "ours"), vault(tmp_path))
    for act in (lambda: ours.seek(ask()), ours.list, lambda: ours.find("x")):
        with pytest.raises(StateUnavailable, match="was not made here"):
            act()


# --- rates


def _start_as_many_as_may(address: Address, gate: Any, queue: Any) -> None:
    rates = Rates(state(address), lambda: START)
    gate.wait(100)
    started = refused = 0
    while refused < 20:
        try:
            rates.acquire("t", per_minute=57)
        except RateLimited:
            refused += 1
        else:
            started += 1
    queue.put(started)


def test_four_processes_start_exactly_as_many_calls_a_minute_as_may(address: Address) -> None:
    started = together(_start_as_many_as_may, address)
    assert sum(started) == 57, started


def _hold(address: Address, gate: Any, queue: Any, running: Any) -> None:
    rates = Rates(state(address))
    gate.wait(100)
    most = done = 0
    while done < 25:
        try:
            lease = rates.acquire("t", concurrency=3)
        except RateLimited:
            continue
        with running.get_lock():
            running.value += 1
            most = max(most, running.value)
        with running.get_lock():
            running.value -= 1
        lease.release()
        done += 1
    queue.put(most)


def test_four_processes_run_no_more_at_a_time_than_may(address: Address) -> None:
    most = together(_hold, address, FORKS.Value("i", 0))
    assert max(most) <= 3
    with state(address).read() as tx:
        assert tx.all("SELECT * FROM leases") == []


def _lease(address: Address, ready: Any) -> None:
    lease = Rates(state(address)).acquire("t", concurrency=1)
    ready.set()
    time.sleep(600)
    lease.release()


def test_the_place_of_a_killed_process_is_free_and_of_a_stopped_one_is_not(address: Address) -> None:
    worker = aside(_lease, address)
    rates, patient_ones = Rates(state(address)), Rates(state(address, lease_s=600))
    assert worker.pid is not None
    os.kill(worker.pid, signal.SIGSTOP)
    with pytest.raises(RateLimited):
        patient_ones.acquire("t", concurrency=1)
    kill(worker)
    retried(lambda: rates.acquire("t", concurrency=1))
    with pytest.raises(RateLimited):
        patient_ones.acquire("t", concurrency=1)


# --- recorded calls


def _call_once(address: Address, gate: Any, queue: Any) -> None:
    calls = RecordedCalls(state(address))
    mine = []

    async def all_of_them() -> None:
        for number in range(50):
            gate.wait(100)
            found = await calls.wait(f"k{number}", timeout_s=100, **CALL)
            if found is None:
                mine.append(number)
                calls.finish(f"k{number}", "a", b"%d" % number)
            else:
                assert found == b"%d" % number

    asyncio.run(all_of_them())
    queue.put(mine)


def test_of_four_processes_with_one_key_one_runs_and_all_get_its_result(address: Address) -> None:
    ran = together(_call_once, address)
    assert sorted(number for some in ran for number in some) == list(range(50))


def _begin(address: Address, ready: Any) -> None:
    assert RecordedCalls(state(address)).begin("k", **CALL) is None
    ready.set()
    time.sleep(60)


def test_a_call_whose_process_is_killed_is_unknown_unless_it_may_be_repeated(address: Address) -> None:
    worker = aside(_begin, address)
    calls = RecordedCalls(state(address))
    with pytest.raises(IdempotencyConflict) as caught:
        calls.begin("k", repeatable=True, **CALL)
    assert caught.value.retryable
    kill(worker)
    with pytest.raises(IdempotencyConflict) as caught:
        retried(lambda: calls.begin("k", **CALL))
    assert caught.value.details["outcome"] == "unknown"
    assert calls.begin("k", repeatable=True, **CALL) is None
    calls.finish("k", "a", b"1")
    assert calls.begin("k", **CALL) == b"1"


# --- what waits costs nothing

MANY = """
import gc, os, sys, threading
from pathlib import Path
from tests.guarded import approvals, ask

def rss():
    gc.collect()
    text = Path("/proc/self/smaps_rollup").read_text()
    return sum(int(line.split()[1]) for line in text.splitlines() if line.startswith("Pss_Anon")) * 1024

service = approvals(Path(sys.argv[1]))
for number in range(100):
    service.seek(ask(-1 - number))
before, files = rss(), len(os.listdir("/proc/self/fd"))
for number in range(2_000 - 100):
    service.seek(ask(number, caller=f"mcp:agent{number // 100}"))
after = rss()
found, last = 0, None
while page := service.list("pending", 500, before=last):
    found, last = found + len(page), page[-1].id
children = Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()
files = len(os.listdir("/proc/self/fd")) - files
print(found, after - before, threading.active_count(), len(children), files)
"""


@pytest.mark.timeout(180)
def test_two_thousand_that_wait_cost_no_process_no_thread_and_little_memory(tmp_path: Path) -> None:
    # In memory, since each row is synced to the disk: it is the memory of the process that is measured,
    # of which SQLite keeps up to 2 MiB as its cache.
    folder = Path("/dev/shm", f"toolcrib-{os.getpid()}")
    folder = folder if os.access("/dev/shm", os.W_OK) else tmp_path
    folder.mkdir(exist_ok=True)
    try:
        command = [sys.executable, "-c", MANY, str(folder)]
        # Not forked: memory that a process shares counts in part, so it would grow when others end.
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    finally:
        for file in folder.glob("*.db*"):
            file.unlink()
        folder.rmdir()
    assert done.returncode == 0, done.stderr
    found, grown, threads, children, files = map(int, done.stdout.split())
    assert found == 2_000
    assert grown <= 2_500_000, f"{grown:,} bytes"
    assert (threads, children, files) == (1, 0, 0)
