"""How a confined command begins, writes and ends, and that nothing of it stays."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import subprocess
import sys
import uuid
from pathlib import Path
from typing import Any

import pytest

from tests.descriptors import descriptors
from tests.integration.sandbox.ground import PATH, Ground, eventually, processes_with, said
from tests.patience import GROWING_MS
from toolcrib.errors import InvalidInput, ToolUnavailable, UsageError
from toolcrib.sandbox import Completed, Confinement, run
from toolcrib.sandbox.host.pool import shared

SOURCE = str(Path(__file__).parents[3] / "src")


HOLD = r"sh -c while\ :\;do\ sleep\ 1\;done MARKER"
"""A process that stays, with a mark on its command line; fit for any quotes around it."""


def job(*argv: str, **more: Any) -> Confinement:
    more.setdefault("env", {"PATH": PATH})
    more.setdefault("cwd", "/tmp")
    more.setdefault("timeout_ms", 120_000)
    return Confinement(argv=argv, **more)


async def sh(script: str, **more: Any) -> Completed:
    return await run(job("/bin/sh", "-c", script, **more))


@pytest.fixture
def marker() -> str:
    """Stands in a command line of a confined process, to find it in the machine's list."""
    return f"marker-{uuid.uuid4().hex}"


async def there(marker: str) -> bool:
    return await asyncio.to_thread(eventually, lambda: processes_with(marker))


async def test_streams_exit_code_and_stdin() -> None:
    done = await sh("cat; echo err >&2; exit 7", stdin=b"in\x00put")
    assert (done.exit_code, done.signal, done.timed_out) == (7, None, False)
    assert (done.stdout, done.stderr) == (b"in\x00put", b"err\n")
    assert (done.stdout_total, done.stderr_total) == (6, 4)
    assert done.duration_ms > 0


async def test_stdin_is_empty_unless_given() -> None:
    assert (await sh("cat; readlink /proc/self/fd/0")).stdout == b"/dev/null\n"


async def test_large_stdin_and_output() -> None:
    data = os.urandom(3_000_000)
    done = await run(job("cat", stdin=data, output_limit=4_000_000))
    assert done.stdout == data


async def test_a_command_that_does_not_read_its_input_ends() -> None:
    assert (await sh("exit 0", stdin=b"x" * 3_000_000)).exit_code == 0


async def test_a_signal_is_told_from_an_exit_code() -> None:
    done = await sh("kill -SEGV $$")
    assert (done.exit_code, done.signal) == (None, signal.SIGSEGV)


async def test_exit_code_124_is_no_timeout() -> None:
    done = await sh("exit 124")
    assert (done.exit_code, done.timed_out) == (124, False)


async def test_broken_pipes_end_a_command_as_usual() -> None:
    assert (await sh("yes | head -1")).stdout == b"y\n"


async def test_arguments_and_variables_arrive_as_they_are() -> None:
    odd = ["", " ", "a b", "$HOME", "'\"", "\n", "-x", "ü", os.fsdecode(b"\xff\xfe")]
    done = await run(job("printf", "%s\\0", *odd, env={"PATH": PATH, "ODD": os.fsdecode(b"\xff")}))
    assert done.stdout == b"".join(os.fsencode(arg) + b"\0" for arg in odd)


async def test_the_result_channel_is_apart_from_the_output() -> None:
    done = await sh("echo out; printf result >&3", result_limit=4)
    assert (done.stdout, done.result, done.result_total) == (b"out\n", b"resu", 6)


async def test_the_report_says_what_holds_and_what_does_not() -> None:
    report = (await sh(":")).enforcement
    assert report["level"] in ("full", "full+cgroup")
    assert report["fs"].startswith("mountns+landlock")
    assert report["net"] == "netns+seccomp"
    held = report["level"] == "full+cgroup"
    assert (report["limits"]["memory"] == "not enforced") is not held
    without = "not enforced" if os.geteuid() == 0 else "rlimit (user namespace)"
    assert (report["limits"]["processes"] == without) is not held
    assert ("cgroup" in report.get("missing", "")) is not held
    assert "exceeded" not in report
    assert "unprotected" not in report


# What cannot be run


async def test_a_command_that_does_not_exist() -> None:
    with pytest.raises(ToolUnavailable, match="no-such-command: not found") as caught:
        await run(job("no-such-command"))
    assert caught.value.details["path"] == "no-such-command"
    with pytest.raises(ToolUnavailable, match="/usr/bin/no-such: not found"):
        await run(job("/usr/bin/no-such"))


