"""A confined command that stays: its input and output are open pipes until either side closes them."""

from __future__ import annotations

import asyncio
import os
import signal

from toolcrib.errors import SandboxUnavailable, ToolcribError
from toolcrib.sandbox.confine import explained
from toolcrib.sandbox.host.runner import CommandRun, NeverStarted, check
from toolcrib.sandbox.host.streams import CHUNK, OwnPipes
from toolcrib.sandbox.job import Confinement
from toolcrib.sandbox.levels.choice import chosen
from toolcrib.spec import Level

LINGER = 0.3


class Stream(CommandRun, OwnPipes):
    """One confined command with `stdin` and `stdout` as our descriptors, for as long as it runs.

    Its whole tree ends with `aclose`, and with this process. `ended` is done when all of it is gone.
    """

    def __init__(self, job: Confinement, level: Level) -> None:
        CommandRun.__init__(self, job, level)
        OwnPipes.__init__(self)
        self._stderr = -1
        self._end_reason: str | ToolcribError | None = None

    def open_pipes(self) -> None:
        """Open pipes for all three streams. There is no clock: nobody knows how long it is needed."""
        self.fds["stdin"], self.stdin = os.pipe2(os.O_CLOEXEC)
        self.stdout, self.fds["stdout"] = os.pipe2(os.O_CLOEXEC)
        self._stderr, self.fds["stderr"] = os.pipe2(os.O_CLOEXEC)
        for fd in (self.stdin, self.stdout, self._stderr):
            os.set_blocking(fd, False)
        self.loop.add_reader(self._stderr, self._read_stderr)

    def _read_stderr(self) -> None:
        """Keep the end of what it writes to standard error."""
        try:
            data = os.read(self._stderr, CHUNK)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self._close_stderr()
        self.keep(data)

    def _close_stderr(self) -> None:
        if self._stderr >= 0:
            self.loop.remove_reader(self._stderr)
            os.close(self._stderr)
            self._stderr = -1

    def how(self) -> str:
        """Return how it ended, in words; empty while it runs. Raises why a command never started."""
        if not self.ended.done():
            return ""
        if self._end_reason is None:
            self._end_reason = self._find_end_reason()
        if isinstance(self._end_reason, ToolcribError):
            raise self._end_reason
        return self._end_reason

    def _find_end_reason(self) -> str | ToolcribError:
        try:
            self.ended.result()
            status = self.status()
        except NeverStarted as error:
            return f"it did not start: {str(error) or 'it was killed from outside'}"
        except ToolcribError as error:
            return error
        if os.WIFSIGNALED(status):
            words = f"it was ended by {signal.Signals(os.WTERMSIG(status)).name}"
        else:
            words = f"it ended with exit code {os.WEXITSTATUS(status)}"
        exceeded = self.exceeded(status)
        return f"{words}; it reached its limit of {', '.join(exceeded)}" if exceeded else words

    async def aclose(self, grace_s: float = 2.0) -> None:
        """End it: first close its input, then send SIGTERM, then SIGKILL. Waits until it is gone."""
        if self.stdin >= 0:
            os.close(self.take_stdin())
        try:
            await self.end_within(grace_s)
        finally:
            await self._finish()

    async def _finish(self) -> None:
        # With all writers dead, the rest is there at once.
        deadline = self.loop.time() + LINGER
        while self._stderr >= 0 and self.loop.time() < deadline:
            self._read_stderr()
            await asyncio.sleep(0)
        if self._end_reason is None:
            self._end_reason = self._find_end_reason()
        self.close()
        if self.outlet is not None:
            await self.outlet.aclose()

    def close(self) -> None:
        """Close everything."""
        self._close_stderr()
        self.close_pipes()
        super().close()


async def open_stream(job: Confinement) -> Stream:
    """Start a confined command that stays. `timeout_ms`, `output_limit` and `stdin` of the job are ignored.

    Raises as `run` does for what is found before the command starts; `Stream.how` raises what is found later.
    """
    stream = None
    try:
        level = await chosen(job)
        check(job, level)
        stream = Stream(job, level)
        stream.begin()
        return stream
    except BaseException as error:
        if stream is not None:
            stream.close()
        if isinstance(error, SandboxUnavailable):
            raise explained(job, error) from None
        raise
