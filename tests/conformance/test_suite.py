"""The public conformance suite of MCP: it exits with 0 if no check of a scenario fails."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from tests.conformance.conftest import HERE, requirements

SCENARIOS = [tuple(line.split()) for line in (HERE / "scenarios.txt").read_text().splitlines()]
"""Version and name of every server scenario of these versions, and of the extension for tasks."""


@pytest.mark.parametrize(("version", "required"), [("2025-11-25", 30), ("2026-07-28", 37)])
def test_every_scenario_of_a_version(version: str, required: int, suite: list[str], address: str) -> None:
    words = ["server", "--url", address, "--suite", "all", "--spec-version", version]
    ran = subprocess.run([*suite, *words], capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    found = re.findall(r"^=== Running scenario: (\S+) ===$", ran.stdout, re.MULTILINE)
    assert sorted(found) == sorted(name for given, name in SCENARIOS if given == version)
    frozen = requirements(suite, version)
    assert len(frozen) == required
    assert set(frozen) <= set(found)


@pytest.mark.parametrize("scenario", [name for version, name in SCENARIOS if version == "extension"])
def test_a_scenario_of_the_extension(scenario: str, suite: list[str], address: str, tmp_path: Path) -> None:
    words = ["server", "--url", address, "--scenario", scenario]
    ran = subprocess.run([*suite, *words], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr


def test_no_scenario_of_the_suite_is_left_out(suite: list[str]) -> None:
    shown = subprocess.run([*suite, "list", "--server"], capture_output=True, text=True, check=True).stdout
    lines = [line.split() for line in shown.splitlines() if line.strip().startswith("- ")]
    for version in ("2025-11-25", "2026-07-28", "extension"):
        named = [scenario for given, scenario in SCENARIOS if given == version]
        listed = [words[1] for words in lines if version in words[-1]]
        assert sorted(named) == sorted(name for name in listed if not name.startswith("sep-2640-skills"))