async def test_files_that_cannot_be_run(ground: Ground) -> None:
    project = ground.project
    for name, text, mode, reason in (
        ("plain", "#!/bin/sh\n", 0o644, "not executable"),
        ("text", "just words\n", 0o755, "neither a program nor a script"),
        ("lost", "#!/no/such/interpreter\n", 0o755, "interpreter"),
        ("empty", "", 0o755, "neither a program nor a script"),
    ):
        (project / name).write_text(text)
        (project / name).chmod(mode)
        with pytest.raises(ToolUnavailable, match=f"{name}: .*{reason}"):
            await run(job(f"./{name}", cwd=str(project), read=(str(project),)))
    with pytest.raises(ToolUnavailable, match="not executable"):
        await run(job("./src", cwd=str(project), read=(str(project),)))


async def test_a_failed_start_writes_nothing_and_says_so_apart() -> None:
    with pytest.raises(ToolUnavailable) as caught:
        await run(job("no-such-command", env={}))
    assert caught.value.hint is not None


@pytest.mark.parametrize(
    "wrong",
    [
        {"argv": ("true", "nul\0")},
        {"argv": ("true", "\ud800")},
        {"env": {"A": "nul\0"}},
        {"argv": ("true", "x" * 200_000)},
    ],
    ids=["nul argument", "surrogate", "nul variable", "too long"],
)
async def test_what_no_process_can_be_given(wrong: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput):
        await run(Confinement(**{"argv": ("true",), "cwd": "/", **wrong}))


@pytest.mark.parametrize(
    "wrong",
    [
        {"argv": ()},
        {"argv": ("",)},
        {"env": {"A=B": "x"}},
        {"timeout_ms": 0},
        {"output_limit": -1},
        {"cwd": "relative"},
        {"read": ("/usr/../etc",)},
        {"write": ("",)},
    ],
)
async def test_jobs_put_wrongly(wrong: dict[str, Any]) -> None:
    with pytest.raises(UsageError):
        await run(Confinement(**{"argv": ("true",), "cwd": "/", **wrong}))


# Floods


@pytest.mark.parametrize("stream", ["1", "2", "3"])
async def test_a_flood_is_read_counted_and_thrown_away(stream: str) -> None:
    done = await sh(f"head -c 67108864 /dev/zero >&{stream}", output_limit=1000, result_limit=1000)
    kept = {"1": done.stdout, "2": done.stderr, "3": done.result}[stream]
    total = {"1": done.stdout_total, "2": done.stderr_total, "3": done.result_total}[stream]
    assert kept == bytes(1000)
    assert total == 67_108_864


async def test_a_limit_of_nothing_keeps_nothing() -> None:
    done = await sh("echo x", output_limit=0)
    assert (done.stdout, done.stdout_total) == (b"", 2)


async def test_an_endless_flood_neither_blocks_the_loop_nor_outlives_its_time() -> None:
    ticks = 0

    async def tick() -> None:
        nonlocal ticks
        while True:
            await asyncio.sleep(0.01)
            ticks += 1

    ticking = asyncio.create_task(tick())
    for limit_ms in GROWING_MS:
        ticks = 0
        done = await run(job("yes", timeout_ms=limit_ms))
        if ticks > 10 and done.stdout_total > 1_048_576:
            break
    else:
        raise AssertionError("no limit is long enough")
    ticking.cancel()
    assert done.timed_out
    assert len(done.stdout) == 1_048_576
    assert done.stdout_total > 1_048_576
    assert ticks > 10


# Ends


@pytest.mark.parametrize(
    "script",
    [
        "HOLD",
        "trap '' TERM; HOLD",
        "setsid sh -c 'trap \"\" TERM HUP; HOLD' & HOLD",
        "(setsid setsid HOLD &) ; HOLD",
        "sh -c 'kill -STOP $$' MARKER & HOLD",
        "sh -c 'kill -STOP $$' MARKER",
        "kill -STOP $$",
        "HOLD >/dev/null 2>&1 </dev/null & HOLD",
    ],
    ids=["plain", "deaf", "deaf daemon", "double fork", "stopped child", "stopped", "stops itself", "orphan"],
)
async def test_nothing_survives_the_timeout(script: str, marker: str) -> None:
    text = script.replace("HOLD", HOLD).replace("MARKER", marker)
    for limit_ms in GROWING_MS:
        task = asyncio.create_task(run(job("/bin/sh", "-c", text, marker, timeout_ms=limit_ms)))
        while not (seen := processes_with(marker)) and not task.done():  # noqa: ASYNC110 - of another process
            await asyncio.sleep(0.01)
        done = await task
        if seen:
            break
    else:
        raise AssertionError("no limit is long enough")
    assert done.timed_out
    assert not processes_with(marker)


