"""Every probe against the product, as root and as an ordinary user: nothing gets out, all is tried."""

from __future__ import annotations

import shutil
from collections import Counter

import pytest

from tests.conftest import need
from tests.escape.probe import Outcome, Probe, Verdict, judge
from tests.escape.staging import Stage, kinds
from tests.escape.suite import probes

TRIED = [(probe, kind) for kind in kinds() for probe in probes()]


@pytest.mark.parametrize(("probe", "kind"), TRIED, ids=[f"{probe.name}-{kind}" for probe, kind in TRIED])
def test_probe(stage: Stage, probe: Probe, kind: str) -> None:
    need("a C compiler (cc)", not probe.compiled or stage.attacks is not None)
    if probe.name == "controls/compiler":
        need("gcc", shutil.which("gcc") is not None)
    if probe.name.startswith(("controls/git", "grants/git")):
        need("git", shutil.which("git") is not None)
    if probe.name == "controls/granted-host-by-programs":
        need("curl and git", shutil.which("curl") is not None and shutil.which("git") is not None)
    found = stage.run(probe, kind)
    verdict = judge(probe, found)
    if verdict is Verdict.NOT_HELD:
        pytest.skip(f"needs {probe.needs}, which this machine or version does not use and says so")
    assert verdict is Verdict.HELD, f"{probe.tries}\n{found.outcome.value}: {found.evidence}"


def test_the_suite_is_whole() -> None:
    attempts = [probe for probe in probes() if probe.group != "controls"]
    assert len(attempts) >= 80
    groups = Counter(probe.group for probe in attempts)
    assert min(groups.values()) >= 10, groups
    assert all(probe.expect is Outcome.BLOCKED for probe in attempts)
    assert len(attempts) + sum(probe.group == "controls" for probe in probes()) == len(probes())
