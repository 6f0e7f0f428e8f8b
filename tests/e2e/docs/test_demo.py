"""The demo, as `make demo` runs it."""

from __future__ import annotations

import fcntl
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

DEMO = Path(__file__).resolve().parents[3] / "examples" / "demo.py"
LOCK = DEMO.parents[1] / "build" / "demo.lock"


@pytest.mark.timeout(600)
def test_two_demos_at_once_run_one_after_the_other_and_show_each_step() -> None:
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
    outputs = [one.communicate()[0] for one in running]
    for one, shown in zip(running, outputs, strict=True):
        assert one.returncode == 0, shown
        assert "It sees: nosy, repo_scan, repo_stats, web_search, web_search_local" in shown
        assert "Scan complete." in shown
        assert '{"files":' in shown
        assert "waits for a person's approval: Accesses external API" in shown
        assert '[{"title":"Tool crib","url":"https://example.com/crib"' in shown
        assert "$.query is required" in shown
        assert shown.count("stopped (") == 3
        assert "GOT THROUGH" not in shown
        assert "the log is whole: 12 lines" in shown
        assert re.search(r"Its web page, .*: http://127\.0\.0\.1:\d+/#code=\S+$", shown, re.MULTILINE)
    # What it says to use later serves the project as it was shown: trusted, with its log whole.
    shown = outputs[-1]
    client = json.loads(shown[shown.index("{\n") : shown.rindex("\n}") + 2])["mcpServers"]["toolcrib"]
    root, data = client["args"][2:4], client["args"][5]
    assert shown.splitlines()[-1].endswith(f"toolcrib ui {' '.join(root)} --data {data}")
    for words in (["list"], ["audit", "verify"]):
        done = subprocess.run(
            [client["command"], *words, *root],
            env={**os.environ, "TOOLCRIB_DATA": data},
            capture_output=True,
            text=True,
            check=True,
        )
        assert "TRUST" not in done.stdout
        assert "no anchor" not in done.stdout
