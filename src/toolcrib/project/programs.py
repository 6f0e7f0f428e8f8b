"""What is run here: by the project's tools, and by this process itself. No tool may write any of it."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from functools import lru_cache
from pathlib import Path

from toolcrib.guard.digest_parts import module_files, script_files
from toolcrib.spec import CommandExec, PythonExec, Tool

__all__ = ["programs_of", "running_from"]


def programs_of(tools: Iterable[Tool], root: Path) -> list[str]:
    """Entrypoints, scripts, modules and virtual environments of these tools, as real paths."""
    found: list[str] = []
    names: dict[Path, frozenset[str]] = {}
    for tool in tools:
        config = tool.config
        if isinstance(config, CommandExec):
            if "/" in config.entrypoint:
                found.append(os.path.realpath(root / config.entrypoint))
            found += script_files(config, root)
        elif isinstance(config, PythonExec):
            if config.venv is not None:
                found.append(os.path.realpath(root / config.venv))
            folder = root / config.cwd
            if folder not in names:
                names[folder] = _modules_in(folder)
            if config.module.partition(".")[0] in names[folder]:
                found += module_files(config, root, None)
    return list(dict.fromkeys(found))


def _modules_in(folder: Path) -> frozenset[str]:
    """First names of what could be imported from a folder: one look for all tools that have it."""
    try:
        return frozenset(name.partition(".")[0] for name in os.listdir(folder))  # noqa: PTH208 - names alone
    except OSError:
        return frozenset()


@lru_cache(maxsize=1)
def running_from() -> tuple[str, ...]:
    """The environment, the packages and the code of this process, as real paths."""
    packages = [path for path in sys.path if os.path.basename(path) in ("site-packages", "dist-packages")]  # noqa: PTH119
    ours = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))  # noqa: PTH100, PTH120
    return tuple(dict.fromkeys(os.path.realpath(path) for path in (sys.prefix, ours, *packages)))
