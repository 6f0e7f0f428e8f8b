"""The claims about limits of a whole process tree; `claims` has them tried with the others."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Callable

from tests.integration.sandbox.ground import PYTHON, Ground, python, said, shell
from toolcrib.errors import SandboxUnavailable
from toolcrib.sandbox import Completed, Confinement, run

HOLDING = """
import os, time
held = 1
try:
    while held < 100 and os.fork():
        held += 1
except OSError as error:
    print(held, error.errno, flush=True)
time.sleep(1)
"""


def limits(ground: Ground) -> dict[str, str]:
    """Return what enforces each limit here."""
    found = shell(ground, ":").enforcement["limits"]
    assert isinstance(found, dict)
    return found


def refused(job: Confinement) -> None:
    """Nothing is run, because the limit cannot be enforced."""
    named = ""
    try:
        asyncio.run(run(job))
    except SandboxUnavailable as error:
        named = error.details["mechanism"]
    assert named == "cgroup"


def memory_of_the_tree_is_limited_or_the_limit_is_refused(ground: Ground) -> None:
    if limits(ground)["memory"] == "not enforced":
        refused(Confinement(argv=("true",), cwd="/", memory_bytes=128 << 20))
        return
    hog = "x = [bytearray(b'x' * 30_000_000) for _ in range(3)]; print('went on')"
    fork = f"import os, time\nif os.fork() == 0:\n    {hog}\n    time.sleep(1); os._exit(0)\n{hog}; os.wait()"
    big = python(fork, memory_bytes=128 << 20)
    assert big.enforcement.get("exceeded") == ["memory"] or said(big).count("went on") < 2, said(big)


def processes_of_the_tree_are_limited_or_the_limit_is_refused(ground: Ground) -> None:
    by = limits(ground)["processes"]
    if by == "not enforced":
        assert os.geteuid() == 0
        refused(Confinement(argv=("true",), cwd="/", processes=6))
        return
    few = shell(ground, "for n in 1 2 3 4 5 6 7 8 9; do sleep 5 & done; echo went on", processes=6)
    assert "went on" not in said(few)
    assert few.enforcement.get("exceeded", ["processes"]) == ["processes"], (few, said(few))
    assert "exceeded" in few.enforcement or by == "rlimit (user namespace)"


def each_sandbox_has_its_own_number_of_processes(ground: Ground) -> None:
    if limits(ground)["processes"] == "not enforced":
        return
    granted = (os.path.realpath(sys.base_prefix),)
    argv = (PYTHON, "-I", "-S", "-c", HOLDING)
    job = Confinement(argv, "/tmp", read=granted, processes=16, timeout_ms=120_000)

    async def at_once() -> list[Completed]:
        return await asyncio.gather(*(run(job) for _ in range(4)))

    assert [done.stdout for done in asyncio.run(at_once())] == [b"16 11\n"] * 4


def an_ordinary_user_always_has_a_limit_of_processes(ground: Ground) -> None:
    if os.geteuid() != 0 and limits(ground)["processes"] == "rlimit (user namespace)":
        done = shell(ground, "grep processes /proc/self/limits")
        assert done.stdout.split()[2:4] == [b"1025", b"1025"], said(done)


LIMITS: tuple[Callable[[Ground], None], ...] = (
    memory_of_the_tree_is_limited_or_the_limit_is_refused,
    processes_of_the_tree_are_limited_or_the_limit_is_refused,
    each_sandbox_has_its_own_number_of_processes,
    an_ordinary_user_always_has_a_limit_of_processes,
)
