"""The public conformance suite of MCP, one scenario a test: it passes if it exits with 0."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.conformance.conftest import HERE, LIMIT_S

SCENARIOS = [tuple(line.split()) for line in (HERE / "scenarios.txt").read_text().splitlines()]
"""Version and name of every server scenario of these versions."""


@pytest.mark.parametrize(("version", "scenario"), SCENARIOS)
def test_scenario(version: str, scenario: str, suite: list[str], address: str, tmp_path: Path) -> None:
    words = ["server", "--url", address, "--spec-version", version, "--scenario", scenario]
    ran = subprocess.run(
        [*suite, *words], cwd=tmp_path, capture_output=True, text=True, timeout=LIMIT_S, check=False
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr


def test_no_scenario_of_the_suite_is_left_out(suite: list[str]) -> None:
    listed = subprocess.run([*suite, "list", "--server"], capture_output=True, text=True, check=True).stdout
    lines = [line.split() for line in listed.splitlines() if line.strip().startswith("- ")]
    for version in ("2025-11-25", "2026-07-28"):
        named = [scenario for given, scenario in SCENARIOS if given == version]
        assert sorted(named) == sorted(words[1] for words in lines if version in words[-1])
