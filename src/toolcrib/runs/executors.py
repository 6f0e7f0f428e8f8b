"""Executor processes: each runs one attempt at a time, so a tool that crashes takes no other call along."""

from __future__ import annotations

import asyncio
import json
import logging
import socket
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

from toolcrib.core.decision import Fail
from toolcrib.errors import InvalidOutput, TimedOut, UnavailableError
from toolcrib.runs.calls import ClaimedCall
from toolcrib.runs.ending import Ending, Lost, from_json
from toolcrib.runs.serving import whole
from toolcrib.sandbox import signal_name

_log = logging.getLogger("toolcrib.runs")

_LONGEST_LINE = 64 * 1_048_576
_GRACE_S = 2.0
"""Seconds after its limit, or after it was asked to stop, that an attempt may take to end by itself."""
_START_S = 60.0
_PAUSE_S = 1.0
"""Seconds until the next try if a process does not start."""


class Executors:
    """Keeps `count` processes ready. `command` starts one; its last argument becomes the number of a socket.

    A process gets `settings` in the first line, and writes its tools, `{"tools": {name: most at a time or
    null}}`. A further line to it is a claimed call; its answers are `{"limit_s": …}` and then the ending.
    `begin` is called with each call that was taken while processes were missing, before it runs.
    """

    def __init__(
        self,
        command: Sequence[str],
        settings: Mapping[str, Any],
        count: int,
        begin: Callable[[ClaimedCall], None],
    ) -> None:
        self._begin = begin
        self._start = partial(_ExecutorProcess.start, tuple(command), settings)
        self._idle: asyncio.Queue[_ExecutorProcess] = asyncio.Queue()
        self._count = count
        self._keepers: list[asyncio.Task[None]] = []
        self.tools: Mapping[str, int | None] = {}
        """The tools that the processes have, and how many calls of each run at a time."""

    async def start(self) -> None:
        """Start all processes; raises `UnavailableError` if the first one does not start."""
        self._give(await self._start())
        for _ in range(self._count - 1):
            self._keepers.append(asyncio.create_task(self._replace()))

    def are_complete(self) -> bool:
        """Return True if no process is missing, so that a call which is taken begins at once."""
        return all(keeper.done() for keeper in self._keepers)

    async def run(self, claim: ClaimedCall) -> Ending:
        """Run one attempt in an idle process. Cancelling this ends the attempt, or else its process."""
        process = await self._idle.get()
        try:
            if not claim.begun:
                await asyncio.to_thread(self._begin, claim)
        except BaseException:
            self._idle.put_nowait(process)
            raise
        try:
            ending = await process.run(claim)
        except asyncio.CancelledError:
            # Whole: a call that is cancelled once more, as with its lease, must not lose the process.
            await whole(self._stop(process))
            raise
        self._return(process, alive=process.alive)
        return ending

    async def _stop(self, process: _ExecutorProcess) -> None:
        self._return(process, alive=await process.stop_attempt())

    def _return(self, process: _ExecutorProcess, *, alive: bool) -> None:
        if alive:
            self._idle.put_nowait(process)
        else:
            self._keepers = [task for task in self._keepers if not task.done()]
            self._keepers.append(asyncio.create_task(self._replace(process)))

    async def _replace(self, dead: _ExecutorProcess | None = None) -> None:
        if dead is not None:
            await dead.end()
        while True:
            try:
                self._give(await self._start())
            except UnavailableError as error:
                _log.warning("%s", error)
                await asyncio.sleep(_PAUSE_S)
            else:
                return

    def _give(self, process: _ExecutorProcess) -> None:
        self.tools = process.tools
        self._idle.put_nowait(process)

    async def close(self) -> None:
        """End all processes; no attempt may run any more."""
        for keeper in self._keepers:
            keeper.cancel()
        await asyncio.gather(*self._keepers, return_exceptions=True)
        while not self._idle.empty():
            await self._idle.get_nowait().end()


