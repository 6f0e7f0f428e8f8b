"""After hundreds of mixed calls, fifty at once, nothing of them is left anywhere."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import toolcrib
from toolcrib.project.reports import describe_machine

AT_ONCE = 50
GROWTH_KIB = 24_576
"""Memory that the server may take more of between the second round and the last."""


def leftovers(tmp_path: Path, rounds: int) -> dict[str, Any]:
    """Run a server through so many rounds of calls; what it saw, and what it left."""
    temporary, project = tmp_path / "temporary", tmp_path / "project"
    temporary.mkdir()
    project.mkdir()
    mounts = mounted()
    paths = [str(Path(__file__).parents[2]), str(Path(toolcrib.__file__).parents[1])]
    done = subprocess.run(
        [sys.executable, "-m", "tests.escape.leak_server", str(project), str(AT_ONCE), str(rounds)],
        env={**os.environ, "TMPDIR": str(temporary), "PYTHONPATH": os.pathsep.join(paths)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    seen: dict[str, Any] = json.loads(done.stdout)
    seen["temporary files"] = [str(path) for path in temporary.rglob("*")]
    seen["processes"] = running(str(project))
    seen["mounts"] = [line for line in mounted() - mounts if str(tmp_path) in line]
    held = seen["control groups"]
    assert bool(held) == (describe_machine()["level"] == "full+cgroup")
    seen["control groups"] = [path for path in held if os.path.exists(path)]
    return seen


def mounted() -> set[str]:
    return set(Path("/proc/self/mountinfo").read_text().splitlines())


def running(word: str) -> list[str]:
    """Command lines of processes that hold a word."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            line = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        if entry.name.isdigit() and word in line:
            found.append(line)
    return found


def check(seen: dict[str, Any], rounds: int) -> None:
    assert seen["calls"] == AT_ONCE * rounds
    assert seen["wrong"] == []
    assert seen["descriptors"][-1] <= seen["descriptors"][1], seen["descriptors"]
    assert seen["children"][-1] <= seen["children"][1], seen["children"]
    assert seen["memory"][-1] - seen["memory"][1] < GROWTH_KIB, seen["memory"]
    for what in ("temporary files", "processes", "mounts", "control groups", "project files"):
        assert seen[what] == [], (what, seen[what])


@pytest.mark.timeout(180)
def test_two_hundred_calls_leave_nothing(tmp_path: Path) -> None:
    check(leftovers(tmp_path, 4), 4)


@pytest.mark.soak
def test_ten_thousand_calls_leave_nothing(tmp_path: Path) -> None:
    check(leftovers(tmp_path, 200), 200)
