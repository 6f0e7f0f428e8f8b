"""A watched command's life: started, stopped, killed; what is not in `claims`, which both users try."""

from __future__ import annotations

import asyncio
import os
import shutil
from pathlib import Path

import pytest

from tests.conftest import need
from tests.descriptors import under_way
from tests.integration.sandbox.ground import Ground, eventually, processes_with, python, said, shell
from tests.patience import GROWING_MS
from toolcrib.sandbox import Confinement, run
from toolcrib.sandbox.host.pool import shared
from toolcrib.sandbox.tracing.watch import Seen


def test_a_compiler_is_there_for_the_static_program() -> None:
    need("gcc", shutil.which("gcc") is not None)


def listeners() -> int:
    """Descriptors of this process that watched commands tell of their calls by."""
    found = 0
    for fd in Path("/proc/self/fd").iterdir():
        try:
            found += "seccomp" in str(fd.readlink())
        except OSError:
            continue
    return found


def test_nothing_is_left_open_and_no_spare_is_used(ground: Ground) -> None:
    seen: list[Seen] = []
    for _ in range(4):
        shell(ground, "true")
    ready = shared().waiting()
    watched = Confinement(argv=("/bin/sh", "-c", "true"), cwd="/tmp", watch=seen.append)
    before = listeners()
    for _ in range(3):
        assert asyncio.run(run(watched)).exit_code == 0
    assert shared().waiting() >= ready
    assert listeners() == before == 0
    assert [one.path for one in seen].count("/bin/sh") == 3


def test_descriptors_under_way_elsewhere_stop_no_watched_command(ground: Ground) -> None:
    """The kernel counts descriptors in unread messages for each user; 700 are more than a tool may open."""
    with under_way(700):
        watched = Confinement(argv=("/bin/sh", "-c", "true"), cwd="/tmp", watch=lambda _: None)
        assert asyncio.run(run(watched)).exit_code == 0


def test_a_time_limit_ends_a_watched_command(ground: Ground) -> None:
    seen: list[Seen] = []
    script = "trap '' TERM; while :; do test -e /usr/no-such-canary-watched; done"
    for limit_ms in GROWING_MS:
        done = shell(ground, script, timeout_ms=limit_ms, watch=seen.append)
        if seen:
            break
    else:
        raise AssertionError("no limit is long enough")
    assert done.timed_out
    assert "/usr/no-such-canary-watched" in {one.path for one in seen}
    assert eventually(lambda: not processes_with("no-such-canary-watched"))


async def test_a_cancelled_watched_command_is_gone(ground: Ground) -> None:
    begun = asyncio.Event()
    script = "while :; do test -e /usr/canary-cancelled; done"
    job = Confinement(
        argv=("/bin/sh", "-c", script),
        cwd="/tmp",
        watch=lambda one: begun.set() if "canary-cancelled" in one.path else None,
    )
    task = asyncio.create_task(run(job))
    await begun.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert not processes_with("canary-cancelled")


def test_paths_that_are_no_text_do_no_harm(ground: Ground) -> None:
    seen: list[Seen] = []
    name = os.fsdecode(b"bad-\xff\n\x1b[31m")
    script = f"cat '{name}'; cat {'d/' * 3000}x; cat ''; true"
    done = shell(ground, script, watch=seen.append)
    assert done.exit_code == 0
    assert f"/tmp/{name}" in {one.path for one in seen}


def test_a_program_that_takes_signals_gets_on_and_is_seen() -> None:
    code = (
        "import signal, os\n"
        "def look(path):\n"
        "    while True:\n"
        "        try: os.stat(path)\n"
        "        except InterruptedError: continue\n"
        "        except FileNotFoundError: return\n"
        "signal.signal(signal.SIGALRM, lambda *_: None)\n"
        "signal.setitimer(signal.ITIMER_REAL, 0.0005, 0.0005)\n"
        "for n in range(300): look(f'/usr/n{n}')\n"
        "signal.setitimer(signal.ITIMER_REAL, 0, 0)\n"
        "print('done')\n"
    )
    seen: list[Seen] = []
    done = python(code, watch=seen.append)
    assert done.stdout == b"done\n", said(done)
    assert {f"/usr/n{n}" for n in range(300)} <= {one.path for one in seen}


def test_paths_through_a_process_s_own_places_are_told_as_what_they_lead_to(ground: Ground) -> None:
    seen: list[Seen] = []
    script = "cat /proc/self/cwd/file; exec 4<file; cat /proc/self/fd/4 /dev/fd/4"
    done = Confinement(
        argv=("/bin/sh", "-c", script),
        cwd=str(ground.project),
        read=(str(ground.project),),
        watch=seen.append,
    )
    (ground.project / "file").write_text("x")
    assert asyncio.run(run(done)).exit_code == 0
    told = [one.path for one in seen if one.call in ("open", "openat") and one.path.endswith("/file")]
    assert told == [str(ground.project / "file")] * 4


def test_a_unix_socket_s_path_is_told(ground: Ground) -> None:
    seen: list[Seen] = []
    code = "import socket; socket.socket(socket.AF_UNIX).bind('sock')"
    project = str(ground.project)
    python(code, watch=seen.append, cwd=project, write=(project,), network="host")
    assert ("bind", "make", str(ground.project / "sock")) in seen
