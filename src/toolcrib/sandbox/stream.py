"""A confined command that stays: its input and output are open pipes until either side lets go."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from typing import Any

from toolcrib.errors import SandboxUnavailable, ToolcribError
from toolcrib.sandbox.host.enforcement import report, told_limits
from toolcrib.sandbox.host.failures import not_started, unavailable
from toolcrib.sandbox.host.order import order
from toolcrib.sandbox.host.runner import GRACE, NeverStarted, Run, check, uncancelled
from toolcrib.sandbox.job import Confinement
from toolcrib.sandbox.levels.choice import chosen

__all__ = ["Stream", "open_stream"]

TAIL = 65_536
CHUNK = 65_536
_LINGER = 0.3


class Stream(Run):
    """One confined command with `stdin` and `stdout` as descriptors of ours, for as long as it runs.

    Its whole tree ends with `aclose`, and with this process. `ended` is done when all of it is gone.
    """

    stdin = -1
    """Written by whoever opened the stream; -1 once it is closed."""
    stdout = -1
    """Read by whoever opened the stream."""
    _errors = -1
    _told: str | ToolcribError | None = None

    def open_pipes(self) -> None:
        """Pipes for all three; no clock, for nobody knows how long it is needed."""
        self.fds["stdin"], self.stdin = os.pipe2(os.O_CLOEXEC)
        self.stdout, self.fds["stdout"] = os.pipe2(os.O_CLOEXEC)
        self._errors, self.fds["stderr"] = os.pipe2(os.O_CLOEXEC)
        self._kept = bytearray()
        for fd in (self.stdin, self.stdout, self._errors):
            os.set_blocking(fd, False)
        self.loop.add_reader(self._errors, self._hear)

    def _hear(self) -> None:
        """Keep the end of what it writes to standard error; a flood costs no memory."""
        try:
            data = os.read(self._errors, CHUNK)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self._stop_hearing()
            return
        self._kept += data
        del self._kept[:-TAIL]

    def _stop_hearing(self) -> None:
        if self._errors >= 0:
            self.loop.remove_reader(self._errors)
            os.close(self._errors)
            self._errors = -1

    @property
    def stderr(self) -> str:
        """The last 64 KiB of what it wrote to standard error."""
        return self._kept.decode(errors="replace")

    @property
    def stderr_cut(self) -> bool:
        """Whether it wrote more than that, so that what there is may begin anywhere."""
        return len(self._kept) >= TAIL

    def take_stdin(self) -> int:
        """The descriptor, which the caller closes from now on."""
        fd, self.stdin = self.stdin, -1
        return fd

    def take_stdout(self) -> int:
        """The descriptor, which the caller closes from now on."""
        fd, self.stdout = self.stdout, -1
        return fd

    def how(self) -> str:
        """How it ended, in words; empty while it runs. A command that never started raises why."""
        if not self.ended.done():
            return ""
        if self._told is None:
            self._told = self._judge()
        if isinstance(self._told, ToolcribError):
            raise self._told
        return self._told

    def _judge(self) -> str | ToolcribError:
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
        met = self.exceeded(status)
        return f"{words}; it met its limit of {', '.join(met)}" if met else words

    def enforcement(self) -> dict[str, Any]:
        """What holds it."""
        return dict(report(self.order.plan.unprotected, (), self.job.network, self.level))

    async def aclose(self, grace_s: float = 2.0) -> None:
        """End it: first by the end of its input, then by SIGTERM, then by SIGKILL. Waits until it is gone."""
        if self.stdin >= 0:
            os.close(self.take_stdin())
        try:
            for seconds, action in ((grace_s, self._ask_to_end), (GRACE, self.kill)):
                await asyncio.wait([self.ended], timeout=seconds)
                if self.ended.done():
                    break
                action()
        except asyncio.CancelledError:
            self.kill()
            raise
        finally:
            if not self.ended.done():
                self.kill()
            await uncancelled(self.ended)
            await self._let_go()

    def _ask_to_end(self) -> None:
        if self.sandbox is not None and self.started:
            self.sandbox.signal(signal.SIGTERM)
        else:
            self.kill()

    async def _let_go(self) -> None:
        # With all writers dead the rest is there at once.
        deadline = self.loop.time() + _LINGER
        while self._errors >= 0 and self.loop.time() < deadline:
            self._hear()
            await asyncio.sleep(0)
        if self._told is None:
            self._told = self._judge()
        self.close()
        if self.outlet is not None:
            await self.outlet.aclose()

    def close(self) -> None:
        """Let go of everything."""
        self._stop_hearing()
        for fd in (self.stdin, self.stdout):
            if fd >= 0:
                os.close(fd)
        self.stdin = self.stdout = -1
        super().close()


async def open_stream(job: Confinement) -> Stream:
    """Start a confined command that stays. `timeout_ms`, `output_limit` and `stdin` of the job do not count.

    Raises as `run` does for what is found before it starts; what is found later, `Stream.how` tells.
    """
    check(job)
    if sys.platform != "linux" or not sys.executable:
        raise unavailable("launcher", "a Python interpreter on Linux is needed")
    told_limits(job)
    try:
        level = await chosen(job)
        stream = Stream(job, order(job, level), asyncio.get_running_loop(), level)
    except SandboxUnavailable as error:
        if job.advice:
            error.hint = f"{error.hint}; {job.advice}" if error.hint else job.advice
        raise
    try:
        await stream.start()
    except OSError as error:
        stream.close()
        raise not_started("the command could not be started", error.strerror) from error
    except BaseException:
        stream.close()
        raise
    return stream
