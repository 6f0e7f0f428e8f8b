"""The row that ours is compared with can be had everywhere, is fair, and leaves the machine as it was."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conftest import need
from tests.escape.contestants import installed
from tests.escape.probe import Verdict
from tests.escape.score import score
from tests.escape.staging import Stage, kinds
from tests.escape.suite import probes

COUNTERS = {"ns_last_pid", "pty", "random", "stat_refresh"}
"""Entries of /proc/sys/kernel and vm that change by themselves, are folders, or do something when read."""


def machine() -> dict[str, str]:
    """Settings that a root who is not held well could change, and the mode of /dev/null."""
    seen = {"/dev/null": oct(Path("/dev/null").stat().st_mode)}
    for folder in ("/proc/sys/kernel", "/proc/sys/vm"):
        for path in Path(folder).iterdir():
            try:
                seen[str(path)] = "" if path.name in COUNTERS else path.read_text()
            except OSError:  # A folder, or only for writing.
                continue
    return seen


@pytest.mark.soak
@pytest.mark.timeout(240)
@pytest.mark.parametrize("kind", kinds())
def test_bubblewrap(stage: Stage, kind: str) -> None:
    need("bubblewrap", installed("bubblewrap"))
    need("a C compiler (cc)", stage.attacks is not None)
    before = machine()
    row = score(stage, "bubblewrap", kind, probes())
    verdicts = {probe.name: found for probe, found in row.verdicts.items()}

    unfair = {
        name: found for name, found in verdicts.items() if found[0] in (Verdict.NOT_RUN, Verdict.BROKEN)
    }
    assert not unfair
    assert sum(found[0] is Verdict.HELD for found in verdicts.values()) > 40
    assert machine() == before
