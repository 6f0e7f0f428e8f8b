"""The socket between the server and a sandbox: a message that does not belong there ends that sandbox."""

from __future__ import annotations

import asyncio
import ctypes
import os
import socket
import stat
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from tests.conftest import need
from tests.integration.sandbox.ground import PATH, eventually, processes_with
from tests.patience import patient
from toolcrib.errors import SandboxUnavailable
from toolcrib.sandbox import Confinement, Warmth, configure, run
from toolcrib.sandbox.host.pool import shared

PIDFD_GETFD = 438
FORGED = (
    b"watch", b"listener", b"pid", b"exec", b"ready", b"ready 1:2", b"ready \xe9\x00", b"exit", b"exit -1",
    b"exit 1e9", b"fail", b"fail x", b"fail a\0b\0c\0d", b"other", b"\xff", b" ", b"exec exec", b"exit 0 ",
)  # fmt: skip


@pytest.fixture(autouse=True)
def _fresh() -> Iterator[None]:
    need("root, to take a sandbox's socket", os.geteuid() == 0, of_root=True)
    configure(Warmth())
    yield
    configure(Warmth())


def stolen(pid: int) -> socket.socket:
    """Take the control socket of a sandbox's pid 1, as code that broke out of everything would."""
    libc = ctypes.CDLL(None, use_errno=True)
    pidfd = os.pidfd_open(pid)
    try:
        for place in Path(f"/proc/{pid}/fd").iterdir():
            if stat.S_ISSOCK(place.stat().st_mode):
                fd = libc.syscall(PIDFD_GETFD, pidfd, int(place.name), 0)
                assert fd >= 0, os.strerror(ctypes.get_errno())
                return socket.socket(fileno=fd)
    finally:
        os.close(pidfd)
    raise AssertionError("no socket")


def inits() -> list[int]:
    """Return pid 1 of each sandbox of ours."""
    pid = shared().pids().get("")
    return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


async def test_a_running_command_is_ended_and_its_call_is_refused() -> None:
    configure(Warmth(spares=0))
    trouble: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: trouble.append(context))
    for forged in FORGED:
        marker = f"marker-{os.getpid()}-{forged.hex()}"
        job = Confinement(("/bin/sh", "-c", f"sleep 60; : {marker}"), "/tmp", {"PATH": PATH})
        call = asyncio.create_task(run(job))
        assert await asyncio.to_thread(eventually, partial(processes_with, marker))
        with stolen(inits()[-1]) as sock:
            sock.send(forged)
            with pytest.raises(SandboxUnavailable, match="unexpected message") as caught:
                await asyncio.wait_for(call, patient(20))
        assert caught.value.details["started"]
        assert not processes_with(marker)
    assert not trouble


async def test_a_descriptor_that_was_not_asked_for_ends_it_too() -> None:
    configure(Warmth(spares=0))
    for forged in (b"watch", b"pid", b"listener", b"exec", b"exit 0"):
        marker = f"marker-{os.getpid()}-{forged.hex()}"
        job = Confinement(("/bin/sh", "-c", f"sleep 60; : {marker}"), "/tmp", {"PATH": PATH})
        call = asyncio.create_task(run(job))
        assert await asyncio.to_thread(eventually, partial(processes_with, marker))
        with stolen(inits()[-1]) as sock:
            socket.send_fds(sock, [forged], [0, 1])
            with pytest.raises(SandboxUnavailable, match="unexpected message"):
                await asyncio.wait_for(call, patient(20))


async def test_a_spare_that_says_anything_is_not_used() -> None:
    job = Confinement(("/bin/echo", "x"), "/tmp", {"PATH": PATH})
    for forged in FORGED:
        for _ in range(2):
            await run(job)
        assert await asyncio.to_thread(eventually, lambda: shared().waiting() > 0)
        with stolen(inits()[-1]) as sock:
            sock.send(forged)
            assert (await run(job)).stdout == b"x\n"
