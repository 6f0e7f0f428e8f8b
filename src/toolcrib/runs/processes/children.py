"""The processes of a worker that load the project: each is connected to its supervisor by a socket."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from toolcrib.errors import UnavailableError
from toolcrib.sandbox import signal_name

_START_S = 60.0
GRACE_S = 2.0
"""Seconds that a process which was asked to stop something may take."""
MAX_LINE = 64 * 1_048_576
"""Bytes of one message."""


class Child:
    """One process. Each message to it, and from it, is a line of JSON."""

    def __init__(
        self,
        process: asyncio.subprocess.Process,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> None:
        self._process, self._reader, self._writer = process, reader, writer
        self.first: dict[str, Any] = {}
        """Its first message: it is ready."""
        self.alive = True

    @classmethod
    async def start(cls, command: Sequence[str], settings: Mapping[str, Any]) -> Child:
        """Start one and send it its settings. `command` gets the number of a socket as its last argument.

        Raises `UnavailableError`.
        """
        try:
            made = await cls._spawn(command)
        except OSError as error:
            raise UnavailableError(
                f"a process of the worker did not start: {error.strerror}",
                hint="Raise this worker's limits of open files and processes, or lower its --concurrency.",
            ) from None
        try:
            async with asyncio.timeout(_START_S):
                await made.send(settings)
                made.first = await made.receive() or {}
        except (TimeoutError, ValueError, OSError):
            pass
        except BaseException:
            await made.end()
            raise
        if not made.first:
            fate = ""
            with suppress(TimeoutError):
                async with asyncio.timeout(GRACE_S):
                    fate = f": it {await made.fate()}"
            await made.end()
            hint = "Its own message is above."
            raise UnavailableError(f"a process of the worker did not start{fate}", hint=hint)
        return made

    @classmethod
    async def _spawn(cls, command: Sequence[str]) -> Child:
        # A socket of its own: what tools print goes to standard output.
        ours, theirs = socket.socketpair()
        try:
            with theirs:
                process = await asyncio.create_subprocess_exec(
                    *command,
                    str(theirs.fileno()),
                    pass_fds=[theirs.fileno()],
                    stdin=asyncio.subprocess.DEVNULL,
                )
            return cls(process, *await asyncio.open_unix_connection(sock=ours, limit=MAX_LINE))
        except BaseException:
            ours.close()
            raise

    async def send(self, message: Mapping[str, Any]) -> None:
        """Send a message. Raises `OSError` if the process has ended."""
        self._writer.write(json.dumps(message).encode() + b"\n")
        await self._writer.drain()

    async def receive(self) -> dict[str, Any] | None:
        """Return its next message; None once it has ended. Raises `ValueError` for one that is too long."""
        line = await self._reader.readline()
        # It may have ended in the middle of a line.
        return json.loads(line) if line.endswith(b"\n") else None

    def kill(self) -> None:
        """Have it end at once; it is not usable any more."""
        self.alive = False
        with suppress(ProcessLookupError):
            self._process.kill()

    async def end(self) -> None:
        """End it, and wait until it has ended."""
        self.kill()
        self._writer.close()
        await self._process.wait()

    async def fate(self) -> str:
        """Return how it has ended, in words."""
        code = await self._process.wait()
        return f"was ended by {signal_name(-code)}" if code < 0 else f"has exited with code {code}"
