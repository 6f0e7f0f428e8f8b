"""Confine processes and paths with what the Linux kernel offers."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
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

_MODULES = {
    **dict.fromkeys(("configure", "run"), "confine"),
    **dict.fromkeys(("FilePart", "Root", "Roots"), "files.roots"),
    **dict.fromkeys(("Mechanism", "in_force", "level", "probe", "require"), "levels.probe"),
}
"""Modules of the public names that are not in `job`. All are imported on first use: `files.paths`, which
every start needs, needs none of them."""


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"toolcrib.sandbox.{_MODULES.get(name, 'job')}"), name)
