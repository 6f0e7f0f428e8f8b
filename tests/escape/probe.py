"""What an escape probe is, what it found, and what that means for a sandbox that says what it holds."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

if TYPE_CHECKING:
    from tests.escape.arena import Arena

__all__ = ["GROUPS", "PROBES", "Found", "Group", "Mechanism", "Outcome", "Probe", "Verdict", "judge", "probe"]

Group = Literal[
    "files", "grants", "network", "secrets", "processes", "kernel", "resources", "file tools", "controls"
]
Mechanism = Literal["seccomp", "landlock", "cgroup", "process limit"]
GROUPS: tuple[Group, ...] = (
    "files",
    "grants",
    "network",
    "secrets",
    "processes",
    "kernel",
    "resources",
    "file tools",
    "controls",
)


class Outcome(Enum):
    """What came of an attempt."""

    BLOCKED = "BLOCKED"
    ESCAPED = "ESCAPED"
    NOT_RUN = "NOT-RUN"
    WORKED = "WORKED"
    """Of a control: what must keep working does."""


class Verdict(Enum):
    """What the outcome says about the sandbox, given what it claims."""

    HELD = "held"
    ESCAPE = "escape"
    BROKEN = "does not work"
    NOT_HELD = "not held, and said so"
    NOT_RUN = "not run"
    NOT_FIT = "does not apply"


class Found(NamedTuple):
    """One outcome, what shows it, and the enforcement report of the run it was seen in."""

    outcome: Outcome
    evidence: str
    report: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Probe:
    """One attempt to get out, or (in the group `controls`) one thing that must keep working."""

    name: str
    group: Group
    tries: str
    """What is attempted, in a sentence."""
    body: Callable[[Arena], Found]
    expect: Outcome
    """What a sandbox that holds gives."""
    needs: Mechanism | None
    """The mechanism that holds it, where namespaces and mounts alone do not."""
    compiled: bool
    """Whether it takes the compiled attacks, and so a C compiler."""
    contained: bool
    """Whether it would hurt the machine where processes have no namespace of their own."""
    ours_only: bool
    """Whether it is about more than one confined command: a project, a file tool, a second channel."""

    def fits(self, contestant: str) -> bool:
        """Whether it may and can be tried against a sandbox of that name."""
        if contestant == "ours":
            return True
        if contestant == "level landlock":
            return not self.contained
        return not self.ours_only and not (self.contained and contestant == "landlock")


PROBES: dict[str, Probe] = {}
"""Every probe by name; filled when `suite` is imported."""


def probe(
    group: Group,
    tries: str,
    *,
    needs: Mechanism | None = None,
    compiled: bool = False,
    contained: bool = False,
    ours_only: bool = False,
    name: str | None = None,
) -> Callable[[Callable[[Arena], Found]], Callable[[Arena], Found]]:
    """Enter a function as a probe; its name with hyphens is the probe's."""

    def enter(body: Callable[[Arena], Found]) -> Callable[[Arena], Found]:
        word = name or body.__name__.replace("_", "-")
        full = f"{group.replace(' ', '-')}/{word}"
        assert full not in PROBES, full
        expect = Outcome.WORKED if group == "controls" else Outcome.BLOCKED
        PROBES[full] = Probe(full, group, tries, body, expect, needs, compiled, contained, ours_only)
        return body

    return enter


def claims(report: Mapping[str, Any], mechanism: Mechanism) -> bool:
    """Whether a run's enforcement report says that the mechanism was in force."""
    if mechanism == "process limit":
        return bool(report.get("limits", {}).get("processes", "not enforced") != "not enforced")
    return mechanism not in report.get("missing", ())


def judge(probe: Probe, found: Found) -> Verdict:
    """What an outcome means: not holding is forgiven only to who said so beforehand, and is no pass."""
    if probe.needs is not None and not claims(found.report, probe.needs):
        return Verdict.NOT_HELD
    if found.outcome is Outcome.NOT_RUN:
        return Verdict.NOT_RUN
    if found.outcome is probe.expect:
        return Verdict.HELD
    return Verdict.BROKEN if probe.group == "controls" else Verdict.ESCAPE
