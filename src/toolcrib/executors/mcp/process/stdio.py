"""MCP over the pipes of a confined process, as a transport of the official client."""

from __future__ import annotations

import asyncio
import json
import os
import re
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

from toolcrib.errors import ToolcribError

if TYPE_CHECKING:
    from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
    from mcp.shared.message import SessionMessage
    from mcp_types.jsonrpc import JSONRPCError

    from toolcrib.executors.mcp.process.unconfined import UnconfinedStream
    from toolcrib.sandbox.stream import Stream

MAX_LINE = 16 * 1024 * 1024
"""Bytes of one message; a server that writes a longer line is ended."""
_FREE_LINES, _PAUSE_S = 1_000, 0.001
"""Lines that are not messages and are skipped at once; after each further one comes a pause in seconds."""
_MEANT = re.compile(
    rb'\s*\{\s*(?:"jsonrpc"\s*:\s*"2\.0"\s*,\s*)?(?:"id"\s*:\s*(\d{1,15}|"[^"\\]{1,64}")\s*,)?'
)
"""The beginning of a line that is meant as a message, with its id if that comes first."""
_SHOWN = 200
"""Characters shown of a line that is not a message."""
_SAMPLE = 65_536
"""Bytes kept of such a line: secrets are masked in these before the line is cut to what is shown."""
_MAX_SECRET = 4_096
"""Characters of the longest secret whose end may be at the beginning of a cut text."""


def _unreadable(request_id: str | int) -> JSONRPCError:
    """Return the error in place of an answer that cannot be read, so that its call ends at once."""
    from mcp_types import PARSE_ERROR, ErrorData
    from mcp_types.jsonrpc import JSONRPCError

    error = ErrorData(code=PARSE_ERROR, message="its answer is malformed, or nested too deeply")
    return JSONRPCError(jsonrpc="2.0", id=request_id, error=error)


