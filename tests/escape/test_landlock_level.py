"""Every probe that applies, where the kernel gives no namespaces: level `landlock` holds it or refuses it.

What is denied to the server here is what a container's default filter denies.
"""

from __future__ import annotations

import shutil
from typing import Any

import pytest

from tests.conftest import need
from tests.escape.probe import Outcome, Probe, Verdict, judge
from tests.escape.staging import Stage, kinds
from tests.escape.suite import probes

LEVEL = "level landlock"
REFUSED_FOR = ("mount namespace", "net namespace", "network proxy")
NOT_HELD = {
    "files/outside-is-invisible": "names, sizes and times can be looked at",
    "files/outside-metadata": "times can be changed",
    "files/read-grant": "times can be changed",
    "kernel/capabilities": "an ordinary user holds none, and cannot empty the set they could come from",
}
"""What the enforcement report and docs/sandbox.md say is not held; nothing else may get out."""
NO_USE = {
    "controls/coreutils": "modes",
    "controls/compiler": "modes",
    "controls/git": "modes",
    "controls/git-protected": "modes",
    "controls/python": "POSIX semaphores",
    "controls/virtual-environment": "modes",
    "controls/small-things": "/dev/shm",
    "controls/project": "a grant of all of the project",
}
"""What does not work at this level, and why."""
JUDGED_BY_ANSWERS = ("grants/forged-answers", "grants/run-denied", "grants/shadowed-module")
"""Their tools are granted all of the project, which this level refuses; they judge by answers alone."""
REFUSED = (
    "grants/audit-log-locked",
    "grants/granted-folder-replaced",
    "grants/script-replaced-by-link",
    "grants/venv-replaced-by-link",
)
"""They stand on such a grant as well, so that there is nothing to attempt."""
OWN_SERVER = ("processes/cancelled",)
"""It starts a server of its own, which allows no level below full."""
NOT_TRIED = {
    "resources/cpu-time": "it takes two seconds, and other probes reach limits that are set with it",
    "resources/users-share": "inotify is not held, and others of the machine need theirs",
    "resources/users-watches": "inotify is not held, and others of the machine need theirs",
}
LEFT_OUT = (*NOT_TRIED, *NO_USE, *JUDGED_BY_ANSWERS, *REFUSED, *OWN_SERVER)
FITTING = [(probe, kind) for kind in kinds() for probe in probes() if probe.fits(LEVEL)]
TRIED = [(probe, kind) for probe, kind in FITTING if probe.name not in LEFT_OUT]
NOT_RUN = [(probe, kind) for probe, kind in FITTING if probe.name in REFUSED]


def named(probe: Probe, kind: str) -> Any:
    """Return a test of this probe.

    Root's are long tests, because what runs at this level is mostly no root's; so are file tools, which run
    in the server at every level.
    """
    long = kind == "root" or probe.name.startswith("file-tools/")
    return pytest.param(probe, kind, id=f"{probe.name}-{kind}", marks=[pytest.mark.soak] if long else [])


@pytest.mark.parametrize(("probe", "kind"), [named(*one) for one in TRIED])
def test_probe(stage: Stage, probe: Probe, kind: str) -> None:
    need("a C compiler (cc)", not probe.compiled or stage.attacks is not None)
    if probe.name.startswith("grants/git"):
        need("git", shutil.which("git") is not None)
    found = stage.run(probe, kind, LEVEL)
    verdict = judge(probe, found)
    told = f"{probe.tries}\n{found.outcome.value}: {found.evidence}"
    if found.report.get("mechanism") in REFUSED_FOR and found.outcome is not Outcome.ESCAPED:
        return  # Nothing was run, and the refusal names what would hold it.
    if verdict is Verdict.NOT_HELD:
        pytest.skip(f"needs {probe.needs}, which is not there, as the report says")
    if probe.name in NOT_HELD:
        assert found.outcome is not Outcome.NOT_RUN, told
        return
    assert verdict is Verdict.HELD, told


@pytest.mark.parametrize(("probe", "kind"), NOT_RUN, ids=[f"{probe.name}-{kind}" for probe, kind in NOT_RUN])
def test_a_tool_that_is_granted_all_of_the_project_is_not_run(stage: Stage, probe: Probe, kind: str) -> None:
    found = stage.run(probe, kind, LEVEL)
    assert found.outcome is Outcome.NOT_RUN, f"{probe.tries}\n{found.outcome.value}: {found.evidence}"


def test_most_of_the_suite_is_tried() -> None:
    assert len({probe.name for probe, _ in TRIED}) >= 100
    assert {*NOT_HELD, *LEFT_OUT} <= {probe.name for probe in probes()}
