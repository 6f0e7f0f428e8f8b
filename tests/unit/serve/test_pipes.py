"""Lines over descriptors."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from tests.patience import wait_for
from toolcrib.serve.mcp.pipes import LineReader, LineWriter


async def until(condition: Callable[[], bool]) -> None:
    await asyncio.to_thread(wait_for, condition, "what is waited for", pause_s=0.001)


class Recorder:
    """Records the lines of a reader."""

    def __init__(self, fd: int, limit: int = 20) -> None:
        self.lines: list[bytes] = []
        self.oversize = 0
        self.ended = False
        self.reader = LineReader(fd, self.lines.append, self._oversize, self._end, limit=limit)
        self.reader.start()

    def _oversize(self) -> None:
        self.oversize += 1

    def _end(self) -> None:
        self.ended = True


@contextmanager
def pipe() -> Iterator[tuple[int, int]]:
    read, write = os.pipe()
    try:
        yield read, write
    finally:
        for fd in (read, write):
            try:
                os.close(fd)
            except OSError:
                pass


@pytest.mark.parametrize("size", [1, 2, 3, 1000])
async def test_lines_come_whole_however_they_were_cut(size: int) -> None:
    data = b'{"a":1}\n\n  \r\n{"b":2}\r\n{"c":3}'
    with pipe() as (read, write):
        recorder = Recorder(read)
        for start in range(0, len(data), size):
            os.write(write, data[start : start + size])
            await asyncio.sleep(0)
        os.close(write)
        await until(lambda: recorder.ended)
        assert recorder.lines == [b'{"a":1}', b'{"b":2}\r', b'{"c":3}']


@pytest.mark.parametrize("size", [7, 30, 100])
async def test_a_line_too_long_is_reported_once_and_the_next_is_read(size: int) -> None:
    data = b"x" * 60 + b"\n" + b"y" * 20 + b"\n" + b"z" * 21 + b"\nend\n"
    with pipe() as (read, write):
        recorder = Recorder(read)
        for start in range(0, len(data), size):
            os.write(write, data[start : start + size])
            await asyncio.sleep(0.001)
        os.close(write)
        await until(lambda: recorder.ended)
        assert recorder.lines == [b"y" * 20, b"end"]
        assert recorder.oversize == 2


async def test_a_regular_file_is_read(tmp_path: Path) -> None:
    path = tmp_path / "in"
    path.write_bytes(b"".join(b"%d\n" % number for number in range(50_000)))
    fd = os.open(path, os.O_RDONLY)
    recorder = Recorder(fd)
    await until(lambda: recorder.ended)
    os.close(fd)
    assert recorder.lines == [b"%d" % number for number in range(50_000)]


async def test_nothing_at_all_is_read_too() -> None:
    fd = os.open(os.devnull, os.O_RDONLY)
    recorder = Recorder(fd)
    await until(lambda: recorder.ended)
    os.close(fd)
    assert recorder.lines == []


async def test_a_socket_is_read_and_written() -> None:
    ours, theirs = socket.socketpair()
    recorder = Recorder(ours.fileno())
    writer = LineWriter(ours.fileno(), lambda _: None, lambda: None)
    theirs.send(b"in\n")
    writer.write(b"out")
    await until(lambda: recorder.lines == [b"in"])
    assert theirs.recv(10) == b"out\n"
    theirs.close()
    await until(lambda: recorder.ended)
    writer.close()
    ours.close()


@pytest.mark.parametrize("kind", ["pipe", "file"])
async def test_a_paused_reader_reads_on_later(kind: str, tmp_path: Path) -> None:
    with pipe() as (read, write):
        if kind == "file":
            (tmp_path / "in").write_bytes(b"one\n")
            with (tmp_path / "in").open("rb") as file:
                os.dup2(file.fileno(), read)
        else:
            os.write(write, b"one\n")
        recorder = Recorder(read)
        recorder.reader.pause()
        for _ in range(20):
            await asyncio.sleep(0.001)
        before = list(recorder.lines)
        recorder.reader.start()
        await until(lambda: recorder.lines == [b"one"])
        recorder.reader.stop()
        assert before == [] or kind == "file"  # the thread may have read one piece before the pause


async def test_a_client_that_does_not_read_stops_nothing_and_gets_all_later() -> None:
    pressure: list[bool] = []
    with pipe() as (read, write):
        writer = LineWriter(write, pressure.append, lambda: None)
        lines = [bytes([65 + number % 26]) * 100_000 for number in range(100)]
        for line in lines:
            writer.write(line)
        assert pressure == [True]
        taken = bytearray()
        os.set_blocking(read, False)
        while len(taken) < 100 * 100_001:
            with suppress(BlockingIOError):
                taken += os.read(read, 1 << 20)
            await asyncio.sleep(0)
        assert taken.splitlines() == lines
        await writer.flush(60)
        assert pressure == [True, False]
        assert not writer.congested
        writer.close()


async def test_writing_leaves_the_shared_descriptor_blocking() -> None:
    with pipe() as (_, write):
        writer = LineWriter(write, lambda _: None, lambda: None)
        assert os.get_blocking(write)
        writer.close()
    ours, theirs = socket.socketpair()
    writer = LineWriter(ours.fileno(), lambda _: None, lambda: None)
    writer.close()
    assert os.get_blocking(ours.fileno())
    ours.close()
    theirs.close()


@pytest.mark.parametrize("full", [False, True])
async def test_a_client_that_has_gone_is_reported_once(full: bool) -> None:
    broken: list[bool] = []
    with pipe() as (read, write):
        writer = LineWriter(write, lambda _: None, lambda: broken.append(True))
        if full:
            writer.write(b"x" * 1_000_000)
        os.close(read)
        writer.write(b"one")
        await until(lambda: broken == [True])
        writer.write(b"two")
        await writer.flush(60)
        writer.close()
        assert broken == [True]


async def test_a_regular_file_is_written_at_its_end(tmp_path: Path) -> None:
    path = tmp_path / "out"
    path.write_bytes(b"before\n")
    fd = os.open(path, os.O_WRONLY | os.O_APPEND)
    writer = LineWriter(fd, lambda _: None, lambda: None)
    writer.write(b"after")
    writer.close()
    os.close(fd)
    assert path.read_bytes() == b"before\nafter\n"


async def test_flush_does_not_wait_for_ever() -> None:
    with pipe() as (_, write):
        writer = LineWriter(write, lambda _: None, lambda: None)
        writer.write(b"x" * 1_000_000)
        await writer.flush(0.01)
        assert writer.congested
        writer.close()
