"""A confined command that stays: its input and output are open pipes until either side closes them."""

from __future__ import annotations

import asyncio
import os

from toolcrib.errors import SandboxUnavailable, ToolcribError
from toolcrib.sandbox.confine import checked_level, explained
from toolcrib.sandbox.host.pipe import CHUNK
from toolcrib.sandbox.host.runner import CommandRun, NeverStarted
from toolcrib.sandbox.job import Confinement
from toolcrib.sandbox.kernel.signals import signal_name
from toolcrib.spec import Level

LINGER = 0.3
TAIL = 65_536


class OwnPipes:
    """Our ends of the pipes of a process that stays, and the end of what it wrote to standard error."""

    def __init__(self, stdin: int = -1, stdout: int = -1) -> None:
        self.stdin = stdin
        """Written by the caller; -1 once it is closed."""
        self.stdout = stdout
        """Read by the caller."""
        self._tail = bytearray()

    def keep(self, data: bytes) -> None:
        """Keep the last 64 KiB of standard error; a flood takes no memory."""
        self._tail += data
        del self._tail[:-TAIL]

    @property
    def stderr(self) -> str:
        """The last 64 KiB of what it wrote to standard error."""
        return self._tail.decode(errors="replace")

    @property
    def stderr_cut(self) -> bool:
        """True if it may have written more than that."""
        return len(self._tail) >= TAIL

    def take_stdin(self) -> int:
        """Return the descriptor, which the caller then has to close."""
        fd, self.stdin = self.stdin, -1
        return fd

    def take_stdout(self) -> int:
        """Return the descriptor, which the caller then has to close."""
        fd, self.stdout = self.stdout, -1
        return fd

    def close_pipes(self) -> None:
        """Close those that nobody has taken."""
        for fd in (self.take_stdin(), self.take_stdout()):
            if fd >= 0:
                os.close(fd)


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
        # It must be read all the time, or a server that writes much to it stops at a full pipe.
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
            words = f"it was ended by {signal_name(os.WTERMSIG(status))}"
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
        stream = Stream(job, await checked_level(job))
        stream.begin()
        return stream
    except BaseException as error:
        if stream is not None:
            stream.close()
        if isinstance(error, SandboxUnavailable):
            raise explained(job, error) from None
        raise
