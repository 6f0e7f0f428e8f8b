"""Call a function in a process of its own, which a launcher forks; the server's side.

The process is not confined. It is ended, with all that it started, when it has answered, when the call is
cancelled and when the server dies. A second call soon after the first finds a spare that has imported
everything already; each is used for one call only.
"""

from __future__ import annotations

import asyncio
import errno
import hashlib
import marshal
import os
import signal
import socket
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from toolcrib.sandbox.host.enforcement import groups
from toolcrib.sandbox.host.failures import explain, not_started, unavailable
from toolcrib.sandbox.host.handle import FUNCTIONS, Sandbox, in_memory
from toolcrib.sandbox.host.pool import shared
from toolcrib.sandbox.host.runner import COME_AGAIN, RETRY, STUBBORN, refuse_small, turns, uncancelled
from toolcrib.sandbox.host.streams import Drain

__all__ = ["Answer", "Apart", "call_apart"]

MOST = 1 << 40
TRIES = 3
NO_PROCESS = "no process could be started for the function"


@dataclass(frozen=True, slots=True)
class Apart:
    """One call."""

    script: str
    """A file of ours that defines `prepare(dict)` and `main()`; `given` is set before: descriptors to read
    the call from and to write the answer to, which ends with a newline."""
    prepared: Mapping[str, Any]
    """What `prepare` is given. What is equal to it from call to call is prepared ahead of the next."""
    call: bytes
    memory_bytes: int | None = None
    """Memory of the whole tree; refused where nothing can hold it."""
    processes: int | None = None
    """Processes and threads of the whole tree; likewise."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What came back: an answer, or the wait status of a process that ended without one."""

    data: bytes
    status: int | None
    out_of_memory: bool = False


async def call_apart(job: Apart) -> Answer:
    """Make the call; cancelling ends the whole tree first.

    Raises:
        UnavailableError: no process could be started, for the moment; nothing was run.
        SandboxUnavailable: a limit is stated that nothing here can hold.
    """
    if (job.memory_bytes or job.processes) and groups()[0] is None:
        raise unavailable("cgroup", f"limits of the tool cannot be held: {groups()[1]}")
    async with turns():
        for _ in range(TRIES):
            run = Run(job, asyncio.get_running_loop())
            try:
                await run.start()
                await run.wait()
                answer = run.answer()
            except OSError as error:
                raise not_started(NO_PROCESS, error.strerror) from error
            finally:
                run.close()
            if answer is not None:
                return answer
    raise not_started(NO_PROCESS, "it was killed from outside")


