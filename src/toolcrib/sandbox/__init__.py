"""Confine processes and paths with what the Linux kernel offers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from toolcrib.first_use import imported_on_use

if TYPE_CHECKING:
    from toolcrib.sandbox.confine import configure as configure
    from toolcrib.sandbox.confine import run as run
    from toolcrib.sandbox.files.roots import FilePart, Root, Roots
    from toolcrib.sandbox.job import Completed, NetworkAccess, Outlet, Script
    from toolcrib.sandbox.job import Confinement as Confinement
    from toolcrib.sandbox.job import Warmth as Warmth
    from toolcrib.sandbox.kernel.signals import signal_name as signal_name
    from toolcrib.sandbox.levels.probe import in_force, level, probe

__getattr__ = imported_on_use(__name__, {
    "confine": "configure run",
    "files.roots": "FilePart Root Roots",
    "job": "Completed Confinement NetworkAccess Outlet Script Warmth",
    "kernel.signals": "signal_name",
    "levels.probe": "in_force level probe",
})  # fmt: skip
