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

LONGEST_ANSWER = 1 << 40


async def call_function(script: str, prepared: Mapping[str, Any], call: bytes) -> bytes | int:
    """Call a function; return its answer, or the wait status of a process that ended without one.

    `script` is a file of ours that defines `prepare(dict)` and `main()`. Before `main` its `given` is set to
    two descriptors: to read `call` from, and to write the answer to, which ends with a newline. `prepared` is
    the argument of `prepare`; spares are for calls with an equal one. Cancelling this ends the whole tree.

    Raises:
        UnavailableError: no process could be started at the moment; nothing was run.
    """
    order = order_of(script, marshal.dumps(dict(prepared), 2))
    return await retried(lambda: FunctionRun(order, call).complete(), FunctionRun.trouble)


class FunctionRun(SandboxRun):
    """The run of one function."""

    trouble = "no process could be started for the function"

    def __init__(self, order: SandboxOrder, call: bytes) -> None:
        super().__init__(order, [])
        self._call = call

    async def complete(self) -> bytes | int:
        """Call the function and return what came of it."""
        try:
            self.begin()
            await self.end_within(None)
            status = await self.result()
            return bytes(self.readers[0].kept) if self.answered else status
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


def order_of(script: str, prepared: bytes) -> SandboxOrder:
    """Return the order for the process of a call."""
    message = {"level": "function", "cwd": "/", "warm": {"script": script, "executable": sys.executable}}
    key = (FUNCTIONS, script, hashlib.sha256(prepared).digest())
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
