"""The files outside its own folder that a tool runs: its program, its module, its environment's lock."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

from toolcrib.errors import ToolUnavailable
from toolcrib.spec import CommandExec, PythonExec

__all__ = ["INTERPRETERS", "entrypoint_files", "lock_files", "module_files", "script_files"]

_PROGRAMS = ("/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin")
"""The folders in which a confined command is searched, in this order."""
INTERPRETERS = frozenset(
    ("bash", "bun", "dash", "ksh", "lua", "node", "perl", "php", "python", "ruby", "sh", "tclsh", "zsh")
)


def entrypoint_files(entrypoint: str, root: Path) -> Iterator[str]:
    """Yield the real path of a command's program, nothing if it is missing: adding it changes the digest."""
    if "/" in entrypoint:
        candidates = [os.path.realpath(root / entrypoint)]
    else:
        candidates = [os.path.realpath(f"{folder}/{entrypoint}") for folder in _PROGRAMS]
    for path in candidates:
        if os.path.isfile(path):  # noqa: PTH113 - as texts
            yield path
            return


def script_files(config: CommandExec, root: Path) -> Iterator[str]:
    """Yield the script that is an interpreter's first argument, if it is a file. Links are not followed."""
    name = Path(config.entrypoint).name
    if name.rstrip("0123456789.") not in INTERPRETERS:
        return
    word = next((word for word in config.args if not word.startswith("-")), "")
    path = str(root / config.cwd / word) if "\0" not in word else ""
    if os.path.isfile(path):  # noqa: PTH113 - Path.is_file fails for a word that is a script's text
        yield path


def module_files(config: PythonExec, root: Path, own: Path | None) -> Iterator[str]:
    """Yield the files that an import of a Python tool's module could run, links not followed.

    They are the module and the packages above it, in the first folder that has any of them. Modules of the
    virtual environment are covered by its lock.
    """
    folders = [*((own,) if own is not None else ()), *_homes(root), root / config.cwd]
    parts = config.module.split(".")
    for place in folders:
        found = [path for depth in range(len(parts)) for path in _candidates(place, parts[: depth + 1])]
        if found:
            yield from found
            return


def _homes(root: Path) -> Iterator[Path]:
    return (root / name for name in (".toolcrib", ".glee") if (root / name).is_dir())


def _candidates(place: Path, parts: list[str]) -> list[str]:
    """Return the files in this folder that an import of this module could run."""
    base = place.joinpath(*parts)
    names = [base / "__init__.py", base.with_name(f"{base.name}.py"), base.with_name(f"{base.name}.pyc")]
    try:
        names += sorted(base.parent.glob(f"{base.name}.*so"))
    except (OSError, ValueError):
        pass
    return [str(path) for path in names if path.is_file()]


def lock_files(config: PythonExec, root: Path) -> Iterator[str]:
    """Yield the files that define the packages of a virtual environment.

    They are its settings, each package's list of files with their digests (RECORD), and the files that Python
    runs when it starts (`.pth`).
    """
    if config.venv is None:
        yield os.path.realpath(getattr(sys, "_base_executable", None) or sys.executable)
        return
    folder = Path(os.path.realpath(root / config.venv))
    settings = folder / "pyvenv.cfg"
    if not settings.is_file():
        raise ToolUnavailable(
            f"the virtual environment {config.venv!r} does not exist ({folder})",
            hint=f"Create it: python3 -m venv {config.venv}",
            details={"path": str(folder)},
        )
    yield str(settings)
    yield os.path.realpath(folder / "bin" / "python")
    sites = {os.path.realpath(site) for site in folder.glob("lib*/python*/site-packages")}
    for site in sorted(sites):
        for path in sorted(Path(site).iterdir()):
            if path.suffix == ".dist-info":
                for name in ("RECORD", "METADATA"):
                    if (path / name).is_file():
                        yield str(path / name)
                        break
                else:
                    yield str(path)
            elif path.suffix in (".pth", ".py", ".egg-link"):
                yield str(path)
