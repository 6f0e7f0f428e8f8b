"""The demo, as `make demo` runs it."""

from __future__ import annotations

import fcntl
import subprocess
import sys
from pathlib import Path

import pytest

DEMO = Path(__file__).resolve().parents[2] / "examples" / "demo.py"
LOCK = DEMO.parents[1] / "build" / "demo.lock"


@pytest.mark.timeout(300)
def test_the_demo_shows_each_step_and_twice_in_a_row() -> None:
    for _ in range(2):
        done = subprocess.run(
            [sys.executable, str(DEMO)], capture_output=True, text=True, timeout=120, check=False
        )
        assert done.returncode == 0, done.stderr
        said = done.stdout
        assert "It sees: nosy, repo_scan, repo_stats, web_search, web_search_local" in said
        assert "Scan complete." in said
        assert '{"files":' in said
        assert "web_search needs a person's approval" in said
        assert '[{"title":"Tool crib","url":"https://example.com/crib"' in said
        assert "$.query is required" in said
        assert said.count("stopped (") == 3
        assert "GOT THROUGH" not in said
        assert "the log is whole: 7 lines" in said
        assert '"mcpServers"' in said


@pytest.mark.timeout(300)
def test_those_that_run_at_once_run_one_after_the_other() -> None:
    LOCK.parent.mkdir(exist_ok=True)
    with LOCK.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # as a demo that runs
        running = [
            subprocess.Popen(
                [sys.executable, "-u", str(DEMO)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
            )
            for _ in range(2)
        ]
        for one in running:
            assert one.stdout is not None
            assert "Another demo runs in this folder" in one.stdout.readline()
    said = [one.communicate(timeout=120)[0] for one in running]
    assert [one.returncode for one in running] == [0, 0], said
    assert all("the log is whole: 7 lines" in text for text in said)
