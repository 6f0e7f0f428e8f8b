"""The benchmarks run and print their rows. How fast anything is, is no test's business."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from benchmarks.part import PARTS
from benchmarks.table import Row, Table, Target

ROOT = Path(__file__).resolve().parents[3]


def bench(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the benchmarks as a user would."""
    return subprocess.run(
        [sys.executable, "benchmarks/run.py", *arguments],
        check=False,
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=110,
    )


@pytest.mark.soak
def test_every_part_runs_and_prints_its_rows(tmp_path: Path) -> None:
    samples = tmp_path / "samples.json"
    done = bench("--quick", "--no-peers", "--json", str(samples))
    assert done.returncode == 0, done.stderr
    assert "Without the peers: they were not asked for." in done.stdout
    parts = json.loads(samples.read_text())["parts"]
    assert list(parts) == list(PARTS)
    for name, part in parts.items():
        assert part["tables"], name
        for table in part["tables"]:
            assert f"### {table['title']}\n" in done.stdout
            for row in table["rows"]:
                assert row["name"] in done.stdout
                # Whether processes can be confined depends on the kernel; all else is there.
                assert row["seconds"] or name == "sandbox", f"{name}: {row['name']}: {row['missing']}"


@pytest.mark.soak
def test_only_the_named_parts_run() -> None:
    done = bench("--quick", "--no-peers", "--only", "manifests")
    assert done.returncode == 0, done.stderr
    assert [line for line in done.stdout.splitlines() if line.startswith("### ")] == [
        "### Open a project of 30 manifests cold",
        "### Open it again: 30 manifests that are as they were",
        "### One of them changes while the project is open",
    ]


def test_an_unknown_part_is_refused_with_those_there_are() -> None:
    done = bench("--only", "call")
    assert done.returncode == 2
    assert "call: there are imports, calls," in done.stderr


def table(**target: Any) -> Table:
    rows = [Row("bare", [1e-6, 2e-6, 1e-6]), Row("ours", [5e-6, 10e-6, 6e-6], Target(**target))]
    return Table("Call", "µs", rows)


def test_a_missed_target_is_told() -> None:
    assert "target ≤ 4× · reached 5.00×, **missed**" in table(most=4).markdown()


def test_a_met_target_is_told() -> None:
    assert "target ≤ 6× · reached 5.00× |" in table(most=6).markdown()


def test_a_target_may_speak_of_the_time_over_the_limit() -> None:
    assert "target ≤ 5 µs over the limit · reached 5.00 µs |" in table(most=5, measure="over").markdown()


def test_a_row_without_figures_says_why() -> None:
    bare = table(most=4)
    bare.rows[1] = Row("ours", target=Target(4), missing="skipped: it is not there")
    assert "| ours | skipped: it is not there |  |  | target ≤ 4× · not measured |" in bare.markdown()


def test_a_folder_of_openapi_documents(tmp_path: Path) -> None:
    operations: dict[str, Any] = {"/a": {"get": {}}, "/b": {"trace": {}}}
    document = {"openapi": "3.0.0", "info": {"title": "T", "version": "1"}, "paths": operations}
    (tmp_path / "api.json").write_text(json.dumps(document))
    (tmp_path / "other.json").write_text("{}")
    command = [sys.executable, "-m", "benchmarks.openapi", str(tmp_path), "--runs", "1"]
    done = subprocess.run(command, check=False, cwd=ROOT, capture_output=True, text=True, timeout=50)
    assert done.returncode == 1, "half of the operations is less than the bar"
    assert "| api.json | 3.0 | 2 | 1 | 0 |" in done.stdout
    assert "1× HTTP tools do not support the method TRACE" in done.stdout
    assert "| 1 documents | | 2 | 1 (50.00%) |" in done.stdout
