"""The audit log with real processes, real crashes and a disk that is really full."""

from __future__ import annotations

import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

from tests.commands import Forked
from tests.conftest import need
from toolcrib.guard import AuditLog, parse
from toolcrib.guard.audit.check import verify

WRITER = textwrap.dedent("""
    import sys
    from pathlib import Path
    from toolcrib.guard import AuditLog

    path, name, count = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
    log = AuditLog(path, lock_timeout=600)
    print("ready", flush=True)
    sys.stdin.readline()
    for number in range(count):
        log.record("TOOL_EXECUTED", name=name, number=number, params={"text": "x" * (number % 700)})
        if count > 10_000 and number % 50 == 0:
            print(number, flush=True)
""")


def start_writer(path: Path, name: str, count: int) -> Forked:
    return Forked(
        [sys.executable, "-c", WRITER, str(path), name, str(count)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def go(writers: list[Forked]) -> None:
    for writer in writers:
        assert writer.stdout is not None
        assert writer.stdout.readline() == "ready\n"
    for writer in writers:
        assert writer.stdin is not None
        writer.stdin.write("\n")
        writer.stdin.flush()


def finish(writers: list[Forked]) -> list[int]:
    codes = []
    for writer in writers:
        writer.communicate()
        codes.append(writer.returncode)
    return codes


def test_eight_processes_lose_and_tear_no_line(tmp_path: Path) -> None:
    path, each = tmp_path / "audit" / "tools.log", 1_000
    writers = [start_writer(path, f"w{n}", each) for n in range(8)]
    go(writers)
    assert finish(writers) == [0] * 8

    verdict = verify(path)
    assert verdict.ok
    assert verdict.lines == verdict.head.seq == 8 * each
    assert verdict.notices == {}
    entries = [parse(line) for line in path.read_bytes().splitlines()]
    for n in range(8):
        mine = [entry.fields["number"] for entry in entries if entry.fields["name"] == f"w{n}"]
        assert mine == list(range(each))


def test_killed_writers_leave_a_log_that_holds(tmp_path: Path) -> None:
    path = tmp_path / "audit" / "tools.log"
    for _ in range(4):
        writers = [start_writer(path, f"w{n}", 10_000_000) for n in range(4)]
        go(writers)
        for writer in writers:
            assert writer.stdout is not None
            writer.stdout.readline()
        for writer in writers:
            time.sleep(random.uniform(0, 0.02))
            writer.send_signal(signal.SIGKILL)
        assert finish(writers) == [-signal.SIGKILL] * 4
        with AuditLog(path) as log:
            log.record("TOOL_EXECUTED", name="after")
        assert verify(path).ok


def test_a_removed_log_loses_no_later_line(tmp_path: Path) -> None:
    """Each process notices within a second of its own clock; from then on all write to the new file."""
    path = tmp_path / "audit" / "tools.log"
    writers = [start_writer(path, f"w{n}", 10_000_000) for n in range(2)]
    go(writers)
    for writer in writers:
        assert writer.stdout is not None
        writer.stdout.readline()
    path.unlink()
    deadline = time.monotonic() + 100
    gaps: set[bytes] = set()
    while len(gaps) < 2 and time.monotonic() < deadline:
        time.sleep(0.05)
        if path.exists():
            gaps = {line for line in path.read_bytes().splitlines() if b" AUDIT_GAP " in line}
    for writer in writers:
        writer.kill()
    finish(writers)
    assert len(gaps) == 2
    problem = verify(path).problem
    assert problem is not None
    assert problem.kind == "gap"


FILL = textwrap.dedent("""
    import os, sys
    from pathlib import Path
    from toolcrib.errors import AuditUnavailable
    from toolcrib.guard import AuditLog, parse
    from toolcrib.guard.audit.check import verify

    path = Path(sys.argv[1])
    log = AuditLog(path)
    recorded = refused = 0
    ballast = path.parent.parent / "ballast"
    free = len(sys.argv) > 2
    if free:
        ballast.write_bytes(b"x" * 65_536)
    try:
        for number in range(100_000):
            log.record("TOOL_EXECUTED", name="fill", params={"text": "x" * (number % 900)})
            recorded += 1
    except AuditUnavailable as error:
        assert error.details["error"] in {"ENOSPC", "EFBIG"}, error
        assert error.hint, error
    else:
        raise SystemExit("the disk never got full")
    # Nothing of the refused line is left, and no tool may run now.
    assert path.read_bytes().endswith(b"\\n")
    assert verify(path).ok and verify(path).lines == recorded, verify(path)
    try:
        log.ensure()
        log.ensure()
        log.record("TOOL_EXECUTED", name="fill", params={"text": "x" * 5_000})
    except AuditUnavailable:
        refused += 1
    assert refused == 1
    assert verify(path).ok, verify(path)
    if free:
        ballast.unlink()
        log.ensure()
        log.record("TOOL_EXECUTED", name="after")
        last = [parse(line) for line in path.read_bytes().splitlines()]
        assert verify(path).ok, verify(path)
        assert verify(path).notices["AUDIT_RESUMED"] >= 1
        assert last[-1].fields == {"name": "after"}
    print("done")
""")


REFUSED = textwrap.dedent("""
    import sys
    from pathlib import Path
    from toolcrib.errors import AuditUnavailable
    from toolcrib.guard import AuditLog

    try:
        AuditLog(Path(sys.argv[1])).ensure()
    except AuditUnavailable as error:
        print(error.details["error"], error.hint)
""")


def mounted(options: str, script: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run the script with `folder` being a file system of its own."""
    inner = f'mount -t tmpfs -o {options} none "$1" && exec "$2" -c "$3" "$1/audit/tools.log" free'
    unshare = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", inner, "sh"]
    command = [*unshare, str(folder), sys.executable, script]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def can_mount(folder: Path) -> bool:
    return shutil.which("unshare") is not None and mounted("size=256k", "pass", folder).returncode == 0


def test_a_full_disk_stops_and_is_mended(tmp_path: Path) -> None:
    need("mounts in a user namespace", can_mount(tmp_path))
    done = mounted("size=256k", FILL, tmp_path)
    assert (done.stdout, done.stderr) == ("done\n", "")


def test_a_read_only_file_system_is_refused(tmp_path: Path) -> None:
    need("mounts in a user namespace", can_mount(tmp_path))
    assert mounted("ro", REFUSED, tmp_path).stdout.startswith("EROFS The file system is read-only.")


def test_a_file_size_limit_stops(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", FILL, str(tmp_path / "audit" / "tools.log")],
        capture_output=True,
        text=True,
        check=False,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, 50_000)),
    )
    assert (done.stdout, done.stderr) == ("done\n", "")


def test_a_folder_without_the_right_to_write_is_refused(tmp_path: Path) -> None:
    need("a user other than root to become", os.geteuid() != 0 or shutil.which("setpriv") is not None)
    tmp_path.chmod(0o555)
    command = [sys.executable, "-c", REFUSED, str(tmp_path / "audit" / "tools.log")]
    if os.geteuid() == 0:
        # Root without capabilities has no more rights than the mode gives.
        command = ["setpriv", "--bounding-set=-all", "--inh-caps=-all", "--no-new-privs", *command]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.stdout.startswith("EACCES "), done
