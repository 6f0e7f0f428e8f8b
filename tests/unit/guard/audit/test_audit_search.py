"""Lines found again, newest first, through rotated files."""

from __future__ import annotations

import os
import tracemalloc
from datetime import UTC, datetime
from fcntl import LOCK_EX, flock
from pathlib import Path

import pytest

from toolcrib.guard import AuditLog
from toolcrib.guard.audit.check import verify
from toolcrib.guard.audit.search import AuditLine, AuditQuery, AuditReader, open_calls

NOON = 1_736_424_000.0  # 2025-01-09T12:00:00Z


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "audit" / "tools.log"


def newest(path: Path, query: AuditQuery | None = None, limit: int = 1000) -> list[AuditLine]:
    return AuditReader(path).newest(query or AuditQuery(), limit)


def numbers(lines: list[AuditLine]) -> list[int]:
    return [line.entry.fields["n"] for line in lines if line.entry is not None and "n" in line.entry.fields]


def test_the_newest_come_last_whatever_file_they_are_in(path: Path) -> None:
    assert newest(path) == []
    with AuditLog(path, max_bytes=500) as log:
        for n in range(30):
            log.record("TOOL_EXECUTED", name="add", n=n)
    assert numbers(newest(path)) == list(range(30))
    assert numbers(newest(path, limit=3)) in ([27, 28, 29], [28, 29])
    executed = AuditQuery(event="TOOL_EXECUTED")
    assert numbers(newest(path, executed, 12)) == list(range(18, 30))
    assert newest(path, executed, 0) == []
    assert newest(path, executed, 1)[0].file == "tools.log"
    assert newest(path, executed, 30)[0].file.startswith("tools.1-")


@pytest.mark.parametrize(
    ("query", "found"),
    [
        (AuditQuery(), [0, 1, 2, 3]),
        (AuditQuery(tool="add"), [0]),
        (AuditQuery(tool="ad"), []),
        (AuditQuery(tool='two words "quoted"'), [1]),
        (AuditQuery(event="TOOL_REFUSED"), [1]),
        (AuditQuery(status="success"), [0, 2]),
        (AuditQuery(code="denied"), [1]),
        (AuditQuery(caller="mcp:desk"), [2]),
        (AuditQuery(tool="2"), [3]),
        (AuditQuery(text="städ"), [2]),
        (AuditQuery(text='say "hi"'), [2]),
        (AuditQuery(text="zzz"), []),
        (AuditQuery(since=datetime(2025, 1, 9, 12, 0, 2, tzinfo=UTC)), [2, 3]),
        (AuditQuery(until=datetime(2025, 1, 9, 12, 0, 1, tzinfo=UTC)), [0, 1]),
        (AuditQuery(status="success", caller="cli"), [0]),
    ],
)
def test_each_question(path: Path, query: AuditQuery, found: list[int]) -> None:
    clock = iter(NOON + n for n in range(10)).__next__
    with AuditLog(path, clock=clock) as log:
        log.record("TOOL_EXECUTED", name="add", status="success", caller="cli", n=0)
        log.record("TOOL_REFUSED", name='two words "quoted"', status="refused", code="denied", n=1)
        log.record(
            "TOOL_EXECUTED",
            name="x status=error",
            params={"t": 'say "hi"', "u": "städte"},
            status="success",
            caller="mcp:desk",
            n=2,
        )
        log.record("TOOL_EXECUTED", name="2", status="error", n=3)
    assert numbers(newest(path, query)) == found


def test_what_is_no_audit_line_is_shown_as_such(path: Path) -> None:
    with AuditLog(path) as log:
        log.record("TOOL_EXECUTED", n=1)
        with path.open("ab") as file:
            file.write(b"\x1b[2Jhello\n\n" + b"x" * 3_000_000 + b"\n")
        log.record("TOOL_EXECUTED", n=2)
    lines = newest(path)
    assert [line.entry is None for line in lines] == [False, True, True, False, False]
    assert lines[1].raw == b"\x1b[2Jhello"
    assert len(lines[2].raw) <= 512
    assert [line.raw for line in newest(path, AuditQuery(text="hello"))] == [b"\x1b[2Jhello"]
    assert newest(path, AuditQuery(tool="hello")) == []


