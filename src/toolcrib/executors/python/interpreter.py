"""Python interpreters: that of a virtual environment or Toolcrib's own, and the files that each runs from."""

from __future__ import annotations

import os
import stat
import sys
from pathlib import Path

from toolcrib.errors import ToolUnavailable
from toolcrib.executors.workspace.grants import ProjectFiles
from toolcrib.sandbox.files.paths import Paths, within

SYSTEM_FOLDERS = ("/usr/bin", "/usr/local/bin")
"""Folders of the machine's own interpreters. Not all of `/usr`: a project may be in `/usr/src`."""
_MAX_SETTINGS = 65_536
"""Bytes that are read of a virtual environment's settings."""


def interpreter(files: ProjectFiles, venv: str | None, name: str) -> tuple[str, tuple[str, ...]]:
    """Return the interpreter of a virtual environment, or Toolcrib's own, and the files that it must read."""
    paths = files.paths
    if venv is None:
        base = paths.real(_base())
        return base, _installation(base, paths)
    folder = files.resolve(venv)
    python = f"{folder}/bin/python"
    if not paths.leads_to(python) or not stat.S_ISREG(paths.leads_to(f"{folder}/pyvenv.cfg")):
        raise ToolUnavailable(
            f"{name} runs in the virtual environment {venv!r}, which does not exist ({folder})",
            hint=f"Create it: python3 -m venv {venv}",
            details={"path": folder},
        )
    return python, (folder, *_installation(paths.real(python), paths))


def is_known(real: str, paths: Paths) -> bool:
    """Return True for the machine's interpreters and Toolcrib's own, which no project can bring."""
    return os.path.dirname(real) in SYSTEM_FOLDERS or real == paths.real(_base())


def _base() -> str:
    return getattr(sys, "_base_executable", None) or sys.executable


def runs_in(python: str, paths: Paths) -> list[str]:
    """Return the paths that decide which code an interpreter runs: itself and its libraries."""
    ways = (python, *home_of(python, paths))
    return [
        *(place for way in ways for place in paths.to_protect(way)),
        *_installation(paths.real(python), paths),
    ]


def home_of(python: str, paths: Paths) -> list[str]:
    """Return the folder that a virtual environment's settings name as its interpreter's."""
    settings = paths.text(str(Path(python).parent.with_name("pyvenv.cfg")), _MAX_SETTINGS)
    lines = settings.decode(errors="replace").splitlines()
    pairs = (line.partition("=") for line in lines)
    return [value.strip() for key, _, value in pairs if key.strip() == "home" and value.strip()[:1] == "/"]


def _installation(python: str, paths: Paths) -> tuple[str, ...]:
    """Return an interpreter's own files as grants; nothing for the system's, which every tool sees.

    The whole prefix is not granted: it may be a home folder.
    """
    prefix = str(Path(python).parent.parent)
    if within(python, "/usr"):
        return ()
    libraries = (paths.real(f"{prefix}/{name}") for name in ("lib", "lib64"))
    return (python, *(path for path in libraries if paths.is_folder(path) and within(path, prefix)))
