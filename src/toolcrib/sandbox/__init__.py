"""Confine processes and paths with what the Linux kernel offers."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from toolcrib.sandbox.confine import configure as configure
    from toolcrib.sandbox.confine import run as run
    from toolcrib.sandbox.files.roots import FilePart, Root, Roots
    from toolcrib.sandbox.job import Completed, NetworkAccess, Outlet, Script
    from toolcrib.sandbox.job import Confinement as Confinement
    from toolcrib.sandbox.job import Warmth as Warmth
    from toolcrib.sandbox.kernel.signals import signal_name as signal_name
    from toolcrib.sandbox.levels.probe import in_force, level, probe

_MODULES = {
    **dict.fromkeys(("Completed", "Confinement", "NetworkAccess", "Outlet", "Script", "Warmth"), "job"),
    **dict.fromkeys(("configure", "run"), "confine"),
    **dict.fromkeys(("FilePart", "Root", "Roots"), "files.roots"),
    **dict.fromkeys(("in_force", "level", "probe"), "levels.probe"),
    "signal_name": "kernel.signals",
}
"""Names to their modules, imported on first use: `files.paths`, which every start needs, needs none."""


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"toolcrib.sandbox.{_MODULES[name]}"), name)