def test_a_rare_line_is_found_that_lies_across_two_blocks_of_a_long_log(path: Path) -> None:
    path.parent.mkdir()
    end = f"prev={'0' * 64}"
    lines = [
        f"[2025-01-09T12:00:00] TOOL_EXECUTED name=often n={n} a=12 seq={n} {end}"
        for n in range(10_000, 20_000)
    ]
    length = len(lines[0]) + 1
    # The log is read from its end in blocks of 256 KiB: the border lies behind the name in this line.
    across, within = divmod(length * len(lines) - 256 * 1024, length)
    assert within > lines[0].index("n=1")
    lines[across] = lines[across].replace("often", "oddly")
    path.write_text("".join(f"{line}\n" for line in lines))
    assert numbers(newest(path, AuditQuery(tool="oddly"))) == [10_000 + across]


def test_memory_is_bounded(path: Path) -> None:
    with AuditLog(path, max_bytes=2_000_000) as log:
        for n in range(300):
            log.record("TOOL_EXECUTED", name="big", params={"t": "x" * 15_000}, n=n)
    size = sum(part.stat().st_size for part in path.parent.iterdir())
    assert size > 4_000_000
    tracemalloc.start()
    try:
        assert numbers(newest(path, AuditQuery(text="n=7 "))) == [7]
        assert tracemalloc.get_traced_memory()[1] < 2_000_000
    finally:
        tracemalloc.stop()


def test_what_comes_is_seen_once_through_rotations(path: Path) -> None:
    seen: list[int] = []
    reader = AuditReader(path)
    with AuditLog(path, max_bytes=400) as log:
        assert reader.newest(AuditQuery(), 5) == []
        for n in range(40):
            log.record("TOOL_EXECUTED", n=n)
            if n % 7 == 0:
                seen += numbers(list(reader.news(AuditQuery(event="TOOL_EXECUTED"))))
        seen += numbers(list(reader.news(AuditQuery(event="TOOL_EXECUTED"))))
        assert list(reader.news(AuditQuery())) == []
    assert seen == list(range(40))


def test_a_line_that_is_being_written_is_not_torn(path: Path) -> None:
    reader = AuditReader(path)
    with AuditLog(path) as log:
        log.record("TOOL_EXECUTED", n=1)
        assert numbers(reader.newest(AuditQuery(), 5)) == [1]
        log.record("TOOL_EXECUTED", n=2)
        whole = path.read_bytes()
        path.write_bytes(whole[:-10])
        assert list(reader.news(AuditQuery())) == []
        path.write_bytes(whole)
        assert numbers(list(reader.news(AuditQuery()))) == [2]


def test_news_are_read_without_the_lock(path: Path) -> None:
    """A reader that is stopped while it has the lock would stop every writer."""
    reader = AuditReader(path)
    with AuditLog(path) as log:
        log.record("TOOL_EXECUTED", n=1)
    with path.open("rb") as file:
        flock(file, LOCK_EX)
        assert numbers(list(reader.news(AuditQuery()))) == [1]


def test_a_log_that_is_removed_makes_no_news_of_its_rotated_files(path: Path) -> None:
    reader = AuditReader(path)
    with AuditLog(path, max_bytes=400) as log:
        for n in range(9):
            log.record("TOOL_EXECUTED", n=n)
    assert numbers(reader.newest(AuditQuery(event="TOOL_EXECUTED"), 1)) == [8]
    path.unlink()
    assert list(reader.news(AuditQuery())) == []
    path.write_text("new\n")
    assert [line.raw for line in reader.news(AuditQuery())] == [b"new"]


def test_a_start_without_an_end_is_running_or_was_interrupted(path: Path) -> None:
    with AuditLog(path) as log:
        ended, running = log.start(" name=ended"), log.start(" name=slow")
        log.append("TOOL_EXECUTED", f" name=ended start={ended}")
        # The number of a process that has ended was given to this one, which began at another time.
        log.record("TOOL_STARTED", name="killed", process=f"{os.getpid()}/1")
        log.record("TOOL_STARTED", name="odd", process="/etc/1")
    states = open_calls(newest(path))
    assert states == {running: "running", running + 2: "interrupted", running + 3: "interrupted"}
    verdict = verify(path)
    assert [start.fields["name"] for start in verdict.running] == ["slow"]
    assert [start.fields["name"] for start in verdict.interrupted] == ["killed", "odd"]
