"""The way out of a sandbox, seen from the server: who serves it, and that nothing of it is left."""

from __future__ import annotations

import asyncio
import socket
from pathlib import Path
from typing import Any

import pytest

from tests.integration.sandbox.ground import eventually
from tests.patience import patient
from toolcrib.errors import UsageError
from toolcrib.sandbox import Confinement, NetworkAccess, run
from toolcrib.sandbox.host.pool import shared


class Hello:
    """An outlet that greets whoever connects."""

    def __init__(self, listener: socket.socket) -> None:
        self.listener = listener
        self.peer = listener.getsockname()
        self.closed = False

    def start(self) -> None:
        self.listener.setblocking(False)
        asyncio.get_running_loop().add_reader(self.listener, self._greet)

    def _greet(self) -> None:
        sock, _ = self.listener.accept()
        with sock:
            sock.sendall(b"hello")

    async def aclose(self) -> None:
        asyncio.get_running_loop().remove_reader(self.listener)
        self.listener.close()
        self.closed = True


LISTEN = """
import os, socket
host, port = os.environ["HTTP_PROXY"].removeprefix("http://").split(":")
print(socket.create_connection((host, int(port))).makefile().read())
"""


def job(*argv: str, network: NetworkAccess = "proxy", **fields: Any) -> Confinement:
    fields.setdefault("outlet", Hello)
    return Confinement(argv or ("true",), "/tmp", env={"PATH": "/usr/bin:/bin"}, network=network, **fields)


def descriptors() -> int:
    """Open sockets, pipes and pidfds; the files of control groups stay open for the next call."""
    count = 0
    for link in Path("/proc/self/fd").iterdir():
        try:
            count += not str(link.readlink()).startswith("/")
        except OSError:
            continue
    return count


def left_over(before: int) -> bool:
    """Whether more is open than before, once all spares have gone."""

    def gone() -> bool:
        shared().drop_spares()
        return descriptors() <= before

    return not eventually(gone)


async def test_an_outlet_serves_what_connects_inside_and_is_closed_at_the_end() -> None:
    made: list[Hello] = []

    def outlet(listener: socket.socket) -> Hello:
        made.append(Hello(listener))
        return made[-1]

    for number in range(4):
        done = await run(job("python3", "-I", "-S", "-c", LISTEN, outlet=outlet))
        assert done.stdout == b"hello\n", done.stderr
        if number:  # the next one is a spare
            assert await asyncio.to_thread(eventually, lambda: shared().waiting() > 0)
    assert [one.closed for one in made] == [True] * 4
    assert all(host == "127.0.0.1" for host, _ in (one.peer for one in made))


async def test_nothing_listens_on_the_machine() -> None:
    refused: list[bool] = []

    def outlet(listener: socket.socket) -> Hello:
        with socket.socket() as sock:
            refused.append(sock.connect_ex(listener.getsockname()) != 0)
        return Hello(listener)

    await run(job(outlet=outlet))
    assert refused == [True]


@pytest.mark.parametrize(
    ("network", "outlet"), [("none", Hello), ("host", Hello), ("proxy", None)], ids=["none", "host", "proxy"]
)
async def test_an_outlet_and_the_network_must_fit(network: NetworkAccess, outlet: Any) -> None:
    with pytest.raises(UsageError, match="an outlet is needed"):
        await run(job(network=network, outlet=outlet))


async def test_an_outlet_that_cannot_be_made_or_started_ends_the_call() -> None:
    class Broken(Hello):
        def start(self) -> None:
            raise RuntimeError("no")

    def impossible(_: socket.socket) -> Hello:
        raise RuntimeError("no")

    await run(job())
    shared().drop_spares()
    before = descriptors()
    for outlet in (Broken, impossible):
        with pytest.raises(RuntimeError, match="no"):
            await asyncio.wait_for(run(job(outlet=outlet)), patient(10))
    assert not await asyncio.to_thread(left_over, before)


async def test_spares_that_are_not_used_leave_no_listener() -> None:
    for _ in range(3):
        await run(job("echo", "x"))
    await asyncio.to_thread(eventually, lambda: shared().waiting() > 0)
    with_spares = descriptors()
    shared().drop_spares()
    assert descriptors() < with_spares


async def test_a_spare_is_only_for_the_same_network() -> None:
    for _ in range(3):
        await run(job("echo", "x"))
    await asyncio.to_thread(eventually, lambda: shared().waiting() > 0)
    done = await run(job("cat", "/proc/net/dev", network="none", outlet=None))
    assert done.enforcement["net"] == "netns+seccomp"
    assert done.stdout.split()[-17:-1] == [b"lo:", *[b"0"] * 15]


async def test_time_that_runs_out_before_the_word_leaves_nothing() -> None:
    await run(job())
    shared().drop_spares()
    before = descriptors()
    for _ in range(5):
        await run(job("sleep", "9", timeout_ms=2))
    assert not await asyncio.to_thread(left_over, before)
