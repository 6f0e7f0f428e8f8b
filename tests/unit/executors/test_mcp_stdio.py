"""The transport of MCP over pipes."""

from __future__ import annotations

import asyncio
import io
import os
from collections.abc import Callable
from typing import Any

import pytest
import uvloop

from toolcrib.executors.mcp.process.stdio import StdioLink

MESSAGE = b'{"jsonrpc": "2.0", "method": "notifications/tools/list_changed"}\n'


class Written:
    """A process that has written these lines."""

    def __init__(self, lines: bytes) -> None:
        self.stdout, writer = os.pipe()
        os.write(writer, lines)
        os.close(writer)
        self.reader, self.stdin = os.pipe()

    def take_stdout(self) -> int:
        return self.stdout

    def take_stdin(self) -> int:
        return self.stdin

    async def aclose(self) -> None:
        os.close(self.reader)


@pytest.mark.parametrize("run", [asyncio.run, uvloop.run])
def test_a_pipe_is_closed_once(run: Callable[[Any], None], monkeypatch: pytest.MonkeyPatch) -> None:
    process, late = Written(MESSAGE), list[int]()

    class File(io.FileIO):
        def close(self) -> None:
            # By now the number of a closed descriptor may be that of another thread's file.
            if not self.closed and self.closefd and not is_open(self.fileno()):
                late.append(self.fileno())
            super().close()

    async def start() -> Any:
        return process

    async def use() -> None:
        async with StdioLink(start) as (incoming, _):
            await incoming.receive()
        while is_open(process.stdout) or is_open(process.stdin):  # noqa: ASYNC110
            await asyncio.sleep(0)

    monkeypatch.setattr(os, "fdopen", lambda fd, mode, _, **more: File(fd, mode, **more))
    run(use())
    assert late == []


def is_open(fd: int) -> bool:
    try:
        os.fstat(fd)
    except OSError:
        return False
    return True


async def test_lines_that_are_no_messages_leave_the_event_loop_to_others() -> None:
    turns = 0

    async def take_turns() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    async def start() -> Any:
        return Written(b"x\n\n" * 400 + MESSAGE)

    async with StdioLink(start) as (incoming, _):
        others = asyncio.create_task(take_turns())
        assert (await incoming.receive()).message.method == "notifications/tools/list_changed"
        others.cancel()
    assert turns >= 800


async def test_a_server_that_prints_without_end_leaves_the_processor_to_others() -> None:
    async def start() -> Any:
        return Written(b"\n" * 1_300 + MESSAGE)

    loop = asyncio.get_running_loop()
    async with StdioLink(start) as (incoming, _):
        began = loop.time()
        assert (await incoming.receive()).message.method == "notifications/tools/list_changed"
    assert loop.time() - began > 0.29  # A pause of a millisecond after each line beyond 1,000.


async def test_its_streams_are_closed_also_if_its_end_is_cancelled() -> None:
    async def start() -> Any:
        return Written(MESSAGE)

    link = StdioLink(start)
    incoming, _ = await link.__aenter__()
    ending = asyncio.create_task(link.__aexit__())
    await asyncio.sleep(0)
    ending.cancel()
    await asyncio.wait([ending])
    assert (ending.cancelled(), incoming.statistics().open_receive_streams) == (True, 0)