class Run:
    """The life of one call."""

    def __init__(self, job: Apart, loop: asyncio.AbstractEventLoop) -> None:
        self.job = job
        self.loop = loop
        self.prepared = marshal.dumps(dict(job.prepared), 2)
        self.order = {
            "level": "function",
            "cwd": "/",
            "memory_bytes": job.memory_bytes,
            "processes": job.processes,
            "warm": {"script": job.script, "executable": sys.executable, "modules": ()},
        }
        digest = hashlib.sha256(self.prepared).digest()
        self.key = (FUNCTIONS, job.script, digest, job.memory_bytes, job.processes)
        self.ended: asyncio.Future[None] = loop.create_future()
        self.sandbox: Sandbox | None = None
        self.drain: Drain | None = None
        self.theirs = -1
        self.started = False
        self.watched = -1

    async def start(self) -> None:
        """Take a process, and hand it the call as soon as there is a hold on it."""
        while self.sandbox is None:
            try:
                self.sandbox = shared().take(
                    self.key, sys.executable, self.order, [], prepare=sender(self.prepared)
                )
            except OSError as error:
                if error.errno not in COME_AGAIN:
                    raise
                await asyncio.sleep(RETRY)
        mine, self.theirs = os.pipe2(os.O_CLOEXEC)
        self.drain = Drain(self.loop, mine, MOST, self.look)
        self.watch(self.sandbox.control.fileno(), self.receive)
        self.receive()

    def look(self) -> None:
        """Done as soon as the answer is whole."""
        if self.drain is not None and self.drain.kept.endswith(b"\n"):
            self.end()

    def receive(self) -> None:
        """Take in what came, and answer it."""
        sandbox = self.sandbox
        assert sandbox is not None
        while sandbox.receive():
            pass
        told = any(message.startswith(("exit ", "fail ")) for message in sandbox.messages)
        if told or (sandbox.gone and sandbox.pidfd < 0):
            self.end()
        elif sandbox.gone:
            self.unwatch()
            self.watch(sandbox.pidfd, self.end)
        elif sandbox.pidfd >= 0 and not self.started and not self.ended.done():
            self.give_word(sandbox)

    def give_word(self, sandbox: Sandbox) -> None:
        """Hand over the call."""
        # This is a callback: nobody else would hear of an error.
        try:
            memory = in_memory("call", self.job.call)
            try:
                socket.send_fds(sandbox.control, [b"call result"], [memory, self.theirs])
            finally:
                os.close(memory)
        except ConnectionError:  # It has ended already, and says why.
            pass
        except OSError as error:
            self.unwatch()
            self.ended.set_exception(error)
            return
        self.started = True
        self.close_theirs()

    async def wait(self) -> None:
        """Wait for the answer or the end; when cancelled, bring that about first."""
        try:
            await asyncio.shield(self.ended)
        except asyncio.CancelledError:
            if self.sandbox is not None and self.started:
                self.unwatch()
                self.watch(self.sandbox.pidfd, self.end)
                self.sandbox.signal(signal.SIGKILL)
                stubborn = self.loop.call_later(STUBBORN, self.sandbox.kill_keeper)
                await uncancelled(self.ended)
                stubborn.cancel()
            raise

    def answer(self) -> Answer | None:
        """What came of it; None where the process was killed before it was given anything to do."""
        assert self.sandbox is not None
        assert self.drain is not None
        self.drain.read_rest()
        data = bytes(self.drain.kept)
        if data.endswith(b"\n"):
            return Answer(data, None)
        for message in self.sandbox.messages:
            if message.startswith("fail "):
                raise explain(message[5:])
            if message.startswith("exit "):
                slot = self.sandbox.slot
                return Answer(b"", int(message[5:]), slot is not None and slot.events()["oom_kills"] > 0)
        if "exec" in self.sandbox.messages:
            return Answer(b"", signal.SIGKILL)
        launcher = self.sandbox.launcher
        if not launcher.alive() and (noise := launcher.last_words()):
            if launcher.unable():
                raise unavailable("launcher", f"it cannot be started: {noise}")
            raise not_started(NO_PROCESS, noise)
        refuse_small(self.sandbox.slot, self.job.memory_bytes)
        return None

    def watch(self, fd: int, action: Callable[[], None]) -> None:
        """Have `action` called when something can be read."""
        self.watched = fd
        self.loop.add_reader(fd, action)

    def unwatch(self) -> None:
        """Stop watching."""
        if self.watched >= 0:
            self.loop.remove_reader(self.watched)
            self.watched = -1

    def end(self) -> None:
        """Let `wait` go on."""
        self.unwatch()
        if not self.ended.done():
            self.ended.set_result(None)

    def close_theirs(self) -> None:
        """Leave the writing end to the process alone."""
        if self.theirs >= 0:
            os.close(self.theirs)
            self.theirs = -1

    def close(self) -> None:
        """Let go of everything, and end what has not ended."""
        self.unwatch()
        self.close_theirs()
        if self.drain is not None:
            self.drain.close()
        if self.sandbox is not None:
            shared().give_back(self.key, self.sandbox)
            self.sandbox = None


def sender(prepared: bytes) -> Callable[[Sandbox], None]:
    """What sends a process all that it needs to import the function, with our own output streams."""

    def send(sandbox: Sandbox) -> None:
        given = {"prepared": in_memory("prepared", prepared)}
        try:
            for name, fd in (("stdout", 1), ("stderr", 2)):
                try:
                    os.fstat(fd)
                except OSError:  # a server without
                    continue
                given[name] = fd
            socket.send_fds(sandbox.control, [" ".join(given).encode()], list(given.values()))
        except OSError as error:
            if error.errno not in (errno.EPIPE, errno.ECONNRESET):
                raise
        finally:
            os.close(given["prepared"])

    return send
