"""MCP over standard input and output: one client, the process that started this one."""

from __future__ import annotations

import asyncio
import fcntl
import os
import signal
import stat
import sys
from contextlib import ExitStack
from functools import partial

from toolcrib.core.signals import stopping
from toolcrib.serve.mcp.connection import Connection
from toolcrib.serve.mcp.lists import DEFAULT_PAGE_SIZE
from toolcrib.serve.mcp.pipes import LineReader, LineWriter
from toolcrib.serve.mcp.request import LOCAL_USER, Sender
from toolcrib.serve.mcp.settings import ServerSettings
from toolcrib.spec import Catalog

MAX_LINE = 16 << 20
"""Bytes of the longest message."""

_FLUSH_S = 1.0
_GRACE_S = 1.0
"""Seconds that running calls get to end after the client has gone, or SIGTERM or SIGINT came."""


async def serve_stdio(
    catalog: Catalog,
    *,
    name: str = "toolcrib",
    version: str = "0",
    instructions: str | None = None,
    page_size: int = DEFAULT_PAGE_SIZE,
) -> int:
    """Serve `catalog` on this process's standard input and output until the client goes. Return 0.

    `name`, `version` and `instructions` describe the server to its client; `page_size` is the number of tools
    in one page of `tools/list`.
    """
    return await serve_pipes(catalog, ServerSettings(name, version, instructions, page_size))


async def serve_pipes(catalog: Catalog, settings: ServerSettings, sender: Sender = LOCAL_USER) -> int:
    """Serve `catalog` to `sender` on this process's standard input and output until it goes. Return 0.

    Meanwhile descriptor 1 leads to standard error and descriptor 0 to nothing, so neither a tool's `print`
    nor a child process can write or read between the messages.
    """
    ended = asyncio.Event()

    def left() -> None:
        # Some clients fail if anything comes once they have left. The end of a file is no sign of that.
        if not stat.S_ISREG(os.fstat(source).st_mode):
            writer.finish()
        ended.set()

    with ExitStack() as undo:
        output, source = _divert_output(undo), _divert_input(undo)
        writer = LineWriter(
            output, on_pressure=lambda on: reader.pause() if on else reader.start(), on_broken=ended.set
        )
        undo.callback(writer.close)
        connection = Connection(catalog, writer.write, settings, congested=lambda: writer.congested)
        reader = LineReader(
            source,
            partial(connection.receive, sender=sender),
            lambda: connection.receive_oversize(MAX_LINE),
            left,
            limit=MAX_LINE,
        )
        undo.callback(reader.stop)
        undo.enter_context(stopping(ended.set, (signal.SIGTERM, signal.SIGINT)))
        reader.start()
        try:
            await ended.wait()
        finally:
            # No new calls, then the answers of the running ones, if somebody reads them, then their bytes.
            reader.stop()
            await connection.drain(_GRACE_S)
            await writer.flush(_FLUSH_S)
    return 0


def _divert_output(undo: ExitStack) -> int:
    """Return a private descriptor of standard output. Until `undo`, descriptor 1 is standard error."""
    # Text printed so far belongs to standard output, and must not move to standard error.
    sys.stdout.flush()
    # Not below 3: the numbers of the standard streams may be free if one of them is closed.
    private = fcntl.fcntl(1, fcntl.F_DUPFD_CLOEXEC, 3)
    undo.callback(os.close, private)
    try:
        os.dup2(2, 1)
    except OSError:  # standard error is closed
        _point(1, os.O_WRONLY)

    def restore() -> None:
        # Text that tools printed meanwhile goes to standard error, before descriptor 1 changes back.
        sys.stdout.flush()
        os.dup2(private, 1)

    undo.callback(restore)
    return private


def _divert_input(undo: ExitStack) -> int:
    """Return a private descriptor of standard input. Until `undo`, descriptor 0 reads nothing."""
    private = fcntl.fcntl(0, fcntl.F_DUPFD_CLOEXEC, 3)
    undo.callback(os.close, private)
    _point(0, os.O_RDONLY)
    undo.callback(os.dup2, private, 0)
    return private


def _point(fd: int, flags: int) -> None:
    null = os.open(os.devnull, flags)
    os.dup2(null, fd)
    os.close(null)
