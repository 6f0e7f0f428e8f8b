"""A confined command that stays: its pipes, its end, and how it is told."""

from __future__ import annotations

import asyncio
import os
import time
from pathlib import Path

import pytest

from tests.integration.sandbox.ground import eventually
from tests.patience import patient
from toolcrib.errors import ToolUnavailable, UsageError
from toolcrib.sandbox import Confinement
from toolcrib.sandbox.stream import Stream, open_stream


def job(*argv: str, **more: object) -> Confinement:
    return Confinement(argv=argv, cwd="/tmp", env={"PATH": "/usr/bin:/bin"}, **more)  # type: ignore[arg-type]


def descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


async def read(stream: Stream, end: bytes) -> bytes:
    got = b""
    deadline = time.monotonic() + patient(60)
    while not got.endswith(end):
        assert time.monotonic() < deadline, got
        try:
            got += os.read(stream.stdout, 65_536)
        except BlockingIOError:
            await asyncio.sleep(0.01)
    return got


async def test_it_answers_as_long_as_it_is_wanted() -> None:
    stream = await open_stream(job("cat", timeout_ms=1, output_limit=1))
    for n in range(20):
        line = b"x" * 4_000 + b"%d\n" % n
        os.write(stream.stdin, line)
        assert await read(stream, b"%d\n" % n) == line
    assert stream.how() == ""
    await stream.aclose()
    assert stream.how() == "it ended with exit code 0"
    assert stream.stdin == stream.stdout == -1


async def test_the_end_of_its_standard_error_is_kept() -> None:
    script = 'i=0; while [ $i -lt 20000 ]; do echo "line $i" >&2; i=$((i+1)); done; exit 7'
    stream = await open_stream(job("sh", "-c", script))
    await asyncio.wait_for(stream.ended, patient(30))
    await stream.aclose()
    assert stream.stderr.endswith("line 19999\n")
    assert len(stream.stderr) <= 65_536
    assert stream.how() == "it ended with exit code 7"


async def test_a_signal_without_a_name_is_reported_by_its_number() -> None:
    stream = await open_stream(job("sh", "-c", "kill -40 $$"))
    await asyncio.wait_for(stream.ended, patient(30))
    await stream.aclose()
    assert stream.how() == "it was ended by signal 40"


async def test_one_that_does_not_want_to_end_is_ended_with_its_tree() -> None:
    stream = await open_stream(job("sh", "-c", "trap '' TERM; sleep 600 & sleep 600; echo; sleep 600"))
    await stream.aclose(0.2)
    assert "SIG" in stream.how()


async def test_cancelling_its_end_ends_it_at_once() -> None:
    stream = await open_stream(job("sh", "-c", "trap '' TERM; sleep 600; sleep 600"))
    closing = asyncio.create_task(stream.aclose(600))
    await asyncio.sleep(0.05)
    closing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(closing, patient(60))
    assert stream.ended.done()


async def test_what_cannot_start_says_why() -> None:
    stream = await open_stream(job("no-such-program"))
    await asyncio.wait_for(stream.ended, patient(60))
    await stream.aclose()
    for _ in range(2):
        with pytest.raises(ToolUnavailable, match="no-such-program: not found"):
            stream.how()
    with pytest.raises(UsageError, match="no command"):
        await open_stream(Confinement(argv=(), cwd="/tmp"))


async def test_it_is_confined_like_any_other(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("s")
    name = f"mine-{os.getpid()}"
    script = f"cat {secret} 2>&1; echo x > /tmp/{name} && cat /tmp/{name}; ls /proc | grep -c '^[0-9]'"
    stream = await open_stream(job("sh", "-c", f"{script}; echo end"))
    told = (await read(stream, b"end\n")).decode()
    assert "No such file" in told
    assert "\nx\n" in told
    assert stream.enforcement()["level"].startswith("full")
    await stream.aclose()
    assert name not in os.listdir("/tmp")


async def test_no_descriptor_is_left() -> None:
    async def once() -> None:
        stream = await open_stream(job("cat"))
        await stream.aclose()

    await once()
    before = descriptors()
    for _ in range(5):
        await once()
    # A launcher may keep a spare ready: its socket and pidfd.
    assert await asyncio.to_thread(eventually, lambda: descriptors() <= before + 4)