class StdioLink:
    """The connection to a confined server process, which runs inside `async with`."""

    def __init__(
        self,
        start: Callable[[], Awaitable[Stream | UnconfinedStream]],
        redact: Callable[[str], str] = lambda text: text,
        explain: Callable[[ToolcribError, str, Any], ToolcribError] = lambda error, *_: error,
        created: Callable[[], tuple[str, ...]] = tuple,
    ) -> None:
        self.explain = explain
        """Adds to an error the permission that the server lacks."""
        self.created = created
        """Returns what was created since the last look that starts other programs."""
        self._start = start
        self._redact = redact
        self._stream: Stream | UnconfinedStream | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self._writer: asyncio.StreamWriter | None = None
        self._reading: asyncio.ReadTransport | None = None
        self._streams: tuple[Any, ...] = ()
        self.closed = asyncio.Event()
        """Set if it can be used no longer."""
        self.lost = False
        """True if no message can come any more."""
        self._junk = b""
        self.fault = ""
        """The reason why we ended it."""
        self._ended_by_us = False
        self.status = 0  # No HTTP here.

    async def __aenter__(self) -> Any:
        self._stream = await self._start()
        try:
            return await self._connect(self._stream)
        except BaseException:  # Cancelled meanwhile: nobody else would end the process and close its pipes.
            await self.__aexit__()
            raise

    async def _connect(self, stream: Stream | UnconfinedStream) -> Any:
        import anyio

        loop = asyncio.get_running_loop()
        reader = asyncio.StreamReader(limit=MAX_LINE)
        # The pipes of uvloop close the descriptor themselves, and then the file: by then its number may be
        # another thread's.
        owned = isinstance(loop, asyncio.BaseEventLoop)
        self._reading, _ = await loop.connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(reader),
            os.fdopen(stream.take_stdout(), "rb", 0, closefd=owned),
        )
        transport, protocol = await loop.connect_write_pipe(
            asyncio.streams.FlowControlMixin, os.fdopen(stream.take_stdin(), "wb", 0, closefd=owned)
        )
        self._writer = asyncio.StreamWriter(transport, protocol, None, loop)
        # No buffer: a server that writes faster than its messages are read has to wait.
        came, incoming = anyio.create_memory_object_stream[Any](0)
        outgoing, leaving = anyio.create_memory_object_stream[Any](0)
        self._streams = (came, incoming, outgoing, leaving)
        self._tasks = [
            asyncio.create_task(self._read(reader, came)),
            asyncio.create_task(self._write(leaving, came)),
        ]
        return incoming, outgoing

    async def __aexit__(self, *_: object) -> None:
        assert self._stream is not None
        # `failure` must not report an end that we cause ourselves.
        self._ended_by_us = not self.lost
        try:
            if self._writer is not None:
                self._writer.close()
            # Nobody reads any more, so a process that blocks on writing is ended as well.
            await self._stream.aclose()
        finally:
            for task in self._tasks:
                task.cancel()
            if self._reading is not None:
                self._reading.close()
            # Before the wait, which can be cancelled.
            for stream in self._streams:
                stream.close()
            await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _read(self, reader: asyncio.StreamReader, came: MemoryObjectSendStream[Any]) -> None:
        import anyio
        from mcp.shared.message import SessionMessage
        from mcp_types import jsonrpc_message_adapter

        skipped = 0
        try:
            while True:
                line = await reader.readuntil()
                try:
                    message = jsonrpc_message_adapter.validate_json(line, by_name=False)
                except ValueError:
                    if b'"jsonrpc"' in line[:_SAMPLE] and (meant := _MEANT.match(line)):
                        if meant[1] is None:
                            self.fault = "it wrote a message that is not one of MCP"
                            break
                        await came.send(SessionMessage(_unreadable(json.loads(meant[1]))))
                        continue
                    # Many servers print to standard output. That is an error only if they fail as well.
                    self._junk = self._junk or line[:_SAMPLE].strip()
                    # Lines that are here already are read without a pause, and the event loop would stand. A
                    # server that prints without end would take a whole processor of this process.
                    skipped += 1
                    await asyncio.sleep(0 if skipped <= _FREE_LINES else _PAUSE_S)
                    continue
                await came.send(SessionMessage(message))
        except asyncio.IncompleteReadError as end:
            self._junk = self._junk or end.partial[:_SAMPLE]
        except asyncio.LimitOverrunError:
            self.fault = f"it wrote a message of more than {MAX_LINE // 1024**2} MiB"
        except (OSError, anyio.BrokenResourceError, anyio.ClosedResourceError):
            pass
        finally:
            self._note_end(came)

    async def _write(
        self, leaving: MemoryObjectReceiveStream[SessionMessage], came: MemoryObjectSendStream[Any]
    ) -> None:
        assert self._writer is not None
        try:
            async for item in leaving:
                text = item.message.model_dump_json(by_alias=True, exclude_unset=True)
                self._writer.write(text.encode() + b"\n")
                await self._writer.drain()
        except OSError:
            self._note_end(came)

    def _note_end(self, came: MemoryObjectSendStream[Any]) -> None:
        self.lost = True
        self.closed.set()
        came.close()

    @property
    def stderr(self) -> str:
        """The end of the process's standard error, with secrets masked."""
        if self._stream is None:
            return ""
        text = self._redact(self._stream.stderr)
        if self._stream.stderr_cut:  # The first line may begin with a part of a secret, which no mask finds.
            text = text.partition("\n")[2] or text[_MAX_SECRET:]
        return text

    def enforcement(self) -> dict[str, Any]:
        """Return the enforcement report of the process."""
        return {} if self._stream is None else self._stream.enforcement()

    def failure(self) -> str | ToolcribError:
        """Return the reason why the connection ended, or the error of the start, or ""."""
        reason = self.fault
        if not reason and self._stream is not None and not self._ended_by_us:
            try:
                reason = self._stream.how()
            except ToolcribError as error:
                return error
        if self._junk:
            shown = self._redact(self._junk.decode(errors="replace").strip())[:_SHOWN]
            reason += f"{'; ' if reason else ''}it wrote a line that is not a message: {shown!r}"
        return reason
