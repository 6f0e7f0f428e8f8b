"""Call a registered function in a process of its own, which a launcher forks.

The process is not confined. It is ended, with all that it started, when it has answered, when the call is
cancelled and when the server dies. A second call soon after the first gets a spare that has imported
everything already; each spare is used for one call only.
"""

from __future__ import annotations

import errno
import hashlib
import marshal
import os
import sys
from collections.abc import Callable, Mapping
from typing import Any

from toolcrib.sandbox.host.handle import FUNCTIONS, SandboxHandle
from toolcrib.sandbox.host.pool import SandboxOrder
from toolcrib.sandbox.host.runner import SandboxRun, retried
from toolcrib.spec.record import record

LONGEST_ANSWER = 1 << 40


@record
class FunctionCall:
    """One call."""

    script: str
    """A file of ours that defines `prepare(dict)` and `main()`. Its `given` is set to two descriptors before
    `main`: to read the call from, and to write the answer to, which ends with a newline."""
    prepared: Mapping[str, Any]
    """The argument of `prepare`. Spares are for calls with an equal one."""
    call: bytes


@record
class FunctionAnswer:
    """The answer, or the wait status of a process that ended without one."""

    data: bytes
    status: int | None


async def call_function(call: FunctionCall) -> FunctionAnswer:
    """Make the call; cancelling it ends the whole tree first.

    Raises:
        UnavailableError: no process could be started at the moment; nothing was run.
    """
    return await retried(lambda: FunctionRun(call).complete(), FunctionRun.trouble)


class FunctionRun(SandboxRun):
    """The run of one function."""

    trouble = "no process could be started for the function"

    def __init__(self, call: FunctionCall) -> None:
        super().__init__(order_of(call), [])
        self._call = call.call

    async def complete(self) -> FunctionAnswer:
        """Call the function and return what came of it."""
        try:
            self.begin()
            await self.end_within(None)
            status = await self.result()
            if self.answered:
                return FunctionAnswer(bytes(self.readers[0].kept), None)
            return FunctionAnswer(b"", status)
        finally:
            self.close()

    def open_pipes(self) -> None:
        """Open the pipe for the answer."""
        self.read("result", LONGEST_ANSWER, self._check_answer)

    def _check_answer(self) -> None:
        if self.readers[0].kept.endswith(b"\n"):
            # Whatever the process does after its answer, at its exit for instance, does not delay the call.
            self.readers[0].close()
            self.answered = True
            self.finish()

    def call(self, _: SandboxHandle) -> bytes:
        """Return the call as the script reads it."""
        return self._call


def order_of(call: FunctionCall) -> SandboxOrder:
    """Return the order for the process of a call."""
    prepared = marshal.dumps(dict(call.prepared), 2)
    message = {
        "level": "function",
        "cwd": "/",
        "warm": {"script": call.script, "executable": sys.executable},
    }
    digest = hashlib.sha256(prepared).digest()
    key = (FUNCTIONS, call.script, digest)
    return SandboxOrder(FUNCTIONS, message, key, sender(prepared))


def sender(prepared: bytes) -> Callable[[SandboxHandle], None]:
    """Return a function that sends a process what it imports the function with, and our output streams."""

    def send(sandbox: SandboxHandle) -> None:
        fds = {}
        for name, fd in (("stdout", 1), ("stderr", 2)):
            try:
                os.fstat(fd)
            except OSError:  # The server has none.
                continue
            fds[name] = fd
        try:
            sandbox.send("prepared", prepared, fds)
        except OSError as error:
            if error.errno not in (errno.EPIPE, errno.ECONNRESET):
                raise

    return send
