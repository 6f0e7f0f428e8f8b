"""The process of a server that cannot be confined, such as `docker run`: its daemon controls the machine.

It is started only after a person has trusted exactly that path (`Config.unconfined`).
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from toolcrib.errors import ToolUnavailable
from toolcrib.sandbox import signal_name
from toolcrib.sandbox.stream import TAIL, OwnPipes

_GRACE_S = 5.0
_STARTER = """\
import ctypes, os, signal, sys
parent, program, *argv = sys.argv[1:]
# Python itself ignores these.
for number in (signal.SIGPIPE, signal.SIGXFSZ):
    signal.signal(number, signal.SIG_DFL)
ctypes.CDLL(None).prctl(1, signal.SIGKILL)
if os.getppid() == int(parent):
    try:
        os.execv(program, argv)
    except OSError as error:
        sys.exit(f"{program}: {error.strerror}")
"""


class UnconfinedStream(OwnPipes):
    """A running process with pipes, as `sandbox.stream.Stream` is for a confined one."""

    def __init__(self, process: asyncio.subprocess.Process, stdin: int, stdout: int) -> None:
        super().__init__(stdin, stdout)
        self._process = process
        self._reading = asyncio.create_task(self._read_stderr())

    async def _read_stderr(self) -> None:
        assert self._process.stderr is not None
        while data := await self._process.stderr.read(TAIL):
            self.keep(data)

    def enforcement(self) -> dict[str, Any]:
        """Return the report that nothing confines it."""
        return {"level": "none"}

    def how(self) -> str:
        """Return how it ended, in words; empty while it runs."""
        code = self._process.returncode
        if code is None:
            return ""
        if code < 0:
            return f"it was ended by {signal_name(-code)}"
        return f"it ended with exit code {code}"

    async def aclose(self) -> None:
        """End it: close its input, then send SIGTERM and SIGKILL to its group. Waits until it is gone."""
        self.close_pipes()
        # MCP, stdio, Shutdown: the end of its input comes first, then the signals.
        for number in (None, signal.SIGTERM, signal.SIGKILL):
            if number is not None and self._process.returncode is None:
                os.killpg(self._process.pid, number)
            try:
                async with asyncio.timeout(_GRACE_S):
                    await self._process.wait()
                break
            except TimeoutError:
                continue
        self._reading.cancel()
        await asyncio.gather(self._reading, return_exceptions=True)


def dying_with_us(program: str, *argv: str) -> tuple[str, ...]:
    """Return the words of a program that the kernel ends with this process (`PR_SET_PDEATHSIG` of prctl(2)).

    `program` is its path, `argv` its words, the first of which is its name.
    """
    # To ask for that between fork and exec is not safe where there are threads.
    return (sys.executable, "-I", "-S", "-c", _STARTER, str(os.getpid()), program, *argv)


async def start_unconfined(
    program: str, argv: Sequence[str], cwd: str, env: Mapping[str, str]
) -> UnconfinedStream:
    """Start the program at this path with all rights of this user. Raises ToolUnavailable if it cannot be.

    `argv` are its words, the first of which is its name.
    """
    # Without O_CLOEXEC other children would inherit our ends, and this one would never see the end of
    # its input.
    theirs_in, stdin = os.pipe2(os.O_CLOEXEC)
    stdout, theirs_out = os.pipe2(os.O_CLOEXEC)
    try:
        process = await asyncio.create_subprocess_exec(
            *dying_with_us(program, *argv),
            cwd=cwd,
            env=dict(env),
            stdin=theirs_in,
            stdout=theirs_out,
            stderr=asyncio.subprocess.PIPE,
            # A process group of its own, which `aclose` can end as a whole.
            start_new_session=True,
        )
    except OSError as error:
        os.close(stdin)
        os.close(stdout)
        raise ToolUnavailable(f"its command {program!r} cannot be started: {error.strerror}") from None
    finally:
        os.close(theirs_in)
        os.close(theirs_out)
    os.set_blocking(stdin, False)
    os.set_blocking(stdout, False)
    return UnconfinedStream(process, stdin, stdout)