async def test_a_command_that_obeys_may_finish_at_its_timeout() -> None:
    for limit_ms in GROWING_MS:
        done = await sh("trap 'echo bye; exit 3' TERM; while :; do sleep 0.05; done", timeout_ms=limit_ms)
        if done.stdout:
            break
    else:
        raise AssertionError("no limit is long enough")
    assert done.timed_out
    assert (done.exit_code, done.stdout) == (3, b"bye\n")


async def test_children_end_with_the_command(marker: str) -> None:
    hold = HOLD.replace("MARKER", marker)
    done = await sh(f"setsid {hold} & until grep -q {marker} /proc/$!/cmdline; do :; done; echo main")
    assert (done.exit_code, done.stdout) == (0, b"main\n")
    assert not processes_with(marker)


async def test_a_timeout_during_set_up() -> None:
    done = await run(job("sleep", "600", timeout_ms=1))
    assert done.timed_out


async def test_cancelling_kills_at_once(marker: str) -> None:
    hold = HOLD.replace("MARKER", marker)
    task = asyncio.create_task(sh(f"trap '' TERM; setsid {hold} & {hold}", timeout_ms=60_000))
    assert await asyncio.to_thread(eventually, lambda: len(processes_with(marker)) == 3)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert not processes_with(marker)


async def test_cancelling_before_anything_runs() -> None:
    for steps in range(4):
        task = asyncio.create_task(run(job("sleep", "60")))
        for _ in range(steps):
            await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task


SERVER = """
import asyncio, sys
from toolcrib.sandbox import Confinement, run
script = "trap '' TERM HUP INT; setsid HOLD & HOLD".replace("HOLD", sys.argv[1])
asyncio.run(run(Confinement(argv=("/bin/sh", "-c", script), cwd="/", timeout_ms=60_000)))
"""


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM], ids=["kill -9", "terminated"])
def test_a_dead_server_leaves_no_command(marker: str, how: signal.Signals) -> None:
    argv = [sys.executable, "-c", SERVER, HOLD.replace("MARKER", marker)]
    with subprocess.Popen(argv, env={"PYTHONPATH": SOURCE}) as server:
        try:
            # The server itself, and in its sandbox a shell and two more.
            assert eventually(lambda: len(processes_with(marker)) == 4)
            server.send_signal(how)
            server.wait()
        finally:
            server.kill()
    assert eventually(lambda: not processes_with(marker))


# Many


async def test_many_at_once() -> None:
    done = await asyncio.gather(*(sh(f"echo {n}") for n in range(20)))
    assert [int(one.stdout) for one in done] == list(range(20))


def open_now() -> int:
    """Open descriptors, but for what is kept for the next calls."""
    shared().drop_spares()
    return descriptors()


def launchers() -> set[int]:
    mine = re.compile(rf"^PPid:\t{os.getpid()}$", re.MULTILINE)
    found = set()
    for pid in processes_with("launcher"):
        try:
            if mine.search(Path(f"/proc/{pid}/status").read_text()):
                found.add(pid)
        except OSError:  # It has just ended.
            continue
    return found


async def test_nothing_leaks() -> None:
    async def some() -> None:
        await asyncio.gather(*(sh("echo x; exit 1", stdin=b"x") for _ in range(5)))
        with pytest.raises(ToolUnavailable):
            await run(job("no-such-command"))

    for _ in range(3):
        await some()
    before, running = open_now(), launchers()
    for _ in range(4):
        await some()
    assert await asyncio.to_thread(eventually, lambda: open_now() <= before)
    assert launchers() == running


async def test_it_runs_in_any_thread() -> None:
    done = await asyncio.to_thread(lambda: asyncio.run(sh("echo thread")))
    assert done.stdout == b"thread\n", said(done)
