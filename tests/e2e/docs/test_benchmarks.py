"""The benchmarks run and print their rows. How fast anything is, is no test's business."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from benchmarks.part import PARTS
from benchmarks.table import OVER, PEER, WALL, Reach, Row, Table, headlines, missed

ROOT = Path(__file__).resolve().parents[3]


def bench(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the benchmarks as a user would."""
    return subprocess.run(
        [sys.executable, "benchmarks/run.py", *arguments],
        check=False,
        cwd=ROOT,
        capture_output=True,
        text=True,
    )


@pytest.mark.soak
def test_every_part_runs_and_prints_its_rows(tmp_path: Path) -> None:
    figures = tmp_path / "figures.json"
    done = bench("--quick", "--no-peers", "--json", str(figures))
    assert done.returncode == 0, done.stderr
    assert "Without the peers: they were not asked for." in done.stdout
    parts = json.loads(figures.read_text())["parts"]
    assert list(parts) == list(PARTS)
    for name, tables in parts.items():
        assert tables, name
        for table in tables:
            assert f"### {table['title']}\n" in done.stdout
            for row in table["rows"]:
                assert row["name"] in done.stdout
                # Whether processes can be confined depends on the kernel; all else is there.
                assert row["seconds"] or row["peer"] or name == "sandbox", f"{row['name']}: {row['missing']}"


@pytest.mark.soak
def test_the_gate_compares_with_a_commit() -> None:
    done = bench("--quick", "--only", "registration", "--against", "HEAD")
    assert "| Register a function of five annotated parameters: Toolset.register | " in done.stdout, (
        done.stderr
    )


def test_an_unknown_part_is_refused_with_those_there_are() -> None:
    done = bench("--only", "call")
    assert done.returncode == 2
    assert "call: there are start, calls," in done.stderr


def verdict(*reach: Reach, limit: float = 1.0) -> str:
    rows = [Row("bare", seconds=[limit, 9.0]), Row("peer", peer=True, seconds=[2.0, 4.0])]
    table = Table("Call", "s", [*rows, Row("ours", reach, seconds=[10.0, 5.0])])
    assert Table.of(json.loads(json.dumps(table.json()))).markdown() == table.markdown()
    return table.markdown().split("| ours |")[1].splitlines()[0].removesuffix(" |").rpartition("| ")[2]


def test_the_least_of_all_rounds_is_compared_with_the_limit() -> None:
    assert verdict(Reach(4)) == "≤ 4× limit: 5.00 · **missed**"
    assert verdict(Reach(5)) == "≤ 5× limit: 5.00 · met"


def test_a_row_is_compared_with_the_best_peer_another_row_and_the_clock() -> None:
    assert verdict(Reach(2, PEER), Reach(2.5, PEER)) == (
        "≤ 2× best peer: 2.50 · **missed**; ≤ 2.5× best peer: 2.50 · met"
    )
    assert verdict(Reach(6, "bare")) == "≤ 6× bare: 5.00 · met"
    assert verdict(Reach(5, WALL)) == "≤ 5 s: 5.00 · met"
    assert verdict(Reach(3, OVER)) == "≤ 3 s over the limit: 4.00 · **missed**"


def test_a_limit_that_is_slower_is_none() -> None:
    assert verdict(Reach(4), limit=6.0) == "≤ 4× limit: the limit is slower, so it is none"


def test_a_row_without_figures_says_why() -> None:
    table = Table("Call", "µs", [Row("bare", seconds=[1e-6]), Row("ours", Reach(4), missing="skipped: gone")])
    assert "| ours | skipped: gone |  |  | ≤ 4× limit: not measured |" in table.markdown()


def test_the_row_furthest_from_its_reach_comes_first() -> None:
    rows = [
        Row("bare", seconds=[1.0]),
        Row("near", Reach(4), seconds=[5.0]),
        Row("far", Reach(4), seconds=[9.0]),
    ]
    assert [line.split(" | ")[0] for line in missed([Table("Call", "s", rows)])][2:] == [
        "| Call: far",
        "| Call: near",
    ]
    assert "| Call: far |" in list(headlines([Table("Call", "s", rows)], ["near"]))[-1]


def test_a_row_that_misses_says_why() -> None:
    rows = [Row("orjson.loads of each file", seconds=[0.1]), Row("toolcrib import openapi", Reach(5, WALL))]
    table = Table("OpenAPI: 4,000 operations", "s", rows)
    for seconds, said in ((9.0, True), (4.0, False)):
        rows[1].seconds = [seconds]
        assert len(list(missed([table]))) == 2 + said
        for text in (table.markdown(), "\n".join(headlines([table], []))):
            assert ("checked as any other" in text) is said, text


def test_a_folder_of_openapi_documents(tmp_path: Path) -> None:
    operations: dict[str, Any] = {"/a": {"get": {}}, "/b": {"trace": {}}}
    document = {"openapi": "3.0.0", "info": {"title": "T", "version": "1"}, "paths": operations}
    (tmp_path / "api.json").write_text(json.dumps(document))
    (tmp_path / "other.json").write_text("{}")
    command = [sys.executable, "-m", "benchmarks.openapi", str(tmp_path), "--runs", "1"]
    done = subprocess.run(command, check=False, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 1, "half of the operations is less than the bar"
    assert "| api.json | 3.0 | 2 | 1 | 0 |" in done.stdout
    assert "1× HTTP tools do not support the method TRACE" in done.stdout
    assert "| 1 documents | | 2 | 1 (50.00%) |" in done.stdout
