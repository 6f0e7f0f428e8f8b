"""All probes: importing this module fills `PROBES`."""

from __future__ import annotations

from tests.escape.probe import PROBES, Probe
from tests.escape.probes import (  # noqa: F401 - each enters its probes
    answers,
    controls,
    file_tools,
    files,
    git_places,
    grants,
    hosts,
    kernel,
    network,
    processes,
    resources,
    secrets,
)

__all__ = ["named", "probes"]


def probes() -> list[Probe]:
    """Every probe, in the order in which they were written down."""
    return list(PROBES.values())


def named(name: str) -> Probe:
    """The probe of that name."""
    return PROBES[name]