class _ExecutorProcess:
    """One executor process."""

    def __init__(
        self,
        process: asyncio.subprocess.Process,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        tools: Mapping[str, int | None],
    ) -> None:
        self._process = process
        self._reader = reader
        self._writer = writer
        self.tools = tools
        self.alive = True

    @classmethod
    async def start(cls, command: Sequence[str], settings: Mapping[str, Any]) -> _ExecutorProcess:
        try:
            process, reader, writer = await _spawned(command)
        except OSError as error:
            raise UnavailableError(
                f"an executor process did not start: {error.strerror}",
                hint="Raise this worker's limits of open files and processes, or lower its --concurrency.",
            ) from None
        made = cls(process, reader, writer, {})
        try:
            async with asyncio.timeout(_START_S):
                writer.write(json.dumps(settings).encode() + b"\n")
                line = await reader.readline()
            made.tools = json.loads(line)["tools"]
        except (TimeoutError, ValueError, KeyError, OSError):
            with suppress(TimeoutError):
                async with asyncio.timeout(_GRACE_S):
                    await process.wait()  # It ends by itself, with its own exit code.
            await made.end()
            raise UnavailableError(
                f"an executor process did not start (exit code {process.returncode})",
                hint="Its own message is above.",
            ) from None
        except BaseException:
            await made.end()
            raise
        return made

    async def run(self, claim: ClaimedCall) -> Ending:
        """Run one attempt, and end the process if that takes too long."""
        message = {**claim._asdict(), "arguments": claim.arguments.decode()}
        try:
            self._writer.write(json.dumps(message).encode() + b"\n")
            await self._writer.drain()
            limit_s: float | None = None
            while True:
                async with asyncio.timeout(limit_s):
                    line = await self._reader.readline()
                # The process has ended, maybe in the middle of a line.
                if not line.endswith(b"\n"):
                    break
                answer: dict[str, Any] = json.loads(line)
                if "end" in answer:
                    return from_json(answer)
                limit_s = float(answer["limit_s"]) + _GRACE_S
        except TimeoutError:
            # It missed its own limit, so it may hang in foreign code: only the end of the process ends the
            # tool.
            self.alive = False
            self._kill()
            return Fail(TimedOut(f"{claim.tool} did not end at its limit, so its process was ended"))
        except ValueError:
            # The rest of a line that is too long would be taken for the next answer.
            self.alive = False
            self._kill()
            most = _LONGEST_LINE >> 20
            return Fail(InvalidOutput(f"the result of {claim.tool} is longer than {most} MiB"))
        except OSError:
            pass
        self.alive = False
        return Lost(f"the process that ran it {await self._fate()}")

    async def stop_attempt(self) -> bool:
        """Cancel the attempt; True if the process can run another one."""
        try:
            self._writer.write(b'{"stop": true}\n')
            async with asyncio.timeout(_GRACE_S):
                while line := await self._reader.readline():
                    if "end" in json.loads(line):
                        return True
        except (OSError, TimeoutError, ValueError):
            pass
        self._kill()
        return False

    async def end(self) -> None:
        """End the process, and wait until it has ended."""
        self.alive = False
        self._writer.close()
        self._kill()
        await self._process.wait()

    async def _fate(self) -> str:
        code = await self._process.wait()
        return f"was ended by {signal_name(-code)}" if code < 0 else f"has exited with code {code}"

    def _kill(self) -> None:
        with suppress(ProcessLookupError):
            self._process.kill()


async def _spawned(
    command: Sequence[str],
) -> tuple[asyncio.subprocess.Process, asyncio.StreamReader, asyncio.StreamWriter]:
    """Start a process, and connect to it."""
    # A socket of its own: what tools print goes to standard output.
    ours, theirs = socket.socketpair()
    try:
        with theirs:
            process = await asyncio.create_subprocess_exec(
                *command, str(theirs.fileno()), pass_fds=[theirs.fileno()], stdin=asyncio.subprocess.DEVNULL
            )
        return process, *await asyncio.open_unix_connection(sock=ours, limit=_LONGEST_LINE)
    except BaseException:
        ours.close()
        raise
