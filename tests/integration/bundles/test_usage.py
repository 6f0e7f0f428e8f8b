"""Counts of calls: by several processes, with a file that cannot be written for a while, on a clean exit."""

from __future__ import annotations

import sys
import threading
import time
from pathlib import Path

import pytest

from tests.commands import Forked
from tests.patience import patient
from toolcrib.errors import StateUnavailable
from toolcrib.state.usage import HourOfUse, UsageCounts

WORKER = """
import sys
import threading
from pathlib import Path
from toolcrib.state.usage import UsageCounts
usage = UsageCounts(Path(sys.argv[1]))
for number in range(500):
    usage.count("a", failed=number % 5 == 0)
usage.close()
"""


def test_calls_are_counted_and_seen_by_another_process_within_a_second(tmp_path: Path) -> None:
    ours, theirs = UsageCounts(tmp_path / "usage.db"), UsageCounts(tmp_path / "usage.db")
    ours.count("a", failed=False)
    ours.count("a", failed=True)
    deadline = time.monotonic() + patient(10)
    while theirs.of("a").calls < 2:
        assert time.monotonic() < deadline
        time.sleep(0.02)
    assert (theirs.of("a").failures, theirs.of("b").calls, theirs.of("b").last_called_at) == (1, 0, None)
    ours.close()
    theirs.close()


def test_a_clean_exit_of_many_processes_loses_none(tmp_path: Path) -> None:
    path = tmp_path / "usage.db"
    workers = [Forked([sys.executable, "-c", WORKER, str(path)]) for _ in range(4)]
    assert [worker.wait() for worker in workers] == [0] * 4
    usage = UsageCounts(path)
    found = usage.of("a")
    assert (found.calls, found.failures) == (2000, 400)
    usage.close()


def test_an_end_waits_for_no_pause_between_writes(tmp_path: Path) -> None:
    usage = UsageCounts(tmp_path / "usage.db", pause_s=3_600)
    usage.count("a", failed=False)
    usage.close()
    again = UsageCounts(tmp_path / "usage.db")
    assert again.of("a").calls == 1
    again.close()


def test_an_end_that_comes_as_a_write_begins_is_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threading, "Event", Late)
    usage = UsageCounts(tmp_path / "usage.db", pause_s=0)
    usage.count("a", failed=False)
    assert Late.clearing.wait(patient(10))
    ended = threading.Thread(target=usage.close, daemon=True)
    ended.start()
    ended.join(patient(10))
    assert not ended.is_alive()


class Late(threading.Event):
    """An event that is cleared late, as by a thread that has to wait for a processor."""

    clearing = threading.Event()

    def clear(self) -> None:
        self.clearing.set()
        time.sleep(0.3)
        super().clear()


def test_hours_are_counted_apart_and_the_last_call_is_the_latest(tmp_path: Path) -> None:
    now = [7200.0]
    usage = UsageCounts(tmp_path / "usage.db", clock=lambda: now[0])
    usage.count("a", failed=False)
    now[0] = 7210.5
    usage.count("a", failed=True)
    now[0] = 14400.0
    usage.count("a", failed=False)
    now[0] = 3600.0  # the clock goes back
    usage.count("a", failed=False)
    assert usage.series("a", 7200) == [HourOfUse(7200, 2, 1), HourOfUse(14400, 1, 0)]
    assert usage.of("a").last_called_at == 14400.0
    usage.close()


def test_days_have_the_times_within_which_half_and_nearly_all_ended(tmp_path: Path) -> None:
    now = [86_400.0]
    usage = UsageCounts(tmp_path / "usage.db", clock=lambda: now[0])
    for ms in range(1, 101):
        usage.count("a", failed=ms > 98, ms=float(ms))
    now[0] = 2 * 86_400.0 + 3_599
    usage.count("a", failed=False, ms=0.0)
    usage.count("b", failed=False, ms=60_000.0)
    first, *later = usage.days(86_400.0)
    assert (first.tool, first.begins, first.calls, first.failures) == ("a", 86_400, 100, 2)
    assert first.p50_ms == pytest.approx(50, rel=0.1)
    assert first.p95_ms == pytest.approx(95, rel=0.1)
    assert [(one.tool, one.begins, one.calls) for one in later] == [("a", 172_800, 1), ("b", 172_800, 1)]
    assert later[1].p95_ms == pytest.approx(60_000, rel=0.1)
    assert usage.days(now[0]) == later
    usage.close()


def test_a_file_that_cannot_be_written_stops_no_call_and_loses_no_count(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "usage.db").mkdir()
    usage = UsageCounts(folder / "usage.db")
    for _ in range(3):
        usage.count("a", failed=False)
    with pytest.raises(StateUnavailable):
        usage.flush()
    (folder / "usage.db").rmdir()
    assert usage.of("a").calls == 3
    usage.close()
