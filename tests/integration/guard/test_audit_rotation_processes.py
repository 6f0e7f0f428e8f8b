"""Rotation and the anchor with real processes: killed at every step, and eight at once, some killed."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

from tests.commands import Forked, complete
from tests.patience import wait_for
from toolcrib.guard import AuditLog, parse
from toolcrib.guard.audit.check import verify
from toolcrib.guard.audit.files import rotated_files

# Every call into the kernel that changes something counts; before the one with the given number the process
# ends as by kill -9.
KILLED = textwrap.dedent("""
    import os, signal, sys
    from pathlib import Path
    from toolcrib.guard import AuditLog
    from toolcrib.guard.audit import anchor, log as audit

    left = int(sys.argv[2])

    def counted(function):
        def call(*args, **options):
            global left
            left -= 1
            if left < 0:
                os.kill(os.getpid(), signal.SIGKILL)
            return function(*args, **options)
        return call

    log = AuditLog(Path(sys.argv[1]), Path(sys.argv[1]).parents[1] / "head", max_bytes=400)
    for name in ("open", "rename", "close", "ftruncate"):
        setattr(os, name, counted(getattr(os, name)))
    audit.flock = counted(audit.flock)
    audit.write = counted(audit.write)
    anchor.pwrite = counted(anchor.pwrite)
    for number in range(0, 6, 2):
        start = log.start(f" name=victim number={number}")
        log.append("TOOL_EXECUTED", f" name=victim number={number + 1} start={start}")
        sys.stdout.write(f"{number}\\n{number + 1}\\n")
        sys.stdout.flush()
    print("done")
""")


def test_a_kill_at_any_step_of_a_rotation_leaves_a_chain_that_holds(tmp_path: Path) -> None:
    steps = 0
    while True:
        folder = tmp_path / str(steps)
        path, anchor = folder / "audit" / "tools.log", folder / "head"
        with AuditLog(path, anchor, max_bytes=400) as log:
            log.record("TOOL_EXECUTED", name="before")
        command = [sys.executable, "-c", KILLED, str(path), str(steps)]
        done = complete(command, capture_output=True, text=True, check=False)
        assert verify(path, anchor=anchor).ok, (steps, verify(path, anchor=anchor))
        with AuditLog(path, anchor, max_bytes=400) as log:
            log.record("TOOL_EXECUTED", name="after")
        verdict = verify(path, anchor=anchor)
        assert verdict.ok, (steps, verdict)
        assert verdict.anchor == verdict.head
        assert set(verdict.notices) <= {"AUDIT_ROTATED"}
        starts = [entry.seq for entry in entries(path) if entry.event == "TOOL_STARTED"]
        ended = [entry.fields["start"] for entry in entries(path) if "start" in entry.fields]
        assert [start.seq for start in verdict.interrupted] == [seq for seq in starts if seq not in ended]
        assert len(verdict.interrupted) <= 1
        acknowledged = [int(line) for line in done.stdout.split() if line != "done"]
        there = [entry.fields["number"] for entry in entries(path) if "number" in entry.fields]
        assert there[: len(acknowledged)] == acknowledged
        assert len(there) <= len(acknowledged) + 2
        if done.returncode == 0:
            assert done.stdout.endswith("done\n")
            break
        assert done.returncode == -signal.SIGKILL, done.stderr
        steps += 1
    assert steps > 30  # several rotations, each of several steps


def entries(path: Path) -> list:  # type: ignore[type-arg]
    parts = [part for _, _, part in rotated_files(path)]
    return [
        parse(line) for part in [*parts, path] if part.exists() for line in part.read_bytes().splitlines()
    ]


WRITER = textwrap.dedent("""
    import os, sys
    from pathlib import Path
    from toolcrib.guard import AuditLog

    path, name, count = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
    log = AuditLog(path, path.parents[1] / "head", max_bytes=20_000, lock_timeout=600)
    os.write(1, b"ready\\n")
    sys.stdin.readline()
    for number in range(count):
        log.record("TOOL_EXECUTED", name=name, number=number, params={"text": "x" * (number % 700)})
        os.write(1, b"%d\\n" % number)
""")


def test_eight_processes_some_killed_lose_and_tear_no_acknowledged_line(tmp_path: Path) -> None:
    path, each = tmp_path / "audit" / "tools.log", 400
    outputs = [tmp_path / f"acknowledged{n}" for n in range(8)]
    writers = []
    for n, output in enumerate(outputs):
        count = 10_000_000 if n >= 5 else each  # The last three write until they are killed.
        with output.open("wb") as file:
            command = [sys.executable, "-c", WRITER, str(path), f"w{n}", str(count)]
            writers.append(Forked(command, stdin=subprocess.PIPE, stdout=file))
    wait_for(lambda: all(output.read_bytes() == b"ready\n" for output in outputs), "the writers")
    for writer in writers:
        assert writer.stdin is not None
        writer.stdin.write(b"\n")
        writer.stdin.flush()
    for writer, output in zip(writers[5:], outputs[5:], strict=True):
        while output.read_bytes().count(b"\n") < 100:
            time.sleep(random.uniform(0, 0.01))
        writer.kill()
    for writer in writers:
        writer.communicate()
    assert [writer.returncode for writer in writers] == [0] * 5 + [-signal.SIGKILL] * 3

    with AuditLog(path, tmp_path / "head") as log:
        log.record("TOOL_EXECUTED", name="after")
    verdict = verify(path, anchor=tmp_path / "head")
    assert verdict.ok, verdict
    assert verdict.notices.keys() <= {"AUDIT_ROTATED", "AUDIT_RECOVERED"}
    assert verdict.notices["AUDIT_ROTATED"] > 20
    there = entries(path)
    assert [entry.seq for entry in there] == list(range(1, len(there) + 1))
    for n, output in enumerate(outputs):
        mine = [entry.fields["number"] for entry in there if entry.fields.get("name") == f"w{n}"]
        acknowledged = [
            int(line) for line in output.read_bytes().splitlines(keepends=True)[1:] if line[-1:] == b"\n"
        ]
        assert mine[: len(acknowledged)] == acknowledged
        assert len(mine) <= len(acknowledged) + 1
        assert n >= 5 or len(mine) == each
