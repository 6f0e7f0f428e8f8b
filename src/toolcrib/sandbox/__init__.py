"""Confine processes and paths with what the Linux kernel offers."""

from __future__ import annotations

from toolcrib.sandbox.confine import configure, run
from toolcrib.sandbox.files.roots import FilePart, Root, Roots
from toolcrib.sandbox.job import Completed, Confinement, NetworkAccess, Outlet, Script, Warmth
from toolcrib.sandbox.levels.probe import Mechanism, in_force, level, probe, require

__all__ = [
    "Completed",
    "Confinement",
    "FilePart",
    "Mechanism",
    "NetworkAccess",
    "Outlet",
    "Root",
    "Roots",
    "Script",
    "Warmth",
    "configure",
    "in_force",
    "level",
    "probe",
    "require",
    "run",
]
